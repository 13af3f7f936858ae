"""Ctrl-C in a run: an exception that its caller can catch, as everywhere in Python."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Lightning's answer to Ctrl-C back into a KeyboardInterrupt.

    Lightning ends the process with exit code 1, and first lets it ignore every further Ctrl-C: in a
    notebook the kernel would be gone, in a script nobody learns why.

    Raises:
        KeyboardInterrupt: the trainer was interrupted.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as exit:
        if not isinstance(exit.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None
