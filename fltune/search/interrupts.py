"""Ctrl-C: the first one lets what runs come to its end, the second one leaves it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fltune.search.campaign import Campaign


@contextlib.contextmanager
def orderly_interrupts(campaign: Campaign, tell: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C stop the launching of runs, and the second one raise.

    From the first line of a search to its last, not only while runs are out: a KeyboardInterrupt
    in the middle of an import, or of Ray's own start, leaves their objects half made, and their
    complaints in the terminal.

    Args:
        campaign: what hands out the runs.
        tell: called at the first Ctrl-C.

    Raises:
        KeyboardInterrupt: at the second one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return

    def handle(number: int, frame: Any) -> None:
        if campaign.stopping:
            raise KeyboardInterrupt
        campaign.stopping = True
        tell()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
