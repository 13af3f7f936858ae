"""What ends a search early: Ctrl-C, and SIGTERM, which ``kill`` and job schedulers send."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fltune.search.campaign import Campaign


class TerminatedError(KeyboardInterrupt):
    """SIGTERM: there may be seconds left before a SIGKILL."""


@contextlib.contextmanager
def orderly_interrupts(campaign: Campaign, tell: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C stop the launching of runs; let a second one, and SIGTERM, raise.

    From the first line of a search to its last, not only while runs are out: a KeyboardInterrupt
    in the middle of an import, or of Ray's own start, leaves their objects half made, and their
    complaints in the terminal.

    Args:
        campaign: what hands out the runs.
        tell: called at the first Ctrl-C.

    Raises:
        KeyboardInterrupt: at the second one.
        TerminatedError: at SIGTERM; another one changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return

    def interrupt(number: int, frame: Any) -> None:
        if campaign.stopping:
            raise KeyboardInterrupt
        campaign.stopping = True
        tell()

    def terminate(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        campaign.stopping = campaign.terminated = True
        raise TerminatedError

    wanted = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handle) for number, handle in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def kept_on_sigterm() -> Iterator[None]:
    """Keep what SIGTERM does: Ray, as it starts, has it print a stack and end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # else it was set by no Python code
            signal.signal(signal.SIGTERM, before)
