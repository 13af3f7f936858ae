"""Freed memory is kept and taken again; counted in pages that the kernel had to bring."""

import os
import subprocess
import sys

import pytest

from fltune.federation.allocation import environment

PROGRAM = """
import resource

import torch


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB, at once freed again
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print([faults() for _ in range(3)][-1])
"""
AGAIN = "from fltune.federation.allocation import restart\nrestart()\n" + PROGRAM
PAGES = 2**14
NAMES = ("LD_PRELOAD", "MALLOC_CONF")


def faults(program=PROGRAM, **added):
    """Return what a program prints that is started with more in its environment."""
    plain = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**plain, **added},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.fixture
def added(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    found = environment()
    if not found:
        pytest.skip("there is no jemalloc here")
    return found


def test_a_block_that_was_freed_is_taken_again_without_the_kernel(added):
    assert faults() > PAGES / 2
    assert faults(**added) < PAGES / 10


def test_a_program_starts_again_once(added):
    assert faults(AGAIN) < PAGES / 10


def test_another_allocator_stays(added, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "theirs.so")
    assert environment() == {}


def test_other_systems_get_nothing(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert environment() == {}
