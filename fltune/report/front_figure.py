"""The page's picture of several objectives: every trial's scores, and what no other trial beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from fltune.report.axes import Scale
from fltune.report.compare import Report, Row
from fltune.report.figures import COLOURS, Picture, View, shown, styled, trial_marks
from fltune.report.parts import figure, table
from fltune.report.table import short
from fltune.search.candidate import Candidate
from fltune.search.lane import Lane


def fronts(report: Report) -> Picture | None:
    """Return the trials over the first two objectives; None for a search with one objective."""
    if not report.summary.objectives:
        return None
    views = [_front(row, report.lanes[row.name]) for row in report.rows]
    return Picture("front", "What no other trial beats", "method", views)


def _front(row: Row, lane: Lane) -> View:
    ended = [c for c in lane.tried if c.status in ("complete", "pruned") and c.scores]
    if not lane.front:
        return View(row.name, f"{row.name} has no completed trial.")
    labels = [goal.label for goal in lane.search.goals]
    marks = trial_marks(ended, _scores(ended, 0), _scores(ended, 1))
    drawn = go.Figure(marks)
    best = sorted(lane.front, key=lambda c: c.scores)
    drawn.add_trace(
        go.Scatter(
            x=_scores(best, 0),
            y=_scores(best, 1),
            mode="lines+markers",
            name="Pareto front",
            line={"color": COLOURS[1], "dash": "dot", "width": 2},
            marker={"symbol": "circle-open", "size": 16, "line": {"width": 2}},
            hoverinfo="skip",
        )
    )
    lost = sum(c.status == "diverged" for c in lane.tried)
    text = f"{row.name}: {len(ended)} trials by {labels[0]} and {labels[1]}. No other trial is at "
    ringed = "one that is ringed" if len(best) == 1 else f"{len(best)} that are ringed and joined"
    text += f"least as good in all objectives as the {ringed}"
    text += f"; {lost} that diverged are left out" if lost else ""
    broken = sum(not c.feasible for c in ended)
    text += f"; {broken} that break a constraint cannot be among them (open)." if broken else "."
    directions = lane.judge.directions[:2]
    ways = [_way(d) for d in directions]
    x, y = (
        Scale.of(_scores(ended, place), direction == "maximize").kind
        for place, direction in enumerate(directions)
    )
    styled(
        drawn,
        xaxis_title=shown(f"{labels[0]} ({ways[0]})"),
        yaxis_title=shown(f"{labels[1]} ({ways[1]})"),
        xaxis_type=x,
        yaxis_type=y,
    )
    return View(row.name, text, drawn)


def _scores(candidates: Sequence[Candidate], place: int) -> list[float]:
    return [c.scores[place] for c in candidates]


def _way(direction: str) -> str:
    return "more is better" if direction == "maximize" else "less is better"


def front_section(report: Report, picture: Picture) -> str:
    """Return the picture and the configs on the front, with their values, as a table."""
    rows = [
        (row.name, [str(candidate.number), *map(short, point["scores"]), _values(point)], False)
        for row in report.rows
        for candidate, point in zip(report.lanes[row.name].front, row.summary.front, strict=True)
    ]
    heads = ["method", "trial", *report.summary.objectives, "values"]
    label = "The Pareto front of each method, on validation data; the first objective ranks it"
    ways = [
        f"{goal.label}: {_way(way)}"
        for goal, way in zip(
            report.search.goals,
            next(iter(report.lanes.values())).judge.directions,
            strict=True,
        )
    ]
    note = f"<p class=note>{escape('; '.join(ways))}.</p>"
    return figure(picture) + note + table("table-front", label, heads, rows, (len(heads) - 2,))


def _values(point: Mapping[str, Any]) -> str:
    """Return the values of a point as a person wants to see them, a line each."""
    return "\n".join(f"{key} = {short(value)}" for key, value in point["shown"].items())
