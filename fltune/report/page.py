"""The comparison as one HTML file that needs nothing else: no network, no server, no other file.

Whatever comes from a config (names of methods, values, messages) is escaped where it stands, in
HTML and in the data of the figures. A policy in the file forbids the page to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fltune import dotted
from fltune.report.compare import Report, Row, bits_text, edges_text
from fltune.report.description import outcome, searched
from fltune.report.figures import Picture, learning_curves, partition_picture, search_history
from fltune.report.front_figure import front_section, fronts
from fltune.report.parts import document, figure, table
from fltune.report.pivot import pivot_section
from fltune.report.references import Reference
from fltune.report.space_figures import importances, parallel_coordinates, slices, stability_map
from fltune.report.table import ALL_EQUAL, comparison_text, nothing_chosen, short, tested_text
from fltune.search.lane import Lane

PARTICIPATION = {
    "tau_max": "longest absence (rounds)",
    "tau_avg": "mean absence (rounds)",
    "coverage": "clients seen",
    "fairness": "largest deviation of visits from their mean",
    "count_cv": "variation of visits (cv)",
}

SAMPLES_FROM_END = 5
"""Where the client samples stand in a row of results, counted from its end."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of a page, by the section that they stand in."""

    front: list[Picture]
    curves: list[Picture]
    history: list[Picture]
    spaces: list[Picture]
    clients: list[Picture]

    @classmethod
    def of(cls, report: Report) -> Pictures:
        """Draw them."""
        front = fronts(report)
        return cls(
            [front] if front else [],
            learning_curves(report),
            [search_history(report)],
            [draw(report) for draw in (slices, stability_map, importances, parallel_coordinates)],
            [partition_picture(report)],
        )

    @property
    def all(self) -> list[Picture]:
        """Every one."""
        return [*self.front, *self.curves, *self.history, *self.spaces, *self.clients]


def as_html(report: Report, pictures: Pictures | None = None) -> str:
    """Return the page.

    Args:
        report: the comparison.
        pictures: of it, where they are drawn already.
    """
    drawn = Pictures.of(report) if pictures is None else pictures
    front = "".join(front_section(report, picture) for picture in drawn.front)
    sections = {
        "searched": ("What was searched", _searched(report)),
        "results": ("The tuned methods", pivot_section(report) + _results(report)),
        "warnings": ("What to distrust", _warnings(report.warnings)),
        **({"front": ("Several objectives", front)} if front else {}),
        "curves": ("Learning curves", "".join(map(figure, drawn.curves))),
        "search": ("The search", "".join(map(figure, drawn.history))),
        "spaces": ("The spaces", "".join(map(figure, drawn.spaces))),
        "clients": ("The clients", "".join(map(figure, drawn.clients)) + _participation(report)),
        "again": ("Run it again", _commands(report)),
        "config": ("The exact config", _config(report)),
    }
    return document(
        f"{report.summary.name}: tuned methods compared",
        "".join(f"<p>{escape(sentence)}</p>" for sentence in outcome(report)),
        sections,
        drawn.all,
        f"Made by fltune compare. Open the runs: <code>{escape(report.hint)}</code>",
        skip=("results", "the results"),
    )


def artifacts(report: Report) -> dict[str, str]:
    """Return the files that a tracking store keeps of a comparison, by path.

    ``comparison.html`` is the page; ``figures/KEY.json`` holds what plotly draws of each of its
    pictures, by view, for those who want to draw it otherwise.
    """
    drawn = Pictures.of(report)
    files = {"comparison.html": as_html(report, drawn)}
    for picture in drawn.all:
        plain = {v.label: v.figure and json.loads(v.figure.to_json()) for v in picture.views}
        files[f"figures/{picture.key}.json"] = json.dumps({"title": picture.title, "views": plain})
    return files


def _searched(report: Report) -> str:
    items = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in searched(report).items()
    )
    heads = ["method", "algorithm", "server", "space"]
    rows = [(name, _space(lane), False) for name, lane in report.lanes.items()]
    note = "Values of the first method; what differs is in the exact config below."
    label = "Each method's algorithm and space"
    spaces = table("table-spaces", label, heads, rows, texts=(0, 1, 2))
    return f"<dl>{items}</dl><p class=note>{note}</p>{spaces}"


def _space(lane: Lane) -> list[str]:
    one = lane.method.first_experiment()
    entries = lane.method.space.describe()
    space = "\n".join(f"{name}: {text}" for name, text in entries.items())
    inherited = "\n".join(f"{k} = {short(v)} (taken over)" for k, v in lane.inherited.items())
    shown = "\n".join(filter(None, [space, inherited])) or "nothing: its own values"
    return [one.algorithm.component_name, one.server.component_name, shown]


def _results(report: Report) -> str:
    heads = ["method", "rank", "winner", "best values", report.summary.metric]
    heads += [f"{report.headline} ± 95%", "difference to best"]
    if report.goal is not None:
        heads.append(report.goal.label)
    heads += ["uplink", "downlink", "client samples", "trials", "pruned, diverged, failed"]
    heads += ["winner on an edge", "optimism"]
    texts = (2, len(heads) - 3)
    tables = ""
    for number, (scenario, rows) in enumerate(report.cells.items()):
        label = f"{scenario}: ranked" if scenario else "Ranked"
        if any(row.summary.test is not None for row in rows):
            label += f" by {report.headline}, mean over fresh seeds; p of the paired t-test with "
            label += "Holm's correction; communication of one complete confirmed run"
        else:
            label += f" by {report.summary.metric} in the search"
        label += "; samples of all trials"
        against = [row.summary.against_best for row in rows]
        if any(c is not None and c.all_equal for c in against):
            label += f"; {ALL_EQUAL}"
        beside = [r for r in report.references if r.scenario == scenario]
        shown = [(row.title, _result(row), row.wins) for row in rows]
        shown += [(r.name, _reference(r, len(heads)), False) for r in beside]
        tables += table(f"table-results-{number}", label, heads, shown, texts)
        said = {r.text: r.name for r in reversed(beside)}  # once for all untuned methods
        notes = [f"{name}: {text}." for text, name in reversed(said.items())]
        tables += "".join(f"<p class=note>{escape(note)}</p>" for note in notes)
    origin = report.summary.origin
    return f"{tables}<p class=note>{escape(origin)}</p>" if origin else tables


def _reference(reference: Reference, heads: int) -> list[str]:
    """Return the cells of a row beside the methods: no rank, no difference, no search."""
    values = "\n".join(f"{k} = {short(v)}" for k, v in reference.values.items())
    known = ["reference", "-", values, "-", reference.test_text]
    cells = [*known, *["-"] * (heads - len(known) - 1)]
    cells[heads - SAMPLES_FROM_END - 1] = f"{reference.client_samples:,.0f} a run"
    return cells


def _result(row: Row) -> list[str]:
    m = row.summary
    best = "\n".join(f"{k} = {short(v)}" for k, v in m.shown.items())
    cells = [
        str(row.rank),
        "-" if m.winner is None else f"#{m.winner}",
        best or nothing_chosen(m),
        "-" if m.val is None else f"{m.val:.4f}",
        tested_text(m),
    ]
    cells.append(comparison_text(m) or "-")
    if row.reach is not None:
        cells.append(str(row.reach))
    cells += [bits_text(m.bits_up), bits_text(m.bits_down)] if m.test is not None else ["-", "-"]
    cells += [f"{m.client_samples:,}", str(m.trials), f"{m.pruned}, {m.diverged}, {m.failed}"]
    return [*cells, edges_text(m) or "-", "-" if m.optimism is None else f"{m.optimism:+.4f}"]


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return "<p>Nothing: no winner on an edge of its space, nothing failed, all is done.</p>"
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f"<ul class=warnings>{items}</ul>"


def _participation(report: Report) -> str:
    rows = []
    for row in report.rows:
        runs = [r.participation for r in report.lanes[row.name].reported if r.participation]
        cells = []
        for key in PARTICIPATION:
            values = [run[key] for run in runs if run.get(key) is not None]
            mean = sum(values) / len(values) if values else None
            cells.append("-" if mean is None else short(float(mean)))
        rows.append((row.name, cells, False))
    label = "Who took part in the confirmed runs, mean over seeds"
    return "<h3>Participation</h3>" + table(
        "table-part", label, ["method", *PARTICIPATION.values()], rows
    )


def _commands(report: Report) -> str:
    parts = [
        "<p>Each winner's run in the search, alone and with the same numbers. With another seed it "
        "is a confirmed run, whose test metrics the table has the mean of.</p>"
    ]
    for row in report.rows:
        parts.append(f"<h3>{escape(row.name)}</h3>")
        command = escape(row.command) or "no trial completed"
        parts.append(f'<pre tabindex="0" aria-label="command"><code>{command}</code></pre>')
        lane = report.lanes[row.name]
        seeds = ", ".join(f"--set seed={run.seed}" for run in lane.reported)
        if seeds:
            parts.append(f"<p class=note>Confirmed with <code>{escape(seeds)}</code></p>")
        if row.command and lane.chosen is not None:
            own = lane.method.experiment(lane.chosen.values).as_dict()
            parts.append(_listing(f"the whole config of {row.name}", own))
    return "".join(parts)


def _listing(title: str, content: Mapping[str, Any]) -> str:
    """Return a config that is folded away."""
    return _folded(title, dotted.dump_yaml(dict(content)))


def _folded(title: str, text: str) -> str:
    label = escape(title)
    return (
        f"<details><summary>{label}</summary>"
        f'<pre tabindex="0" aria-label="{label}"><code>{escape(text)}</code></pre></details>'
    )


def _config(report: Report) -> str:
    return _folded("search.yaml, as it was searched", report.config_yaml)
