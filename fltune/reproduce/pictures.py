"""The figure of an experiment as its paper draws it: the same axes, a line for each curve there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from fltune.report.figures import (
    Curve,
    Picture,
    View,
    curve_traces,
    left_out,
    over_seeds,
    shown,
    styled,
)
from fltune.reproduce.claims import FigureSection
from fltune.reproduce.readings import Evidence, Series, bits
from fltune.search.record import TrialRecord

TITLES = {
    "round": "round",
    "communication": "bits sent, up and down",
    "client_samples": "samples processed by clients",
    "clock/seconds": "simulated seconds",
}


def draw(evidence: Evidence, section: FigureSection) -> list[Picture]:
    """Return a picture for each metric and panel.

    Papers draw test accuracy by round; test data is touched once here, by the last model, so the
    curves are of the validation data.
    """
    pictures: list[Picture] = []
    for panel, series in _panels(evidence, section).items():
        for metric in section.y:
            key = f"figure-{len(pictures)}"
            where = f", {panel}" if panel else ""
            view = _view(series, metric, section)
            pictures.append(Picture(key, f"{metric}{where}", "axis", [view]))
    return pictures


def _panels(evidence: Evidence, section: FigureSection) -> dict[str, list[Series]]:
    panels: dict[str, list[Series]] = {}
    for one in evidence.series.values():
        if any(one.cell.get(axis) != label for axis, label in section.where.items()):
            continue
        label = one.method if section.panels == "method" else one.cell.get(section.panels or "", "")
        panels.setdefault(label, []).append(one)
    return panels


def _view(series: Sequence[Series], metric: str, section: FigureSection) -> View:
    figure, told = go.Figure(), []
    for place, one in enumerate(series):
        name = _line_name(one, section, [s.method for s in series])
        complete = [_with_bits(r, one, section) for r in one.runs if r.status == "complete"]
        curve = Curve.of(complete, section.x, metric)
        if curve is None:
            told.append(f"{name} has no complete run")
            continue
        figure.add_traces(curve_traces(curve, name, place))
        lost = left_out([r for r in one.runs if r.status != "complete"])
        told.append(f"{name} ends at {curve.end} {over_seeds(len(complete))}{lost}")
    styled(figure, xaxis_title=TITLES[section.x], yaxis_title=shown(metric), hovermode="closest")
    if "x" in section.log:
        figure.update_xaxes(type="log")
    if "y" in section.log:
        figure.update_yaxes(type="log")
    text = f"Mean {metric} of the confirmed runs; the band is from the lowest to the highest seed. "
    return View(TITLES[section.x], f"{text}{'. '.join(told)}.", figure)


def _line_name(one: Series, section: FigureSection, methods: Sequence[str]) -> str:
    """Return what tells a line from the others of its panel."""
    cell = [label for axis, label in one.cell.items() if axis != section.panels]
    method = [one.method] if len(set(methods)) > 1 or not cell else []
    return ", ".join([*method, *cell])


def _with_bits(run: TrialRecord, one: Series, section: FigureSection) -> TrialRecord:
    first = 0 if section.last is None else one.rounds - section.last
    rows = [{**row, "communication": bits(row)} for row in run.rows if row["round"] > first]
    return replace(run, rows=rows)
