"""Early stopping: which trials of a method are not worth going on with.

A scheduler here is a few tables of scores by round. It knows nothing of Ray: it is told a trial's
score at each evaluation and answers whether to stop it, and it can be told old scores again, so
that a resumed search has the rungs of the interrupted one. Scores are compared at equal rounds
only, among trials of one method.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from itertools import count, takewhile
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fltune.search.settings import SearchSettings

LOWEST = -sys.float_info.max / 2**64
"""What counts for a score that is not finite: below all, and 2**64 of them still have a sum."""


def make_rungs(settings: SearchSettings, rounds: int) -> Rungs | None:
    """Return the scheduler of one method; None if nothing is to be stopped early.

    Args:
        settings: says which, and grace, reduction, brackets and min_trials.
        rounds: T, of every trial of the method.
    """
    grace, maximize = settings.grace, settings.maximize
    if settings.scheduler == "asha":
        return Asha(maximize, rounds, grace, settings.reduction)
    if settings.scheduler == "hyperband":
        return Hyperband(maximize, rounds, grace, settings.reduction, settings.brackets)
    if settings.scheduler == "median":
        return MedianStopping(maximize, rounds, grace, settings.min_trials)
    return None


class Rungs(ABC):
    """Decides after each evaluation of a trial whether it goes on.

    In a deterministic search the order in which the trials of a batch report must not matter:
    after :meth:`freeze`, decisions use the scores of other trials up to the last :meth:`commit`
    only, and commit comes when the whole batch has ended.

    Args:
        maximize: whether larger scores are better.
        rounds: T; a trial that has made them all is never stopped.
    """

    def __init__(self, maximize: bool, rounds: int) -> None:
        self.maximize = maximize
        self.rounds = rounds
        self._own: dict[int, dict[int, float]] = {}
        self._waiting: list[tuple[int, int, float]] = []
        self._frozen = False

    def stop(self, number: int, round: int, score: float) -> bool:
        """Take a trial's score after so many rounds; return whether it should stop now.

        Args:
            number: the trial's, within its method.
            round: rounds completed.
            score: its score so far; one that is not finite is worse than all, and stops it.
        """
        self._take(number, round, score)
        hopeless = not math.isfinite(score) or self._hopeless(number, self._own[number])
        return hopeless and round < self.rounds

    def replay(self, number: int, scores_by_round: Mapping[int, float]) -> None:
        """Take the scores of a trial of an earlier session; nothing is decided."""
        for round in sorted(scores_by_round):
            self._take(number, round, scores_by_round[round])

    def diverged(self, number: int) -> None:
        """Let a trial that diverged be last at all the rounds that it did not come to."""
        last = max(self._own.get(number, {0: 0.0}))
        for round in sorted({min(last + 1, self.rounds), self.rounds}):
            self._take(number, round, math.nan)

    def freeze(self) -> None:
        """From now on decide by what is committed; all that was taken so far is."""
        self._frozen = True

    def commit(self) -> None:
        """Let later decisions see what has been taken since the last commit."""
        for entry in self._waiting:
            self._publish(*entry)
        self._waiting.clear()

    def _take(self, number: int, round: int, score: float) -> None:
        signed = (score if self.maximize else -score) if math.isfinite(score) else LOWEST
        self._own.setdefault(number, {})[round] = signed
        if self._frozen:
            self._waiting.append((number, round, signed))
        else:
            self._publish(number, round, signed)

    @abstractmethod
    def _publish(self, number: int, round: int, score: float) -> None:
        """Put a score (larger is better) where the decisions on other trials see it."""

    @abstractmethod
    def _hopeless(self, number: int, own: Mapping[int, float]) -> bool:
        """Judge a trial by its own scores by round, in order, and those of the others."""


class Asha(Rungs):
    """Asynchronous successive halving (Li et al. 2020, Algorithm 2, in its stopping form).

    Rungs are at grace * reduction^k rounds, k = 0, 1, ...; a trial stands on a rung with its score
    at the first evaluation there or later. It goes on if it is among the best 1/reduction of those
    that have come to the rung so far. The first ones to come have nobody to be compared with, so a
    trial is judged again at each evaluation until it comes to the next rung: a bad early one does
    not get the full budget.

    Args:
        maximize, rounds: see :class:`Rungs`.
        grace: rounds of the first rung.
        reduction: eta.
        skipped: how many of the first rungs nobody is judged at.
    """

    def __init__(
        self, maximize: bool, rounds: int, grace: int, reduction: float, skipped: int = 0
    ) -> None:
        super().__init__(maximize, rounds)
        self.reduction = reduction
        # Each by its own power: brackets of Hyperband share rungs to the last bit.
        rungs = (float(grace * reduction**k) for k in count(skipped))
        self._at: dict[float, dict[int, float]] = {
            rung: {} for rung in takewhile(lambda rung: rung < rounds, rungs)
        }

    @property
    def rungs(self) -> list[float]:
        """Rounds at which trials are judged; an evaluation may come later."""
        return list(self._at)

    def cutoff(self, rung: float) -> float | None:
        """Return the score that a rung asks for, always finite; None where nobody has been."""
        scores = list(self._at[rung].values())
        if not scores:
            return None
        return self._cutoff(scores) if self.maximize else -self._cutoff(scores)

    def _cutoff(self, scores: list[float]) -> float:
        return sorted(scores, reverse=True)[math.ceil(len(scores) / self.reduction) - 1]

    def _publish(self, number: int, round: int, score: float) -> None:
        for rung, scores in self._at.items():
            if rung <= round:
                scores.setdefault(number, score)

    def _hopeless(self, number: int, own: Mapping[int, float]) -> bool:
        reached = [rung for rung in self._at if rung <= max(own)]
        if not reached:
            return False
        rung = reached[-1]
        score = own[min(r for r in own if r >= rung)]
        others = [s for n, s in self._at[rung].items() if n != number]
        return score < self._cutoff([*others, score])


class Hyperband(Rungs):
    """Several ASHAs of ever longer grace side by side (Li et al. 2018, Algorithm 1).

    It hedges against a grace that is too short for slow starters. Bracket s starts at grace *
    reduction^s rounds; where all fit, the last one stops nobody. A trial's bracket is a function of
    its number, in Hyperband's proportions: of a cycle, a bracket with r rungs gets
    ceil(K / (r + 1) * reduction^r) trials, where K is the number of brackets.

    Args:
        maximize, rounds, grace, reduction: see :class:`Asha`.
        brackets: at most so many; None: as many as fit.
    """

    def __init__(
        self,
        maximize: bool,
        rounds: int,
        grace: int,
        reduction: float,
        brackets: int | None = None,
    ) -> None:
        super().__init__(maximize, rounds)
        fit = len(Asha(maximize, rounds, grace, reduction).rungs) + 1
        tables = min(fit, brackets or fit)
        self.brackets = [Asha(maximize, rounds, grace, reduction, s) for s in range(tables)]
        heights = [len(bracket.rungs) for bracket in self.brackets]
        self._shares = [math.ceil(tables / (r + 1) * reduction**r) for r in heights]
        self._assigned: list[int] = []

    def bracket(self, number: int) -> int:
        """Return a trial's bracket; the trials of a bracket are spread evenly over the numbers."""
        while len(self._assigned) <= number:
            due = (len(self._assigned) + 1) / sum(self._shares)
            behind = [due * share - self._assigned.count(b) for b, share in enumerate(self._shares)]
            self._assigned.append(behind.index(max(behind)))
        return self._assigned[number]

    def _publish(self, number: int, round: int, score: float) -> None:
        self.brackets[self.bracket(number)]._publish(number, round, score)

    def _hopeless(self, number: int, own: Mapping[int, float]) -> bool:
        return self.brackets[self.bracket(number)]._hopeless(number, own)


class MedianStopping(Rungs):
    """The median stopping rule (Golovin et al. 2017, Section 3.2.2).

    A trial stops if its best score so far is below the median of the other trials' running averages
    up to the same round. Other trials that did not come so far are left out.

    Args:
        maximize, rounds: see :class:`Rungs`.
        grace: rounds before which nobody is stopped.
        min_trials: other trials that must have come to the same round.
    """

    def __init__(self, maximize: bool, rounds: int, grace: int, min_trials: int) -> None:
        super().__init__(maximize, rounds)
        self.grace = grace
        self.min_trials = min_trials
        self._averages: dict[int, tuple[list[int], list[float]]] = {}

    def _publish(self, number: int, round: int, score: float) -> None:
        rounds, averages = self._averages.setdefault(number, ([], []))
        if rounds and round <= rounds[-1]:
            return  # told again: a resumed trial repeats the rounds after its checkpoint
        before = averages[-1] * len(averages) if averages else 0.0
        rounds.append(round)
        averages.append((before + score) / len(rounds))

    def _hopeless(self, number: int, own: Mapping[int, float]) -> bool:
        now = max(own)
        averages = [
            means[bisect_right(rounds, now) - 1]
            for other, (rounds, means) in self._averages.items()
            if other != number and rounds[0] <= now <= rounds[-1]
        ]
        if now < self.grace or len(averages) < self.min_trials:
            return False
        return max(own.values()) < median(averages)
