"""Runs on an accelerator, without one: a device that torch takes for another than the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pretended import COMPILER, library

HERE = Path(__file__).parent


@pytest.mark.skipif(COMPILER is None, reason="the pretended device is compiled, with c++")
def test_runs_on_an_accelerator():
    """In a process of its own, which knows that device from then on."""
    library()
    options = ["-n", "0", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", HERE / "there.py", *options]
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(HERE))))
    child = subprocess.run(
        command, cwd=HERE.parents[1], env={**os.environ, "PYTHONPATH": paths}, capture_output=True
    )
    assert child.returncode == 0, child.stdout.decode()
