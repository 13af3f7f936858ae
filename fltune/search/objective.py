"""What a run is judged by: its scores and how far it breaks its constraints, row by row.

A :class:`Judge` sees the rows of a run one after the other, so that the rows of a record can be
judged again later. Whatever a row holds, scores and violations are finite: a NaN never reaches a
sampler, a scheduler or a table.
"""

from __future__ import annotations

import difflib
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fltune.errors import ConfigError, nearest

TOTALS = (
    "comm/up_bits",
    "comm/down_bits",
    "client_samples",
    "clock/seconds",
    "participation/dropped",
    "participation/discarded",
)
"""Totals that every row may hold: they only grow, and have no bound."""
METRICS = ("val/accuracy", "val/loss", "train/loss", *TOTALS)
OWN = ("val/", "train/")
"""Prefixes of the metrics that a user's own module may log."""
TYPO = 0.8
"""A name of one's own this similar to a known one is a slip of the pen."""
HUGE = 1e300
"""A value beyond counts as infinite: the mean of a few would be."""
LARGE = 1e18
"""The worst of a total: beyond what a run sends, and its square is still a float32."""


def check_metric(name: str) -> str:
    """Return the name of a metric that something may be selected by.

    Raises:
        ValueError: it is of the test split, or no row can hold it.
    """
    if name.startswith("test/"):
        raise ValueError(f"found {name!r}; select on validation, such as val/accuracy")
    if name in METRICS:
        return name
    if not name.startswith(OWN) or name in OWN:
        raise ValueError(
            f"found {name!r}; must be one of {', '.join(METRICS)}, or a metric of your own that "
            f"starts with val/ or train/{nearest(name, METRICS)}"
        )
    for known in METRICS:  # an own name may add to a known one: val/accuracy_top5
        similar = difflib.SequenceMatcher(None, name, known).ratio() >= TYPO
        if similar and not name.startswith(known):
            raise ValueError(f"found {name!r}; did you mean {known!r}?")
    return name


def natural_mode(metric: str) -> str | None:
    """Return max or min, whichever is better; None for a metric of the user's own."""
    if metric.endswith("loss") or metric in TOTALS:
        return "min"
    return "max" if metric.endswith("accuracy") else None


@dataclass(frozen=True)
class Objective:
    """One thing that a run is judged by.

    Attributes:
        metric: a row's key, such as ``val/accuracy``.
        maximize: whether a larger metric is better.
        average_last: k; a score is the metric's mean over the last k evaluations.
        best: whether the best of these means counts, not the last one.
        target: if given, the score is the number of rounds until the metric first reached this
            value; a run of T rounds that never does has T + 1.
    """

    metric: str
    maximize: bool
    average_last: int = 1
    best: bool = False
    target: float | None = None

    @property
    def direction(self) -> str:
        """``maximize`` or ``minimize``, of the score."""
        return "maximize" if self.maximize and self.target is None else "minimize"

    @property
    def label(self) -> str:
        """What the score is, in short."""
        if self.target is None:
            return self.metric
        return f"rounds to {self.metric} {'>=' if self.maximize else '<='} {self.target:g}"

    def reached(self, row: Mapping[str, float]) -> bool:
        """Whether a row is at the target: never where it lacks the metric, or holds no number."""
        assert self.target is not None
        value = row.get(self.metric, math.nan)
        there = value >= self.target if self.maximize else value <= self.target
        return there and math.isfinite(value)

    def first_round(self, rows: Iterable[Mapping[str, float]]) -> float | None:
        """Return the first evaluated round that was at the target; None if none was."""
        return next((float(row["round"]) for row in rows if self.reached(row)), None)

    def worst(self, max_loss: float, rounds: int) -> float:
        """Return the finite score of a run that diverged.

        A loss: the bound on it. An accuracy: none (all, if it is minimised). A total: ``LARGE``
        (none, if it is maximised). A metric of the user's own, of unknown scale: the loss bound, on
        the bad side. Rounds to a target: one more than there are.
        """
        if self.target is not None:
            return rounds + 1.0
        if self.metric in TOTALS:
            return 0.0 if self.maximize else LARGE
        if self.metric.endswith("accuracy"):
            return 0.0 if self.maximize else 1.0
        return -max_loss if self.maximize else max_loss


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric at the end of a run.

    Attributes:
        metric: a row's key, such as ``comm/up_bits``.
        low, high: the bounds, both allowed; None where there is none.
    """

    metric: str
    low: float | None = None
    high: float | None = None

    def violations(self, value: float) -> tuple[float, ...]:
        """Return one number per bound: <= 0 where it is kept, else the excess.

        In units of the bound (if it is not 0), so that bits and losses can be added. A value that
        is not finite exceeds a bound by the bound.
        """
        found = []
        for bound, sign in ((self.low, -1.0), (self.high, 1.0)):
            if bound is not None:
                excess = sign * (value - bound) / (abs(bound) or 1.0)
                found.append(excess if math.isfinite(excess) else 1.0)
        return tuple(found)


class Judge:
    """Judges a run by its rows.

    Args:
        objectives: at least one.
        constraints: bounds on the last row's metrics.
        max_loss: the loss at which a run counts as diverged.
        rounds: T, of the whole run.

    Attributes:
        directions: ``maximize`` or ``minimize``, per objective.
        worst: the finite scores of a run that diverged.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        constraints: Sequence[Constraint] = (),
        *,
        max_loss: float,
        rounds: int,
    ) -> None:
        self.directions = tuple(o.direction for o in objectives)
        self.worst = tuple(o.worst(max_loss, rounds) for o in objectives)
        self._tracks = [
            (_Mean if o.target is None else _Target)(o, worst)
            for o, worst in zip(objectives, self.worst, strict=True)
        ]
        self._constraints = tuple(constraints)
        self._missing = {*(o.metric for o in objectives), *(c.metric for c in constraints)}
        self._latest: dict[str, float] = {}

    def add(self, row: Mapping[str, float]) -> tuple[float, ...]:
        """Return the scores with one more row; a metric that it lacks keeps its score.

        Raises:
            ConfigError: the row of an evaluated round lacks a metric that no row has held so far.
        """
        self._latest.update(row)
        if self._missing and any(key.startswith("val/") for key in row):
            self._demand_metrics(row)
        return tuple(track.add(row) for track in self._tracks)

    def violations(self, row: Mapping[str, float]) -> tuple[float, ...]:
        """Return how far a row breaks each bound, relative to it; all <= 0 if it breaks none.

        What the row lacks (an empty round has no training loss) is taken from the rows before it.
        """
        latest = {**self._latest, **row}
        return tuple(
            violation
            for constraint in self._constraints
            for violation in constraint.violations(latest.get(constraint.metric, math.nan))
        )

    def _demand_metrics(self, row: Mapping[str, float]) -> None:
        self._missing -= self._latest.keys()
        for metric in sorted(self._missing):
            # a round without clients has no training metrics; one with clients will come
            excused = metric.startswith("train/") and "train/loss" not in row
            if not excused:
                known = [key for key in self._latest if key != "round"]
                raise ConfigError(
                    f"search: the run reports no metric {metric!r}{nearest(metric, known)}; "
                    f"it reports: {', '.join(known)}"
                )


class _Mean:
    """The mean of the last k evaluations, at the end or at its best."""

    def __init__(self, objective: Objective, worst: float) -> None:
        self.objective = objective
        self.worst = self.score = worst
        self._recent: deque[float] = deque(maxlen=objective.average_last)

    def add(self, row: Mapping[str, float]) -> float:
        if self.objective.metric not in row:
            return self.score
        better = max if self.objective.maximize else min
        value = row[self.objective.metric]
        if not abs(value) <= HUGE:  # NaN as well
            value = self.worst
        elif natural_mode(self.objective.metric) is not None:  # of one's own: no real bound
            value = better(value, self.worst)
        full = len(self._recent) == self._recent.maxlen  # a mean over fewer is luckier
        self._recent.append(value)
        mean = sum(self._recent) / len(self._recent)
        self.score = better(mean, self.score) if self.objective.best and full else mean
        return self.score


class _Target:
    """Rounds until a metric first reached its target."""

    def __init__(self, objective: Objective, never: float) -> None:
        self.objective = objective
        self.score = never
        self._reached = False

    def add(self, row: Mapping[str, float]) -> float:
        if not self._reached and self.objective.reached(row):
            self._reached = True
            self.score = float(row["round"])
        return self.score
