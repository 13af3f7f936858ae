"""The outcome of a search in plain numbers: one object for the table, MLflow and ``--json``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fltune.plain import finite
from fltune.report.statistics import Comparison, Interval, compare_to, lucky
from fltune.search.edges import Edge, find_edges
from fltune.search.lane import Lane
from fltune.search.record import TRIAL, TrialRecord


@dataclass
class MethodSummary:
    """How one method did.

    Attributes:
        best: the winner's values, by dotted name; empty if no trial completed or none are searched.
        shown: the same as a person wants to see them: ties, pairs and lists, not the draws that
            they are made of.
        val: the winner's score on validation data, from the search; where nothing was to be chosen,
            its mean on fresh seeds.
        metrics: by name, the interval over confirmation seeds (``test/accuracy`` ...).
        winner: the number of its trial; None where there were no trials.
        trials, pruned, diverged, failed: counts of configs.
        seeds_diverged: confirmation runs that diverged; an accuracy counts as 0 there, a loss is
            left out.
        seeds_failed: confirmation runs that ended with an error; they count nowhere.
        edges: parameters whose winning value lies on a border of its space that can be moved, and
            which border: lowest or highest.
        beyond: for each of these, how the score moves there and the setting that widens the space.
        client_samples: samples processed by clients in all trials, confirmation apart.
        bits_up, bits_down: communication of one confirmed run, mean over those that are complete:
            one that broke off has sent less for it. None if none is.
        optimism: how much better the winner's score was in the search than its mean on fresh
            seeds, in the score's own unit: positive where the search was too optimistic, for a
            metric that is minimised as well. None without fresh seeds.
        too_optimistic: whether that is more than the spread over seeds explains, see
            :func:`fltune.report.statistics.lucky`.
        against_best: the paired comparison to the best method; None for the best itself.
        scenario: the axes' labels, where the file has scenarios.
        front: with several objectives, the configs that no other dominates: values (and as they are
            shown) and scores.
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
    winner: int | None = None
    bits_up: float | None = None
    bits_down: float | None = None
    seeds_failed: int = 0
    optimism: float | None = None
    against_best: Comparison | None = None
    scenario: dict[str, str] = field(default_factory=dict)
    front: list[dict[str, Any]] = field(default_factory=list)
    beyond: list[Edge] = field(default_factory=list)
    too_optimistic: bool = False
    shown: dict[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> str:
        """The axes and labels of its scenario; empty where the file has none."""
        return ", ".join(f"{k} {v}" for k, v in self.scenario.items() if k != "method")

    @property
    def lost_seeds(self) -> int:
        """Fresh seeds that no test loss is known of, because the winner diverged or failed.

        0 where there is an accuracy: a run that diverged counts as 0 in its mean.
        """
        return 0 if "test/accuracy" in self.metrics else self.seeds_diverged + self.seeds_failed

    @property
    def broken_off(self) -> str:
        """How many runs on fresh seeds diverged or failed, in words; empty if none did."""
        counts = {"diverged": self.seeds_diverged, "failed": self.seeds_failed}
        return ", ".join(f"{count} {how}" for how, count in counts.items() if count)

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
        objectives: all of them, where there are several; the first is the metric.
        seeds: on so many the search ran each config.
        extend: the command that adds to the search; empty where there is none to add to.
        trial_rounds: the most rounds of a trial, where they are fewer than those of the winners.
        short_of: which trials a spent budget has cost, in a sentence; empty if none.
    """

    name: str
    tracking_uri: str
    experiment: str
    metric: str
    maximize: bool
    methods: dict[str, MethodSummary] = field(default_factory=dict)
    objectives: list[str] = field(default_factory=list)
    seeds: int = 1
    extend: str = ""
    trial_rounds: int | None = None
    short_of: str = ""

    @property
    def origin(self) -> str:
        """Say where the methods' scores are from, where that is not a whole trial for all."""
        chosen = {m.trials > 0 for m in self.methods.values() if m.val is not None}
        if True not in chosen or (self.trial_rounds is None and len(chosen) == 1):
            return ""
        length = f" of at most {self.trial_rounds:,} rounds" if self.trial_rounds else ""
        other = "; over the fresh seeds where nothing was to be chosen" if len(chosen) > 1 else ""
        return f"{self.metric}: in the winner's trial{length}{other}."

    @property
    def headline(self) -> str:
        """What is tested: ``test/accuracy``, or ``test/loss`` where the task has no classes."""
        tested = [m.metrics for m in self.methods.values() if m.test is not None]
        if not tested:  # nothing is confirmed yet: as in the search
            return "test/loss" if "loss" in self.metric else "test/accuracy"
        return "test/accuracy" if "test/accuracy" in tested[0] else "test/loss"

    def ranked(self) -> list[tuple[str, MethodSummary]]:
        """Return the methods, best first: by test mean, else by validation score.

        Of losses, whose mean leaves out the seeds where a run diverged or failed, that of more
        seeds comes first: on its lucky seeds alone an unstable method may be the best.
        """

        def key(entry: tuple[str, MethodSummary]) -> tuple[bool, int, float]:
            method = entry[1]
            if method.test is not None:
                better = "test/accuracy" in method.metrics
                return False, method.lost_seeds, -method.test.mean if better else method.test.mean
            score = method.val if method.val is not None else math.inf
            higher = self.maximize and math.isfinite(score)
            return True, method.lost_seeds, -score if higher else score

        return sorted(self.methods.items(), key=key)

    def by_cell(self) -> dict[str, list[tuple[str, MethodSummary]]]:
        """Return the methods of each scenario, best first, under the labels of its axes."""
        cells: dict[str, list[tuple[str, MethodSummary]]] = {}
        for method in self.methods.values():
            cells.setdefault(method.cell, [])
        for name, method in self.ranked():
            cells[method.cell].append((name, method))
        return cells

    @property
    def ranks(self) -> dict[str, int]:
        """The methods' places in their scenarios, from 1."""
        return {
            name: rank
            for methods in self.by_cell().values()
            for rank, (name, _) in enumerate(methods, start=1)
        }

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


def summarise(lanes: Mapping[str, Lane], summary: Summary) -> Summary:
    """Fill in the methods of a summary, and compare them within each scenario."""
    for name, lane in lanes.items():
        summary.methods[name] = summarise_method(lane)
    for ranked in summary.by_cell().values():
        _compare([name for name, _ in ranked], lanes, summary)
    return summary


def _compare(ranked: Sequence[str], lanes: Mapping[str, Lane], summary: Summary) -> None:
    """Compare the methods of one scenario to its best, seed by seed, on the headline metric."""
    best = ranked[0]
    metric = "test/accuracy" if "test/accuracy" in summary.methods[best].metrics else "test/loss"
    by_seed = {
        name: {r.seed: v for r in lanes[name].reported if math.isfinite(v := _metric(r, metric))}
        for name in ranked
    }
    for name, comparison in compare_to(best, by_seed).items():
        summary.methods[name].against_best = comparison


def summarise_method(lane: Lane) -> MethodSummary:
    """Reduce the records of one method."""
    candidates = lane.tried
    best, confirmed = lane.chosen, lane.reported
    ends = Counter(c.status for c in candidates)
    names = {name for r in confirmed for name in r.metrics}
    searched = best.runs if best else []
    if any("val/accuracy" in r.metrics for r in [*confirmed, *searched]):
        # a run that diverged has no test metrics, nor others before its first evaluation: it is 0
        names |= {"test/accuracy", "val/accuracy"}
    intervals = {n: Interval.of([_metric(r, n) for r in confirmed]) for n in sorted(names)}
    runs = [r for c in candidates for r in c.runs if r.kind == TRIAL]
    whole = [r for r in confirmed if r.status == "complete"]
    fresh = [r.score for r in confirmed if r.score is not None]
    edges, optimism, val = [], None, _mean(fresh) if fresh else None
    if best and best.scores:
        edges = find_edges(lane.method, candidates, best, lane.search.maximize)
        val = best.scores[0]
        if fresh and lane.search.rounds is None:  # of a shorter trial nobody can tell
            optimism = (val - _mean(fresh)) * (1.0 if lane.search.maximize else -1.0)
    return MethodSummary(
        best=dict(best.values) if best else {},
        shown=lane.method.readable(best.values) if best else {},
        val=val,
        winner=best.number if best and candidates else None,
        metrics={n: i for n, i in intervals.items() if i is not None},
        trials=len(candidates),
        seeds_diverged=sum(r.status == "diverged" for r in confirmed),
        seeds_failed=sum(r.status == "failed" for r in confirmed),
        edges={edge.parameter: edge.side for edge in edges},
        beyond=[edge.with_trials(lane.method, lane.search) for edge in edges],
        client_samples=sum(r.client_samples for r in runs),
        bits_up=_mean([r.comm.get("up_bits", 0.0) for r in whole]) if whole else None,
        bits_down=_mean([r.comm.get("down_bits", 0.0) for r in whole]) if whole else None,
        optimism=optimism,
        too_optimistic=optimism is not None and lucky(optimism, lane.search.seeds, fresh),
        scenario=dict(lane.method.scenario),
        front=_front(lane),
        pruned=ends["pruned"],
        diverged=ends["diverged"],
        failed=ends["failed"],
    )


def _front(lane: Lane) -> list[dict[str, Any]]:
    if len(lane.judge.directions) == 1:
        return []
    shown = lane.method.readable
    return [
        {"values": c.values, "shown": shown(c.values), "scores": list(c.scores)} for c in lane.front
    ]


def _metric(record: TrialRecord, name: str) -> float:
    if record.status == "diverged":
        return 0.0 if name.endswith("accuracy") else math.nan
    return record.metrics.get(name, math.nan)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


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
