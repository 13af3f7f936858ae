"""A config that the search tries, with its runs on every search seed, and who wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fltune.search.front import pareto_front
from fltune.search.record import TrialRecord


@dataclass
class Candidate:
    """One config of a method.

    Attributes:
        number: position among the method's configs.
        values: searched values, by dotted name.
        seeds: on which it is to be run; none if there is no other config to choose.
        runs: the ended runs, in any order.
        rejected: why it was not run on all seeds; empty if it was.
    """

    number: int
    values: dict[str, Any]
    seeds: Sequence[int]
    runs: list[TrialRecord] = field(default_factory=list)
    rejected: str = ""

    @property
    def status(self) -> str:
        """``running``, or how it ended: complete, pruned, diverged, failed.

        A config that diverges on any seed has diverged: it is not its lucky seed.
        """
        found = {run.status for run in self.runs}
        for status in ("failed", "diverged", "pruned"):
            if status in found:
                return status
        if self.rejected:
            return "pruned"
        return "running" if self.missing else "complete"

    @property
    def missing(self) -> list[int]:
        """Seeds on which it has not been run."""
        done = {run.seed for run in self.runs}
        return [seed for seed in self.seeds if seed not in done]

    @property
    def scores(self) -> tuple[float, ...]:
        """The mean over seeds of each objective; empty before a run ended with one."""
        return _means([run.scores for run in self.runs if run.scores])

    @property
    def violations(self) -> tuple[float, ...]:
        """The mean over seeds of each constraint's violation."""
        return _means([run.violations for run in self.runs if run.violations])

    @property
    def feasible(self) -> bool:
        """Whether it keeps all constraints."""
        return all(v <= 0 for v in self.violations)

    @property
    def rounds(self) -> int:
        """The rounds of its longest run."""
        return max((run.rounds for run in self.runs), default=0)


def _means(columns: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each column, to the last bit the same in any order of the rows."""
    return tuple(math.fsum(values) / len(values) for values in zip(*columns, strict=True))


def rankable(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the complete candidates that may win: where some keep the constraints, only those."""
    complete = [c for c in candidates if c.status == "complete" and c.scores]
    return [c for c in complete if c.feasible] or complete


def winners(
    candidates: Sequence[Candidate], directions: Sequence[str], count: int = 1
) -> list[Candidate]:
    """Return the best complete candidates, best first; ties go to the earlier one.

    Stopped candidates are never ranked against full ones, diverged and failed ones not at all, and
    one that breaks a constraint only where none keeps them. With several objectives these are the
    points of the Pareto front, ordered by the first objective.

    Args:
        candidates: of one method.
        directions: ``maximize`` or ``minimize``, per objective.
        count: at most so many.
    """
    kept = rankable(candidates)
    if len(directions) > 1:
        kept = [kept[i] for i in pareto_front([c.scores for c in kept], directions)]
    sign = -1.0 if directions[0] == "maximize" else 1.0
    return sorted(kept, key=lambda c: (sign * c.scores[0], c.number))[:count]


def why_hopeless(candidate: Candidate, best: Candidate, maximize: bool) -> str:
    """Return why a config with one run is no match for the best one, or nothing.

    Racing in its simplest form: worse on its first seed than the best config so far is on its worst
    one. A config that keeps the constraints is not rejected for one that does not.

    Args:
        candidate: has been run on its first seed.
        best: has been run on all of them.
        maximize: whether a larger score is better.
    """
    sign = 1.0 if maximize else -1.0
    worst = min(sign * run.scores[0] for run in best.runs)
    if sign * candidate.scores[0] >= worst or (candidate.feasible and not best.feasible):
        return ""
    return (
        f"rejected after 1 of {len(candidate.seeds)} seeds: {candidate.scores[0]:.4g} is worse "
        f"than trial {best.number} on its worst seed, {sign * worst:.4g}"
    )


def by_promise(candidates: Sequence[Candidate], maximize: bool) -> list[Candidate]:
    """Return configs in the order in which to run them on more seeds: the best so far first.

    The others may lose to it before they are run. Those that have not been run at all come last.
    """
    sign = -1.0 if maximize else 1.0
    run = [c for c in candidates if c.scores]
    best_first = sorted(run, key=lambda c: (sign * c.scores[0], c.number))
    return [*best_first, *(c for c in candidates if not c.scores)]
