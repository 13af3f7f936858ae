"""The runs that a claim is about, and the one number that is read from each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fltune.errors import nearest
from fltune.reproduce.claims import Claim, Reading
from fltune.search.condition import is_number
from fltune.search.config import SearchConfig
from fltune.search.lane import Lane
from fltune.search.method import Method
from fltune.search.objective import Objective, natural_mode
from fltune.search.record import TrialRecord

Cell = Mapping[str, str]
"""A label for each axis."""
BySeed = dict[int, float]
AGE = 10**9
"""Rounds that no run makes."""


@dataclass(frozen=True)
class Series:
    """One method in one cell.

    Attributes:
        name: as the search calls it.
        method: its own name.
        cell: its labels.
        rounds: of a whole run.
        every: rounds between two evaluations; the last round is always evaluated.
        timed: whether there may be a simulated clock.
        settings: the numbers that every winner sets, by dotted name.
        runs: the confirmed ones, by seed.
        lost: whether there are no runs because every config diverged in the search: then it counts
            as the worst on every seed.
        chosen: the winner's values, as a person wants to see them.
    """

    name: str
    method: str
    cell: Cell
    rounds: int
    runs: Sequence[TrialRecord] = ()
    lost: bool = False
    chosen: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    timed: bool = True
    settings: Sequence[str] = ()

    def problems(self, key: str, reading: Reading) -> list[str]:
        """Return why a number cannot be read from any run, with dotted keys; empty if it can."""
        metric = reading.metric
        if reading.take == "setting" and metric not in self.settings:
            return [
                f"{key}.metric: found {metric!r}{nearest(metric, self.settings)}; the numbers that "
                f"a search always sets for {self.name!r}: {', '.join(self.settings) or 'none'}"
            ]
        if reading.take == "sd" and self.rounds <= self.every:
            return [
                f"{key}.take: found sd, a deviation of two evaluations or more; {self.name!r} is "
                f"evaluated once: {self.rounds} rounds (rounds), every {self.every} (eval_every)"
            ]
        if metric == "clock/seconds" and not self.timed:
            return [f"{key}.metric: found {metric!r}; {self.name!r} has no clock (clock)"]
        return []


class Evidence:
    """All series of an experiment.

    Args:
        series: in the file's order.
    """

    def __init__(self, series: Iterable[Series]) -> None:
        self.series = {one.name: one for one in series}

    @classmethod
    def planned(cls, config: SearchConfig) -> Evidence:
        """Return the series that a file will have, without runs."""
        return cls(
            replace(_planned(method), settings=_settings(method, config.methods))
            for method in config.methods.values()
        )

    @classmethod
    def found(cls, lanes: Mapping[str, Lane]) -> Evidence:
        """Return the series of a search with their confirmed runs."""
        return cls(_found(lane) for lane in lanes.values())

    def unending(self) -> Evidence:
        """Return the same runs, as if none that missed its target had reached it in an age."""
        return Evidence(replace(one, rounds=AGE) for one in self.series.values())

    @property
    def axes(self) -> dict[str, list[str]]:
        """The labels of each axis, in the file's order."""
        axes: dict[str, dict[str, None]] = {}
        for one in self.series.values():
            for axis, label in one.cell.items():
                axes.setdefault(axis, {})[label] = None
        return {axis: list(labels) for axis, labels in axes.items()}

    def at(self, name: str, cell: Cell) -> Series:
        """Return a series by its whole name, or a method's in a cell.

        Raises:
            KeyError: there is none.
        """
        if name in self.series:
            return self.series[name]
        for one in self.series.values():
            if one.method == name and dict(one.cell) == dict(cell):
                return one
        raise KeyError(name)

    def cells(self, claim: Claim) -> list[dict[str, str]]:
        """Return the cells that a claim has to hold in, without the axis that it goes along."""
        if claim.of in self.series:
            return [dict(self.series[claim.of].cell)]
        found: list[dict[str, str]] = []
        for one in self.series.values():
            held = all(one.cell.get(axis) == label for axis, label in claim.where.items())
            cell = {axis: label for axis, label in one.cell.items() if axis != claim.along}
            if one.method == claim.of and held and cell not in found:
                found.append(cell)
        return found

    def labels(self, claim: Claim) -> list[str]:
        """Return the labels that a claim goes along, in order."""
        return claim.labels or self.axes.get(claim.along or "", [])

    def problems(self, key: str, claim: Claim) -> list[str]:
        """Return what a claim names that there is not, or no run has, with dotted keys."""
        axes, methods = self.axes, list({one.method: None for one in self.series.values()})
        wrong = []
        for where, name in (("of", claim.of), ("than", claim.than)):
            if name is not None and name not in self.series and name not in methods:
                known = ", ".join(methods)
                wrong.append(f"{key}.{where}: no method {name!r}{nearest(name, methods)}; {known}")
        along = {claim.along: claim.labels} if claim.along is not None else {}
        asked = [*along.items(), *((axis, [label]) for axis, label in claim.where.items())]
        for axis, labels in asked:
            where = "along" if axis == claim.along else f"where.{axis}"
            if axis not in axes:
                known = ", ".join(axes) or "none"
                wrong.append(f"{key}.{where}: no axis {axis!r}{nearest(axis, axes)}; axes: {known}")
                continue
            wrong += [
                f"{key}.{where}: no label {label!r}{nearest(label, axes[axis])}; "
                f"labels: {', '.join(axes[axis])}"
                for label in labels
                if label not in axes[axis]
            ]
        if claim.along is not None and not wrong and len(self.labels(claim)) < 2:
            wrong.append(f"{key}.along: {claim.along!r} has one label; there is nowhere to go")
        return wrong or self._gaps(key, claim)

    def _gaps(self, key: str, claim: Claim) -> list[str]:
        """Return the cells of a claim in which a method, or what is read of it, is missing."""
        names = [claim.of, *([claim.than] if claim.than else [])]
        steps = [{claim.along: x} for x in self.labels(claim)] if claim.along else [{}]
        gaps: list[str] = []
        unread: dict[str, None] = {}
        for cell, step, name in itertools.product(self.cells(claim), steps, names):
            try:
                unread |= dict.fromkeys(self.at(name, {**cell, **step}).problems(key, claim))
            except KeyError:
                where = ", ".join({**cell, **step}.values())
                gaps.append(f"{key}: there is no {name!r} at {where or 'all'}")
        none = [] if self.cells(claim) else [f"{key}: it is about no cell"]
        return gaps or list(unread) or none


def _planned(method: Method) -> Series:
    cell = {k: v for k, v in method.scenario.items() if k != "method"}
    name = method.scenario.get("method", method.name)
    one = method.first_experiment()
    timed = one.clock.build().runs or one.participation.build().asynchronous
    return Series(method.name, name, cell, one.rounds, every=one.eval_every, timed=timed)


def _settings(method: Method, methods: Mapping[str, Method]) -> list[str]:
    """Return the numbers that are in every winner's values: drawn everywhere, or taken over."""
    found = _numbers(method)
    source = methods.get(method.inherit.source) if method.inherit else None
    if source is not None and method.inherit is not None:
        found += [name for name in _numbers(source) if name in (method.inherit.keys or ())]
    return list(dict.fromkeys(found))


def _numbers(method: Method) -> list[str]:
    """Return what is drawn at every point of a method's space, and is a number."""
    space = method.space
    return [
        name
        for name, dimension in space.dimensions.items()
        if name not in space.when and all(map(is_number, dimension.values))
    ]


def _found(lane: Lane) -> Series:
    planned, chosen = _planned(lane.method), lane.chosen
    if chosen is None:
        return replace(planned, lost=bool(lane.candidates))
    return replace(planned, runs=lane.reported, chosen=lane.method.readable(chosen.values))


def read(
    series: Series, reading: Reading, seeds: Iterable[int], budget: float = math.inf
) -> BySeed:
    """Return the number of every run of a series.

    A run that diverged has the worst there is: an accuracy of 0, an infinite loss or deviation, and
    a round more than all to a target, as a run that never reaches it.

    Args:
        series: whose runs.
        reading: what is read.
        seeds: on which a series that was lost in the search counts as the worst.
        budget: bits, for ``equal_bits`` and ``equal_uplink``.
    """
    if series.lost:
        return dict.fromkeys(seeds, _worst(series, reading))
    return {run.seed: _read(run, series, reading, budget) for run in series.runs}


def _worst(series: Series, reading: Reading) -> float:
    if reading.take == "rounds":
        return series.rounds + 1.0
    rising = natural_mode(reading.metric) == "max" and reading.take != "sd"
    return 0.0 if rising else math.inf


def _read(run: TrialRecord, series: Series, reading: Reading, budget: float) -> float:
    if reading.take == "setting":
        return float(run.values[reading.metric])
    if run.status != "complete":
        return _worst(series, reading)
    if reading.take == "last":
        return _at_the_end(run, reading.metric)
    if reading.take == "rounds":
        rising = natural_mode(reading.metric) == "max"
        found = Objective(reading.metric, rising, target=reading.target).first_round(run.rows)
        return series.rounds + 1.0 if found is None else found
    if reading.take in ("equal_bits", "equal_uplink"):
        within = [row for row in run.rows if bits(row, reading) <= budget]
        return next(reversed(_values(within, reading)), math.nan)
    values = _values(run.rows, reading)
    if len(values) < (2 if reading.take == "sd" else 1):  # a metric that is logged now and then
        return math.nan
    last = values[-reading.over :]
    if reading.take == "best":
        return max(last) if natural_mode(reading.metric) == "max" else min(last)
    return float(np.mean(last) if reading.take == "mean" else np.std(last, ddof=1))


def _values(rows: Iterable[Mapping[str, float]], reading: Reading) -> list[float]:
    """Return a metric of the rows that hold it: a round without clients has no training loss."""
    return [row[reading.metric] for row in rows if reading.metric in row]


def bits(row: Mapping[str, float], reading: Reading | None = None) -> float:
    """Return what a run has sent so far, up and down; up alone for what is read at equal uplink."""
    up, down = row.get("comm/up_bits", 0.0), row.get("comm/down_bits", 0.0)
    return up if reading is not None and reading.take == "equal_uplink" else up + down


def _at_the_end(run: TrialRecord, metric: str) -> float:
    section, _, name = metric.partition("/")
    if metric == "client_samples":
        return float(run.client_samples)
    own = getattr(run, section) if section in ("comm", "participation") else {}
    return float(own.get(name, run.metrics.get(metric, math.nan)))  # totals are among the metrics
