"""The outcome of a search in plain numbers: one object for the table, MLflow and ``--json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from fltune.search.config import Method
from fltune.search.record import TrialRecord

CONFIDENCE = 0.95


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
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(finite) - 1)) * std / len(finite) ** 0.5
        return cls(mean, std, mean - half, mean + half, len(finite))


@dataclass
class MethodSummary:
    """How one method did.

    Attributes:
        best: the winner's values, by dotted name; empty if no trial completed.
        val: the winner's score on validation data, from the search.
        metrics: by name, the interval over confirmation seeds (``test/accuracy`` ...).
        trials, pruned, diverged, failed: counts.
        seeds_diverged: confirmation runs that diverged; an accuracy counts as 0 there, a loss is
            left out.
        seeds_failed: confirmation runs that ended with an error; they count nowhere.
        edges: parameters whose winning value lies on a border of its space that can be moved.
        client_samples: samples processed by clients in all trials, confirmation apart.
        bits_up, bits_down: communication of one confirmed run, mean over seeds.
    """

    best: dict[str, Any]
    val: float | None
    metrics: dict[str, Interval]
    trials: int
    pruned: int
    diverged: int
    failed: int
    seeds_diverged: int
    edges: dict[str, str]
    client_samples: int
    bits_up: float = 0.0
    bits_down: float = 0.0
    seeds_failed: int = 0

    @property
    def test(self) -> Interval | None:
        """The headline: test accuracy, or test loss where the task has no classes."""
        return self.metrics.get("test/accuracy", self.metrics.get("test/loss"))


@dataclass
class Summary:
    """The outcome of a search.

    Attributes:
        name: of the search.
        tracking_uri: the MLflow store, without passwords.
        experiment: the MLflow experiment.
        metric: what winners were chosen by.
        maximize: whether larger is better.
        methods: by name, in the file's order.
    """

    name: str
    tracking_uri: str
    experiment: str
    metric: str
    maximize: bool
    methods: dict[str, MethodSummary] = field(default_factory=dict)

    def ranked(self) -> list[tuple[str, MethodSummary]]:
        """Return the methods, best first: by test mean, else by validation score."""

        def key(entry: tuple[str, MethodSummary]) -> tuple[bool, float]:
            method = entry[1]
            if method.test is not None:
                better = "test/accuracy" in method.metrics
                return False, -method.test.mean if better else method.test.mean
            score = method.val if method.val is not None else math.inf
            return True, -score if self.maximize and math.isfinite(score) else score

        return sorted(self.methods.items(), key=key)

    def as_json(self) -> dict[str, Any]:
        """Return plain values; NaN (an interval of one seed) becomes null."""
        methods = {}
        for name, m in self.methods.items():
            entry = asdict(m)
            entry["test"] = asdict(m.test) if m.test else None
            methods[name] = entry
        plain = {
            "name": self.name,
            "tracking_uri": self.tracking_uri,
            "experiment": self.experiment,
            "metric": self.metric,
            "methods": methods,
        }
        return finite(plain)


def finite(value: Any) -> Any:
    """Return plain values with null for NaN and infinities, which JSON does not know."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summarise(
    method: Method,
    trials: Sequence[TrialRecord],
    best: TrialRecord | None,
    confirmed: Sequence[TrialRecord],
) -> MethodSummary:
    """Reduce the records of one method."""
    counts = {s: sum(r.status == s for r in trials) for s in ("pruned", "diverged", "failed")}
    names = {name for r in confirmed for name in r.metrics}
    if "val/accuracy" in names:  # a diverged run has no test metrics, and shall count as 0
        names.add("test/accuracy")
    intervals = {n: Interval.of([_metric(r, n) for r in confirmed]) for n in sorted(names)}
    return MethodSummary(
        best=dict(best.values) if best else {},
        val=best.score if best else None,
        metrics={n: i for n, i in intervals.items() if i is not None},
        trials=len(trials),
        seeds_diverged=sum(r.status == "diverged" for r in confirmed),
        seeds_failed=sum(r.status == "failed" for r in confirmed),
        edges=method.extendable_edges(best.values) if best else {},
        client_samples=sum(r.client_samples for r in trials),
        bits_up=_mean([r.comm.get("up_bits", 0.0) for r in confirmed]),
        bits_down=_mean([r.comm.get("down_bits", 0.0) for r in confirmed]),
        **counts,
    )


def _metric(record: TrialRecord, name: str) -> float:
    if record.status == "diverged":
        return 0.0 if name.endswith("accuracy") else math.nan
    return record.metrics.get(name, math.nan)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def mean_curve(records: Sequence[TrialRecord]) -> list[dict[str, float]]:
    """Return the mean over runs of each metric, round by round, where every run has it."""
    by_round: dict[float, list[Mapping[str, float]]] = {}
    for record in records:
        for row in record.rows:
            by_round.setdefault(row["round"], []).append(row)
    curve = []
    for round in sorted(by_round):
        rows = by_round[round]
        if len(rows) < len(records):
            continue
        shared = set.intersection(*(set(row) for row in rows))
        curve.append({name: float(np.mean([row[name] for row in rows])) for name in sorted(shared)})
    return curve
