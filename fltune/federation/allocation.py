"""Memory that a process has freed is taken again, not fetched from the kernel anew.

A round takes and frees blocks as large as all models of its cohort. glibc gives large blocks back
at once, and the kernel clears each page before it gives it again: 16 to 35 % of the processor time
of rounds with large cohorts or convolutional networks (docs/performance.md). jemalloc can keep
them, and where it is at hand processes that train are started with it. glibc's own options do not
do: it keeps the blocks as well, but does not take one again for an aligned block of the same size,
and so its heap grows.

The price is that such a process stays as large as it once was.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import sys
from pathlib import Path

_PRELOAD = "LD_PRELOAD"
_OPTIONS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0"


def environment() -> dict[str, str]:
    """Return what to add to the environment of a process that will train.

    Nothing on other systems than Linux, where there is no jemalloc, and where somebody has chosen
    another allocator.
    """
    if sys.platform != "linux" or _PRELOAD in os.environ:
        return {}
    library = _jemalloc()
    return {} if library is None else {_PRELOAD: library, "MALLOC_CONF": _OPTIONS}


def _jemalloc() -> str | None:
    """Return the library that Ray brings along, or the system's; None without either."""
    ray = importlib.util.find_spec("ray")
    if ray is not None and ray.origin is not None:
        own = Path(ray.origin).parent / "core" / "libjemalloc.so"
        if own.is_file():
            return str(own)
    return ctypes.util.find_library("jemalloc")


def restart() -> None:
    """Start this program again from its command line as a process that will train, if need be.

    For a program's first lines: what it has done so far is done again.
    """
    added = environment()
    if added:
        argv = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, argv, {**os.environ, **added})
