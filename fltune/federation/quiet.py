"""Silence for Lightning, whose advice and bookkeeping are not about rounds."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ParamSpec, TypeVar

from lightning.pytorch.profilers import PassThroughProfiler

P = ParamSpec("P")
R = TypeVar("R")


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


def inspected(step: Callable[P, R]) -> Callable[P, R]:
    """Keep the signature of a module's step beside it: Lightning works it out in every round."""
    step.__signature__ = inspect.signature(step)  # type: ignore[attr-defined]
    return step
