"""What can go wrong for a user, each with the exit code of the command line.

A message says what was found, what is allowed, and what to do next. Everything else is a bug and
keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FltuneError(Exception):
    """Something the user can mend; the command line prints the message alone."""

    exit_code = 1


class ConfigError(FltuneError):
    """A wrong config or command: all problems at once, and nothing was started.

    Args:
        problems: one sentence each, as ``dotted.key: found ..., allowed ...``.
        source: the file (or other origin) that holds the wrong values.
    """

    exit_code = 2

    def __init__(self, problems: str | Iterable[str], source: str | None = None) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        self.source = source
        where = f"{source}: " if source else ""
        if len(self.problems) == 1:
            text = where + self.problems[0]
        else:
            head = f"{where}{len(self.problems)} problems"
            text = "\n  - ".join([head, *self.problems])
        super().__init__(text)


class DataError(FltuneError):
    """Data that is missing, corrupt, or too small for what was asked of it."""

    exit_code = 2


class RunFailedError(FltuneError):
    """A federated run that ended without a result."""


def last_line(text: str) -> str:
    """Return the last line of a text that says something; empty if none does."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of ``allowed``, or an empty string."""
    close = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
