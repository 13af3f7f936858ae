"""Starts Python in another folder, with this checkout on its path."""

import os
import subprocess
import sys

from written import ROOT


def python(folder, *words):
    """Run it to its good end; return what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOKY_MAX_CPU_COUNT": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
