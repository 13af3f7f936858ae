"""The search for garbage is put off, and then as it was."""

import gc
import os
import subprocess
import sys

import pytest

from fltune.cli import main
from fltune.garbage import OURS, uncollected


def test_nothing_is_collected_meanwhile():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_failure_inside_does_not_end_collecting():
    with pytest.raises(LookupError), uncollected():
        raise LookupError
    assert gc.isenabled()


def test_who_never_collects_is_left_alone():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("ours", [True, False])
def test_a_process_of_ours_looks_at_no_library(ours):
    program = (
        "import gc, fltune.search; "
        "print(gc.get_freeze_count(), gc.get_stats()[0]['collections'], gc.isenabled())"
    )
    environment = {k: v for k, v in os.environ.items() if k != OURS} | ({OURS: "1"} if ours else {})
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    frozen, searches, enabled = done.stdout.split()
    assert enabled == "True"
    assert (int(frozen) > 100_000) is ours
    assert (int(searches) < 200) is ours  # else some 2,000


@pytest.mark.parametrize("argv", [["--help"], ["run", "nowhere.yaml", "--method", "FedAvg"]])
def test_the_command_line_is_a_process_of_ours(argv, monkeypatch):
    monkeypatch.setenv(OURS, "")  # so that it is put back
    monkeypatch.delenv(OURS)
    with pytest.raises(SystemExit):
        main(argv)
    assert os.environ[OURS]
