"""Who wins, and on which fresh seeds the winner is confirmed.

Confirmation runs are the only ones that touch test data, and nothing is selected after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fltune.search.config import Method
from fltune.search.record import TrialRecord


def winner(records: Sequence[TrialRecord], maximize: bool) -> TrialRecord | None:
    """Return the best complete trial; ties go to the earlier one. None if no trial completed.

    Stopped trials are never ranked against full ones, and diverged ones have no score.
    """
    complete = [r for r in records if r.status == "complete" and r.score is not None]
    if not complete:
        return None
    sign = -1.0 if maximize else 1.0
    return min(complete, key=lambda r: (sign * (r.score or 0.0), r.number))


def fresh_seeds(method: Method, count: int) -> list[int]:
    """Return the seeds of the confirmation runs: those after the one the search used."""
    used = int(method.raw.get("seed", 0))
    return [used + i for i in range(1, count + 1)]
