"""How many processor cores this process may use: not always as many as the machine has."""

from __future__ import annotations

import os
from pathlib import Path


def allowed() -> int:
    """Return the cores, threads of one counted each, that this process was given.

    Fewer than the machine's in a container, in a batch job (SLURM), below ``taskset``, and where
    ``LOKY_MAX_CPU_COUNT`` says so. Work for all of the machine's would wait in line for these.
    """
    try:
        from joblib import cpu_count
    except ImportError:  # rounds run with torch and lightning alone
        return os.cpu_count() or 1
    return int(cpu_count())


def cores() -> int:
    """Return how many cores this process may use, two threads of one counted once."""
    if not hasattr(os, "sched_getaffinity"):
        return 1
    found = set()
    for cpu in os.sched_getaffinity(0):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.add(path.read_text() if path.exists() else str(cpu))
    return min(len(found), allowed())


def free_cores() -> int:
    """Return :func:`cores` less those that other programs have kept busy in the last minute.

    A share that waits for a core holds up the whole round.
    """
    others = os.getloadavg()[0] - 1 if hasattr(os, "getloadavg") else 0.0
    return cores() - max(0, round(others))
