"""The comparison as one HTML file that needs nothing else: no network, no server, no other file.

Whatever comes from a config (names of methods, values, messages) is escaped where it stands, in
HTML and in the data of the figures. A policy in the file forbids the page to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from plotly.offline import get_plotlyjs

from fltune.report.compare import Report, Row, bits_text, edges_text
from fltune.report.figures import (
    Picture,
    View,
    learning_curves,
    partition_picture,
    search_history,
)
from fltune.report.page_style import SCRIPT, STYLE, TEMPLATES
from fltune.report.space_figures import importances, parallel_coordinates, slices, stability_map
from fltune.report.table import comparison_text, interval_text, short
from fltune.search.lane import Lane

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""What the page may do: nothing but what stands in it; the network is out of reach."""

LONG = 40
"""Letters from which a cell's line is broken."""
PARTICIPATION = {
    "tau_max": "longest absence (rounds)",
    "tau_avg": "mean absence (rounds)",
    "coverage": "clients seen",
    "fairness": "largest deviation of visits from their mean",
    "count_cv": "variation of visits (cv)",
}


def as_html(report: Report) -> str:
    """Return the page."""
    curves, history = learning_curves(report), search_history(report)
    space = [slices(report), stability_map(report), importances(report)]
    space.append(parallel_coordinates(report))
    partition = partition_picture(report)
    sections = {
        "searched": ("What was searched", _searched(report)),
        "results": ("The tuned methods", _results(report)),
        "warnings": ("What to distrust", _warnings(report.warnings)),
        "curves": ("Learning curves", "".join(map(_figure, curves))),
        "search": ("The search", _figure(history)),
        "spaces": ("The spaces", "".join(map(_figure, space))),
        "clients": ("The clients", _figure(partition) + _participation(report)),
        "again": ("Run it again", _commands(report)),
        "config": ("The exact config", _config(report)),
    }
    links = "".join(f'<li><a href="#{k}">{escape(t)}</a></li>' for k, (t, _) in sections.items())
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{inner}</section>'
        for key, (title, inner) in sections.items()
    )
    name = escape(report.summary.name)
    pictures = [*curves, history, *space, partition]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: tuned methods compared</title><style>{STYLE}</style>"
        f"<noscript><style>[data-view][hidden] {{ display: block !important; }} "
        f".plot, .controls {{ display: none; }}</style></noscript></head>"
        f'<body><a class="skip" href="#results">Skip to the results</a>'
        f"<header><h1>{name}: tuned methods compared</h1>{_lead(report)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main>{body}</main>'
        f"<footer><p class=note>Made by fltune compare. Open the runs: "
        f"<code>{escape(report.hint)}</code></p></footer>"
        f"{_data('figures', {p.key: list(map(_plain, p.views)) for p in pictures})}"
        f"{_data('templates', TEMPLATES)}"
        f"<script>{get_plotlyjs()}</script><script>{SCRIPT}</script></body></html>\n"
    )


def _lead(report: Report) -> str:
    """Say the outcome in a sentence per scenario."""
    sentences = []
    for scenario, rows in report.cells.items():
        best = rows[0]
        where = f"{scenario}: " if scenario else ""
        if best.summary.test is None:
            sentences.append(f"{where}no method is confirmed so far.")
            continue
        seeds = best.summary.test.seeds
        sentences.append(
            f"{where}{best.title} is best of {len(rows)}, with {report.headline} "
            f"{interval_text(best.summary.test)} over {seeds} fresh seeds."
        )
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _plain(view: View) -> Any:
    """Return what plotly draws; None where there is nothing to draw."""
    if view.figure is None:
        return None
    figure = json.loads(view.figure.to_json())
    figure["layout"].pop("template", None)  # the page has one for each kind of paper
    return {"data": figure["data"], "layout": figure["layout"]}


def _data(key: str, value: Any) -> str:
    """Return an element that holds JSON; nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{key}">{text}</script>'


def _figure(picture: Picture) -> str:
    key = escape(picture.key)
    controls = ""
    if len(picture.views) > 1:
        options = "".join(
            f'<option value="{i}">{escape(view.label)}</option>'
            for i, view in enumerate(picture.views)
        )
        controls = (
            f'<p class=controls><label>{escape(picture.choice)}: <select autocomplete="off">'
            f"{options}</select></label></p>"
        )
    texts = "".join(
        f'<p data-view="{i}"{" hidden" if i else ""}>{escape(view.text)}</p>'
        for i, view in enumerate(picture.views)
    )
    label = escape(picture.views[0].text)
    return (
        f'<h3 id="{key}-title">{escape(picture.title)}</h3>'
        f'<figure id="{key}" aria-labelledby="{key}-title">{controls}'
        f'<div class="plot" role="img" aria-label="{label}"></div>'
        f"<figcaption>{texts}</figcaption></figure>"
    )


def _table(
    key: str,
    label: str,
    heads: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str], bool]],
    texts: Sequence[int] = (),
) -> str:
    """Return a table that scrolls sideways where it is too wide.

    Args:
        key: its name in the page.
        label: what it holds; stands above it, so that it does not scroll away.
        heads: of the columns; the first one's cells are the rows' heads.
        rows: head, cells, and whether the row stands out.
        texts: positions of cells that hold text.
    """
    columns = "".join(
        f'<th scope="col"{" class=text" if i == 0 or i - 1 in texts else ""}>{escape(head)}</th>'
        for i, head in enumerate(heads)
    )
    body = ""
    for head, cells, best in rows:
        inner = "".join(_cell(cell, i in texts) for i, cell in enumerate(cells))
        body += (
            f'<tr{" class=best" if best else ""}><th scope="row">{escape(head)}</th>{inner}</tr>'
        )
    return (
        f'<p class=note id="{key}">{escape(label)}</p>'
        f'<div class=scroll role="region" tabindex="0" aria-labelledby="{key}">'
        f'<table aria-labelledby="{key}"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str, words: bool) -> str:
    """Return a cell: a number, or text, whose lines are broken where they are long."""
    kind = ""
    if words:
        long = max(map(len, text.split("\n"))) > LONG
        kind = ' class="text wrap"' if long else ' class="text"'
    return f"<td{kind}>{_lines(text)}</td>"


def _lines(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))


def _searched(report: Report) -> str:
    first = next(iter(report.lanes.values()))
    one = first.method.experiment(first.method.first_values())
    search, goal = report.search, report.search.goals[0]
    seeds = "1 seed" if search.seeds == 1 else f"{search.seeds} seeds"
    many = f", mean of the last {goal.average_last} evaluations" if goal.average_last > 1 else ""
    at_best = ", at its best" if goal.best else ""
    told = {
        "data": f"{one.data.component_name}, {one.data.clients} clients, partition "
        f"{one.data.partition.component_name}",
        "model": one.model.component_name,
        "participation": one.participation.component_name,
        "rounds": f"{one.rounds}",
        "chosen by": f"{search.objective_name}{many}{at_best}",
        "sampler": f"{search.sampler}, {search.trials} trials per method, each on {seeds}",
        "early stopping": search.scheduler,
        "confirmation": f"{search.confirm_seeds} fresh seeds, on test data",
    }
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in told.items())
    heads = ["method", "algorithm", "server", "space"]
    rows = [(name, _space(lane), False) for name, lane in report.lanes.items()]
    note = "Values of the first method; what differs is in the exact config below."
    table = _table(
        "table-spaces", "Each method's algorithm and space", heads, rows, texts=(0, 1, 2)
    )
    return f"<dl>{items}</dl><p class=note>{note}</p>{table}"


def _space(lane: Lane) -> list[str]:
    one = lane.method.experiment(lane.method.first_values())
    entries = lane.method.space.describe()
    space = "\n".join(f"{name}: {text}" for name, text in entries.items())
    inherited = "\n".join(f"{k} = {short(v)} (taken over)" for k, v in lane.inherited.items())
    shown = "\n".join(filter(None, [space, inherited])) or "nothing: its own values"
    return [one.algorithm.component_name, one.server.component_name, shown]


def _results(report: Report) -> str:
    heads = ["method", "rank", "best values", report.summary.metric, f"{report.headline} ± 95%"]
    heads += ["difference to best"]
    if report.goal is not None:
        heads.append(report.goal.label)
    heads += ["uplink", "downlink", "client samples", "trials", "pruned, diverged, failed"]
    heads += ["winner on an edge", "optimism"]
    texts = (1, len(heads) - 3)
    tables = ""
    for number, (scenario, rows) in enumerate(report.cells.items()):
        label = f"{scenario}: ranked" if scenario else "Ranked"
        label += (
            f" by {report.headline}, mean over fresh seeds; p of the paired t-test with Holm's "
        )
        label += "correction; communication of one confirmed run; samples of all trials"
        shown = [(row.title, _result(row), row.rank == 1) for row in rows]
        tables += _table(f"table-results-{number}", label, heads, shown, texts)
    return tables


def _result(row: Row) -> list[str]:
    m = row.summary
    best = "\n".join(f"{k} = {short(v)}" for k, v in m.best.items()) or "no trial completed"
    cells = [str(row.rank), best, "-" if m.val is None else f"{m.val:.4f}", interval_text(m.test)]
    cells.append(comparison_text(m.against_best) or "-")
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
    return "<h3>Participation</h3>" + _table(
        "table-part", label, ["method", *PARTICIPATION.values()], rows
    )


def _commands(report: Report) -> str:
    parts = ["<p>Each winner's run in the search, alone and with the same numbers:</p>"]
    for row in report.rows:
        parts.append(f"<h3>{escape(row.name)}</h3>")
        command = escape(row.command) or "no trial completed"
        parts.append(f'<pre tabindex="0" aria-label="command"><code>{command}</code></pre>')
    return "".join(parts)


def _config(report: Report) -> str:
    return (
        f"<details><summary>search.yaml, as it was searched</summary>"
        f'<pre tabindex="0" aria-label="search.yaml"><code>{escape(report.config_yaml)}</code>'
        f"</pre></details>"
    )
