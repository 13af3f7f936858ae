"""The page's pictures of what happened: learning curves, the course of the search, who holds what.

A picture has one or more views, of which the page shows one at a time: another axis, another
method. Each view says in words what it shows, for those who cannot see it and for those who would
rather read. Colours are the same for a method everywhere, and are told from light and dark paper;
text and grids get theirs from the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fltune.errors import FltuneError
from fltune.experiment import DataSection
from fltune.report.axes import Scale, counted
from fltune.report.compare import Report, Row, validation_metric
from fltune.report.table import short
from fltune.search.candidate import Candidate, rankable
from fltune.search.lane import Lane
from fltune.search.objective import natural_mode
from fltune.search.record import TrialRecord

COLOURS = ("#2b7bba", "#c96a00", "#1f9170", "#b8559a", "#7d6fd0", "#c74b4b", "#1590a8", "#8a7d35")
"""Contrast of at least 3 to white and to the dark page; told apart with colour-blind eyes."""
GREY = "#8a8a8a"
DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = {"complete": "circle", "pruned": "triangle-down", "diverged": "x", "failed": "square-open"}
"""How a trial ended is seen from its mark, not from its colour alone."""
BROKEN = "breaks a constraint"
"""What a completed trial is called that cannot win."""
MOST_BANDS = 8
"""Curves beyond which their bands would cover each other and the curves."""
LEGEND_LINES = 12
"""Pixels that a picture is higher for each curve beyond the first few."""
AXES = {
    "round": "rounds",
    "comm/up_bits": "uplink bits of a run",
    "clock/seconds": "simulated seconds",
}
MOST_PARTITIONS = 6
"""Different partitions that are drawn; a sweep over many has its own command, plot partition."""


@dataclass(frozen=True)
class View:
    """One way to look at a picture.

    Attributes:
        label: what it is called in the page's choice of views.
        text: what it shows, in words; or why there is nothing to show.
        figure: None where there is nothing to show.
    """

    label: str
    text: str
    figure: go.Figure | None = None


@dataclass(frozen=True)
class Picture:
    """A picture with its views.

    Attributes:
        key: its name in the page.
        title: its heading.
        choice: what its views differ in.
        views: at least one.
    """

    key: str
    title: str
    choice: str
    views: list[View]


def shown(text: object) -> str:
    """Return text as plotly shows it literally: it reads tags and entities in labels."""
    return escape(str(text), quote=False)


def styled(figure: go.Figure, height: int = 420, **layout: Any) -> go.Figure:
    """Give a figure the size and margins of the page; its colours come from the page."""
    return figure.update_layout(
        height=height,
        margin={"l": 60, "r": 16, "t": 24, "b": 60},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        hoverlabel={"namelength": 40},  # plotly cuts names off at 15 letters
        **layout,
    )


def learning_curves(report: Report) -> list[Picture]:
    """Return the curves of the confirmed winners, a picture per scenario and metric."""
    metrics = (validation_metric(report.search, report.lanes), "train/loss")
    titles = list(dict.fromkeys(row.title for row in report.rows))
    pictures = []
    for number, (scenario, rows) in enumerate(report.cells.items()):
        for metric in metrics:
            views = _curve_views(report, rows, metric, titles)
            where = f", {scenario}" if scenario else ""
            key = f"curves-{number}-{metric.replace('/', '-')}"
            pictures.append(Picture(key, f"{metric}{where}", "against", views))
    return pictures


def _curve_views(
    report: Report, rows: Sequence[Row], metric: str, titles: Sequence[str]
) -> list[View]:
    runs = {row.name: [r for r in report.lanes[row.name].reported if r.rows] for row in rows}
    known = {key for own in runs.values() for run in own for key in run.rows[-1]}
    if metric not in known:
        return [View("rounds", f"No confirmation run has reported {metric} so far.")]
    views = []
    for axis, label in AXES.items():
        if axis not in known:
            continue
        figure, told, ends = go.Figure(), [], []
        for row in rows:
            complete = [r for r in runs[row.name] if r.status == "complete"]
            lost = [r for r in report.lanes[row.name].reported if r.status != "complete"]
            curve = Curve.of(complete, axis, metric)
            if curve is None:
                told.append(f"{row.title} has no complete run")
                continue
            place = titles.index(row.title)
            figure.add_traces(curve_traces(curve, row.title, place, len(rows) <= MOST_BANDS))
            ends += [*curve.low, *curve.high]
            over = over_seeds(len(complete))
            told.append(f"{row.title} ends at {curve.end} {over}{left_out(lost)}")
        height = 420 + LEGEND_LINES * max(0, len(rows) - MOST_BANDS)
        styled(figure, height, xaxis_title=label, yaxis_title=shown(metric), hovermode="closest")
        if ends:
            figure.update_yaxes(type=Scale.of(ends, natural_mode(metric) == "max").kind)
        if axis == "round":
            at = [x for trace in figure.data for x in trace.x]
            figure.update_xaxes(**counted(max(at, default=0), min(at, default=0)))
        if report.goal is not None and report.goal.metric == metric:
            figure.add_hline(y=report.goal.target, line={"dash": "dash", "color": GREY})
        band = "; the band is from the lowest to the highest seed"
        text = f"Mean {metric} of the confirmed winners{band * (len(rows) <= MOST_BANDS)}. "
        views.append(View(label, f"{text}{'. '.join(told)}.", figure))
    return views


def over_seeds(count: int) -> str:
    """Say how many runs a mean is over."""
    return "over 1 seed" if count == 1 else f"over {count} seeds"


def left_out(lost: Sequence[TrialRecord]) -> str:
    """Say how many runs are no part of a mean, and why; nothing if all are."""
    counts = Counter(run.status for run in lost)
    told = " and ".join(f"{count} that {status}" for status, count in counts.items())
    return f"; {told} left out" if told else ""


@dataclass(frozen=True)
class Curve:
    """A metric over the seeds, where every seed has it.

    Attributes:
        x: mean place on the axis.
        mean, low, high: over seeds.
    """

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, runs: Sequence[TrialRecord], axis: str, metric: str) -> Curve | None:
        """Reduce the rows of some runs; None where no round has both in every run."""
        found: dict[float, list[tuple[float, float]]] = {}
        for run in runs:
            for row in run.rows:
                point = row.get(axis, math.nan), row.get(metric, math.nan)
                if all(map(math.isfinite, point)):
                    found.setdefault(row["round"], []).append(point)
        shared = [np.array(found[r]) for r in sorted(found) if len(found[r]) == len(runs)]
        if not shared:
            return None
        values = [points[:, 1] for points in shared]
        return cls(
            [float(points[:, 0].mean()) for points in shared],
            [float(v.mean()) for v in values],
            [float(v.min()) for v in values],
            [float(v.max()) for v in values],
        )

    @property
    def end(self) -> str:
        """Its last values in words."""
        return f"{self.mean[-1]:.4f} ({self.low[-1]:.4f} to {self.high[-1]:.4f})"


def curve_traces(curve: Curve, title: str, place: int, banded: bool = True) -> list[go.Scatter]:
    """Return the band and the line of a method; ``place`` gives it its colour and dashes."""
    colour = COLOURS[place % len(COLOURS)]
    dash = DASHES[(place + place // len(COLOURS)) % len(DASHES)]  # anew for 32 methods
    band = go.Scatter(
        x=[*curve.x, *reversed(curve.x)],
        y=[*curve.high, *reversed(curve.low)],
        mode="lines",
        fill="toself",
        fillcolor=_faint(colour),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=str(place),
    )
    line = go.Scatter(
        x=curve.x,
        y=curve.mean,
        name=shown(title),
        legendgroup=str(place),
        mode="lines",
        line={"color": colour, "dash": dash, "width": 2.5},
    )
    return [band, line] if banded else [line]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def search_history(report: Report) -> Picture:
    """Return the course of the search: every trial's score, and the best so far."""
    views = [_history(row, report.lanes[row.name]) for row in report.rows]
    return Picture("history", "Search history", "method", views)


def _history(row: Row, lane: Lane) -> View:
    ended, complete = lane.finished, lane.complete
    if not lane.planned:
        return View(row.name, f"{row.name} has one config: it is confirmed without a trial.")
    counts = ", ".join(f"{sum(c.status == s for c in ended)} {s}" for s in MARKS)
    if not complete:
        return View(row.name, f"No trial of {row.name} completed: {counts}.")
    kept = rankable(ended)
    better = max if lane.judge.directions[0] == "maximize" else min
    figure = go.Figure(trial_marks(ended, [c.number for c in ended], heights(lane, ended)))
    best = list(accumulate((c.scores[0] for c in kept), better))
    figure.add_trace(
        go.Scatter(
            x=[c.number for c in kept],
            y=best,
            mode="lines",
            line={"shape": "hv", "color": COLOURS[1], "width": 2},
            name="best so far",
            hoverinfo="skip",
        )
    )
    name = lane.search.objective_name
    styled(figure, xaxis_title="trial", yaxis_title=shown(name))
    figure.update_yaxes(type=score_scale(lane, ended).kind)
    figure.update_xaxes(**counted(max(c.number for c in ended)))
    first = next(c.number for c, b in zip(kept, best, strict=True) if b == best[-1])
    text = (
        f"{row.name}: {len(ended)} trials ({counts}). The best {name}, {short(best[-1])}, came "
        f"with trial {first}."
    )
    if any(c.status == "pruned" for c in ended):
        text += " A pruned trial stands at its score when it was stopped."
    if any(c.status in ("diverged", "failed") for c in ended):
        text += " Trials that diverged or failed have no score: they stand beyond the worst."
    broken = len(complete) - len(kept)
    text += f" {broken} that break a constraint are no best ones." if broken else ""
    return View(row.name, text, figure)


def _known(candidates: Sequence[Candidate]) -> list[float | None]:
    return [
        c.scores[0] if c.status in ("complete", "pruned") and c.scores else None for c in candidates
    ]


def score_scale(lane: Lane, candidates: Sequence[Candidate]) -> Scale:
    """Return the axis of the scores of some trials, of which one has a score."""
    scores = [score for score in _known(candidates) if score is not None]
    return Scale.of(scores, lane.judge.directions[0] == "maximize")


def heights(lane: Lane, candidates: Sequence[Candidate]) -> list[float]:
    """Return where trials are drawn: at their score; those without one beyond the worst score."""
    scale = score_scale(lane, candidates)
    beyond = -0.06 if lane.judge.directions[0] == "maximize" else 1.06
    bad = scale.at(beyond)
    if scale.low == scale.high:
        bad += math.copysign(0.06 * abs(scale.high) or 1.0, beyond)
    return [bad if score is None else score for score in _known(candidates)]


def trial_marks(
    candidates: Sequence[Candidate], x: Sequence[Any], y: Sequence[Any], **rest: Any
) -> list[go.Scatter]:
    """Return a trace for each way to end: a mark per trial, whose values are read on hovering.

    Args:
        candidates: ended trials.
        x, y: their places.
        rest: of each trace.
    """
    traces = []
    for status, mark in {**MARKS, BROKEN: "circle-open"}.items():
        at = [i for i, c in enumerate(candidates) if _end(c) == status]
        if not at:
            continue
        traces.append(
            go.Scatter(
                x=[x[i] for i in at],
                y=[y[i] for i in at],
                mode="markers",
                name=status,
                marker={
                    "symbol": mark,
                    "size": 10,
                    "color": COLOURS[5 * (status == "diverged")],
                    "line": {"width": 2 if mark.endswith("open") else 0},
                },
                text=[hover(candidates[i]) for i in at],
                hovertemplate="%{text}<extra></extra>",
                **rest,
            )
        )
    return traces


def _end(candidate: Candidate) -> str:
    """Return how a trial ended, and whether what it found is allowed."""
    kept = candidate.status != "complete" or candidate.feasible
    return candidate.status if kept else BROKEN


def hover(candidate: Candidate) -> str:
    """Return what is read on hovering over a trial: its number, score and values."""
    values = [f"{shown(k)} = {shown(short(v))}" for k, v in candidate.values.items()]
    score = short(candidate.scores[0]) if candidate.status == "complete" else candidate.status
    return "<br>".join([f"trial {candidate.number}: {score}", *values])


def partition_picture(report: Report) -> Picture:
    """Return who holds what, once for each different partition of the methods."""
    from fltune.pieces import load_data
    from fltune.report.partition_plot import view

    found: list[tuple[tuple[DataSection, int], list[str]]] = []
    for row in report.rows:
        method = report.lanes[row.name].method
        experiment = method.first_experiment()
        world = experiment.data, experiment.seed
        names = next((names for known, names in found if known == world), None)
        if names is None:
            found.append((world, [row.name]))
        else:
            names.append(row.name)
    views = []
    rest = len(found) - MOST_PARTITIONS
    more = f" {rest} more partitions are not drawn here." if rest > 0 else ""
    for (section, seed), names in found[:MOST_PARTITIONS]:
        label = ", ".join(names) if len(found) > 1 else "all methods"
        try:
            data = load_data(section, seed)
        except FltuneError as error:
            views.append(View(label, f"The data cannot be loaded here: {error}"))
            continue
        # a long label is cut off in the choice of views
        whose = f" Of {label}." if len(found) > 1 else ""
        views.append(view(label, section, seed, data, f"{whose}{more}"))
    return Picture("partition", "Who holds what", "methods", views)
