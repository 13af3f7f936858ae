"""Silence for Lightning, whose advice and bookkeeping are not about rounds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from lightning.pytorch.profilers import PassThroughProfiler


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's tips and the warnings that do not apply to rounds."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class NoProfiler(PassThroughProfiler):
    """Measures nothing, as Lightning's own does, but without a generator for each hook of a round.

    A round calls some thirty hooks.
    """

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Return a context that does nothing."""
        return _NOTHING


_NOTHING = nullcontext()
