"""A disk that takes no more ends a search with a word; freed, the search goes on."""

import subprocess
import time

import pytest
from night import RUNS, same

FULL = """
import errno
import os

real = os.fsync


def fsync(file):
    if os.fstat(file).st_size > 6000:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(file)


os.fsync = fsync
"""
"""A disk that is full for every log of more than 6,000 bytes."""


def ends_with_a_word(night, command):
    assert command.wait() == 1, command.printed
    log, said = command.err.splitlines()
    assert log.startswith(f"fltune: {night.state}/")
    assert log.endswith("cannot be written: No space left on device")
    assert said == (
        f"{night.lines()} ended runs are kept; free some space, then go on with: "
        "python -m fltune resume night"
    )
    assert 0 < night.lines() < RUNS


@pytest.mark.slow
def test_a_full_disk(night, undisturbed):
    ends_with_a_word(night, night.search(before=FULL))
    night.done(night.resume())
    same(night, undisturbed)


@pytest.fixture
def small_disk(night):
    """A small disk for logs and store; a finished search leaves a page of some 5 MB there."""
    disk = night.folder / "mlruns"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    yield disk
    night.end()
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # what was killed may still go


@pytest.mark.slow
def test_a_disk_that_is_really_full_under_logs_and_store(night, small_disk, undisturbed):
    command = night.search()
    command.until(night.ended(4), "4 ended runs")
    ballast = small_disk / "ballast"
    fill_until_it_ends(command, ballast)
    ends_with_a_word(night, command)
    store = f"the tracking store sqlite:///{small_disk}/mlflow.db failed: "
    full = [store + "database or disk is full", "No space left on device"]  # its rows; its files
    assert "failed:" not in command.out or any(word in command.out for word in full)
    ballast.unlink()
    night.done(night.resume())
    same(night, undisturbed)


def fill_until_it_ends(command, path):
    """Leave no byte free while a command runs: a store that takes a write back frees some."""
    with path.open("wb", buffering=0) as file:
        while command.runs:
            for size in (2**16, 1):
                with pytest.raises(OSError, match="No space left"):
                    write_on(file, size)
            time.sleep(0.01)


def write_on(file, size):
    while file.write(bytes(size)):
        pass
