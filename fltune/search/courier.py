"""Work that the driver need not wait for, done in order by a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class Courier:
    """Does one thing after another, in the order in which it was asked.

    Nothing that fails is lost: the next call raises what went wrong before.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._asked: deque[Future[Any]] = deque()

    def later(self, task: Callable[..., object], *args: Any) -> None:
        """Have something done after all that was asked before; return at once.

        Raises:
            Exception: what an earlier task raised.
        """
        self._look(wait=False)
        self._asked.append(self._thread.submit(task, *args))

    def now(self, task: Callable[..., Result], *args: Any) -> Result:
        """Have something done after all that was asked before; wait, and return its result.

        Raises:
            Exception: what this or an earlier task raised.
        """
        asked = self._thread.submit(task, *args)
        self._look(wait=True)
        return asked.result()

    def close(self) -> None:
        """Wait for all that was asked; nothing can be asked any more."""
        self._thread.shutdown()

    def _look(self, wait: bool) -> None:
        """Raise what went wrong, in order."""
        while self._asked and (wait or self._asked[0].done()):
            self._asked.popleft().result()
