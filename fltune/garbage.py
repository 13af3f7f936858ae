"""When Python looks for garbage, and at what."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

OURS = "FLTUNE_PROCESS"
"""Set in the environment of processes that do nothing but run fltune."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for no unreachable cycles meanwhile, and afterwards as it did before."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load libraries; a process of ours never looks for garbage among what is there then.

    Almost half a million objects come to stay with torch and lightning. Python looks at them again
    and again while they load, soon after, and at its end: a quarter of the time of a short
    ``fltune run`` (docs/performance.md). In somebody's own session all is left as it was: what is
    there may still become garbage.
    """
    if OURS not in os.environ:
        yield
        return
    with uncollected():
        yield
    gc.freeze()
