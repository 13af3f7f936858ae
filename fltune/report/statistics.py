"""Means with intervals, and paired comparisons of methods over the seeds they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
ROUNDING = 4 * 2.0**-23
"""How far scores that are equal may lie apart, relative to them: metrics are logged in float32."""


@dataclass
class Interval:
    """A mean over seeds with its Student interval.

    Attributes:
        mean, std: over seeds; std with n - 1 in the denominator, 0 for one seed.
        low, high: the 95% interval of the mean; NaN for one seed.
        seeds: how many.
    """

    mean: float
    std: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval | None:
        """Summarise the finite values; None if there is none."""
        finite = [v for v in values if math.isfinite(v)]
        if not finite:
            return None
        mean = float(np.mean(finite))
        if len(finite) == 1:
            return cls(mean, 0.0, math.nan, math.nan, 1)
        std = float(np.std(finite, ddof=1))
        half = _quantile(len(finite) - 1) * std / len(finite) ** 0.5
        return cls(mean, std, mean - half, mean + half, len(finite))


@dataclass
class Comparison:
    """A method against the best one, seed by seed: both saw the same clients and cohorts.

    Attributes:
        difference: method minus best, over the seeds that both have; without interval where there
            is no p.
        p: of the paired t-test, corrected for the number of methods compared. NaN where it cannot
            be told: for one seed, and for differences that are all equal and not 0.
    """

    difference: Interval
    p: float

    @property
    def all_equal(self) -> bool:
        """Whether p cannot be told because every seed has the same difference."""
        return math.isnan(self.p) and self.difference.seeds > 1


def coincide(values: Sequence[float], scale: float = 0.0) -> bool:
    """Whether values are the same up to rounding, so that they say nothing of their spread.

    Accuracies of few samples coincide, and so do their differences: on two seeds, of two methods
    that are some samples apart by chance alone, about one time in eight. The next value is as free
    as ever, whatever a formula makes of a deviation of 0.

    Args:
        values: finite.
        scale: the largest of what they were computed from, where that is larger than they are.
    """
    largest = max([scale, *map(abs, values)])
    return max(values) - min(values) <= ROUNDING * largest


def lucky(gap: float, seeds: int, fresh: Sequence[float]) -> bool:
    """Whether a score lies above what new runs of the same config let expect.

    The bound is the end of the 95% prediction interval for the mean of ``seeds`` new runs, from
    the spread of the fresh ones. Of a score that was not picked, 1 in 40 lies above it.

    Args:
        gap: the score minus the mean of the fresh ones, positive where it is better.
        seeds: how many runs the score is a mean of.
        fresh: scores of the same config on other seeds; fewer than two say nothing, and neither do
            equal ones: accuracies of few samples coincide, and their next one is as free as ever.
    """
    interval = Interval.of(fresh)
    if interval is None or interval.seeds < 2 or coincide(fresh):
        return False
    t = _quantile(interval.seeds - 1)
    return gap > t * interval.std * math.sqrt(1 / seeds + 1 / interval.seeds)


def compare_to(best: str, by_seed: Mapping[str, Mapping[int, float]]) -> dict[str, Comparison]:
    """Compare every method to one of them by paired t-tests, Holm's correction for many.

    Args:
        best: the method that the others are compared to.
        by_seed: for each method, a metric by seed.

    Returns:
        a comparison for each other method that shares a seed with ``best``.
    """
    found: dict[str, tuple[Interval, float]] = {}
    for name, scores in by_seed.items():
        shared = sorted(set(scores) & set(by_seed[best]))
        pairs = [(scores[s], by_seed[best][s]) for s in shared]
        pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if name != best and pairs:
            found[name] = _paired(pairs)
    corrected = holm([p for _, p in found.values()])
    return {
        name: Comparison(interval, p)
        for (name, (interval, _)), p in zip(found.items(), corrected, strict=True)
    }


def _paired(pairs: Sequence[tuple[float, float]]) -> tuple[Interval, float]:
    """Return the mean difference of some pairs, and its two-sided p."""
    differences = [own - best for own, best in pairs]
    difference = Interval.of(differences)
    assert difference is not None
    if difference.seeds < 2:
        return difference, math.nan
    scale = max(abs(score) for pair in pairs for score in pair)
    if coincide(differences, scale):
        if coincide([difference.mean, 0.0], scale):
            return difference, 1.0
        return replace(difference, low=math.nan, high=math.nan), math.nan
    t = difference.mean / (difference.std / math.sqrt(difference.seeds))
    return difference, float(2 * stdtr(difference.seeds - 1, -abs(t)))


def _quantile(freedom: int) -> float:
    """Return the half width of the interval in standard errors, from Student's distribution.

    ``scipy.stats`` has the same numbers, and takes half a second to import.
    """
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm, 1979, step-down); NaN stays NaN and counts not."""
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected = list(map(float, p_values))
    reached = 0.0
    for rank, (p, i) in enumerate(order):
        reached = max(reached, min(1.0, (len(order) - rank) * p))
        corrected[i] = reached
    return corrected
