"""Winners, and their confirmation: the winner of each method on fresh seeds, on the test split.

This is the only place where a search touches test data, and nothing is selected after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fltune.search.config import Method, SearchConfig
from fltune.search.record import TrialRecord
from fltune.search.tuner import Listener, run_jobs


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


def confirm(
    config: SearchConfig,
    winners: Mapping[str, TrialRecord],
    concurrent: int,
    state: Path,
    listen: Listener,
) -> dict[str, list[TrialRecord]]:
    """Run every winner on fresh seeds and evaluate it on the test split.

    Returns:
        the records by method, in the order of the seeds.
    """
    jobs: list[dict[str, Any]] = []
    for name, best in winners.items():
        method = config.method(name)
        for number, seed in enumerate(fresh_seeds(method, config.settings.search.confirm_seeds)):
            jobs.append(
                {
                    "method": name,
                    "base": method.raw,
                    "values": {**best.values, "seed": seed},
                    "winner": best.values,
                    "number": number,
                    "test": True,
                }
            )
    if not jobs:
        return {name: [] for name in winners}
    records = run_jobs(jobs, config.settings, concurrent, state, listen)
    by_method: dict[str, list[TrialRecord]] = {name: [] for name in winners}
    for record in sorted(records, key=lambda r: r.number):
        by_method[record.method].append(record)
    return by_method
