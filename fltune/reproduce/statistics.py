"""The statistics that claims are made of: a number for every seed, paired by seed.

Methods of a comparison see the same clients, cohorts and initial model on a seed, so differences
and ratios are taken seed by seed, and the interval is that of their mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from fltune.reproduce.claims import Claim
from fltune.reproduce.readings import BySeed, Cell, Evidence, Series, bits, read

Readings = Callable[[Evidence, Claim, Cell], list[BySeed]]
Combine = Callable[[Sequence[float]], float]

NEUTRAL = {
    "difference": 0.0,
    "ratio": 1.0,
    "smallest_step": 0.0,
    "largest_step": 0.0,
    "growth": 0.0,
    "ratio_growth": 1.0,
}
"""Where a statistic tells of no effect; a level, a spread, a computed value have no such place."""


def by_seed(evidence: Evidence, claim: Claim, cell: Cell) -> BySeed:
    """Return a claim's statistic in a cell on every seed that all its runs share."""
    readings, combine = STATISTICS[claim.statistic]
    return _paired(readings(evidence, claim, cell), combine)


def _over(a: float, b: float) -> float:
    return a / b if b else math.nan


def _known(choose: Callable[[Sequence[float]], float], steps: Sequence[float]) -> float:
    """Choose a step; NaN if one is between two runs that diverged, and so not known."""
    return math.nan if any(map(math.isnan, steps)) else choose(steps)


def _steps(values: Sequence[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(values)]


def _own(evidence: Evidence, claim: Claim, cell: Cell) -> list[BySeed]:
    return _read_all([evidence.at(claim.of, cell)], claim)


def _sides(evidence: Evidence, claim: Claim, cell: Cell) -> list[BySeed]:
    assert claim.than is not None
    return _read_all([evidence.at(claim.of, cell), evidence.at(claim.than, cell)], claim)


def _walk(evidence: Evidence, claim: Claim, cell: Cell) -> list[BySeed]:
    """Return the numbers of ``of`` at each label of the axis."""
    assert claim.along is not None
    labels = evidence.labels(claim)
    return _read_all([evidence.at(claim.of, {**cell, claim.along: x}) for x in labels], claim)


def _corners(evidence: Evidence, claim: Claim, cell: Cell) -> list[BySeed]:
    """Return ``of`` and ``than`` at the first label, then at the last."""
    assert claim.than is not None
    assert claim.along is not None
    labels = evidence.labels(claim)
    ends = [{**cell, claim.along: label} for label in (labels[0], labels[-1])]
    return _read_all([evidence.at(m, end) for end in ends for m in (claim.of, claim.than)], claim)


def _read_all(series: Sequence[Series], claim: Claim) -> list[BySeed]:
    """Read some series; one that was lost in the search has the worst on the others' seeds."""
    runs = [run for one in series for run in one.runs]
    seeds = sorted({run.seed for run in runs}) or [0]
    # one that broke off has sent little, and is the worst anyway: it is no budget for the others
    whole = [run for run in runs if run.rows and run.status == "complete"]
    budget = min((bits(run.rows[-1], claim) for run in whole), default=math.inf)
    found = [read(one, claim, seeds, budget) for one in series]
    return _told_apart(found, series) if claim.take == "rounds" else found


def _told_apart(readings: Sequence[BySeed], series: Sequence[Series]) -> list[BySeed]:
    """Set to NaN who never comes to the target where another one never does: neither is earlier."""
    found = [dict(one) for one in readings]
    for seed in {seed for one in found for seed in one}:
        never = [r for r, one in zip(found, series, strict=True) if r.get(seed, 0.0) > one.rounds]
        for one in never if len(never) > 1 else ():
            one[seed] = math.nan
    return found


def _paired(readings: Sequence[Mapping[int, float]], combine: Combine) -> BySeed:
    """Combine the numbers of each seed that all have; to NaN where one of them is not known."""
    found = {}
    for seed in sorted(set.intersection(*(set(one) for one in readings))):
        values = [one[seed] for one in readings]
        found[seed] = math.nan if any(map(math.isnan, values)) else combine(values)
    return found


STATISTICS: dict[str, tuple[Readings, Combine]] = {
    "level": (_own, lambda v: v[0]),
    "difference": (_sides, lambda v: v[0] - v[1]),
    "ratio": (_sides, lambda v: _over(v[0], v[1])),
    "smallest_step": (_walk, lambda v: _known(min, _steps(v))),
    "largest_step": (_walk, lambda v: _known(max, _steps(v))),
    "spread": (_walk, lambda v: max(v) - min(v)),
    "growth": (_corners, lambda v: (v[2] - v[3]) - (v[0] - v[1])),
    "ratio_growth": (_corners, lambda v: _over(_over(v[2], v[0]), _over(v[3], v[1]))),
}
"""By the name in a file, what is read and how it is combined, seed by seed.

``computed`` reads what was computed instead, without runs.
"""
