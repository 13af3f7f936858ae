"""The pages of an experiment, in Markdown and HTML, and the index of many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from fltune.errors import FltuneError
from fltune.report.markdown import markdown_table
from fltune.report.parts import document, figure, table
from fltune.reproduce import numbers
from fltune.reproduce.judge import Judgement, worst
from fltune.reproduce.reproduction import JUDGED, Outcome

HEADS = ("claim", "statistic", "must be", "ours", "theirs", "verdict")
NOTE = (
    "Ours is the mean over the seeds with its 95% interval, paired by seed. A claim is shown if "
    "the whole interval is where it says, opposite if the whole interval is on the other side of "
    "no effect, and not shown otherwise; one seed of what is trained shows nothing, nor do several "
    "that have the same number, unless the claim is that very number. A run that "
    "diverged counts as the worst there is: an accuracy of 0, an infinite loss, a target never "
    "reached. So a claim can be shown because the other side diverged; the note below the table "
    "then says so. A number with ≤ or ≥ is of runs that never reached a target, which counts as a "
    "round more than they made."
)


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write an experiment's ``.md``, ``.html`` and ``.json``; return where they are.

    Raises:
        FltuneError: the folder cannot be written.
    """
    name = outcome.entry.name
    texts = {
        "md": as_markdown(outcome),
        "html": as_html(outcome),
        "json": json.dumps(outcome.as_json(), indent=1, allow_nan=False) + "\n",
    }
    return [save(folder / f"{name}.{ending}", text) for ending, text in texts.items()]


def save(path: Path, text: str) -> Path:
    """Write a file, and the folders above it.

    Raises:
        FltuneError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FltuneError(f"{path} cannot be written: {error.strerror}") from error
    return path


def claim_rows(judgements: Iterable[Judgement]) -> list[list[str]]:
    """Return a row for each claim and cell: words, statistic, threshold, ours, theirs, verdict."""
    return [
        [
            j.says if i == 0 else "",
            f"{j.statistic} ({f.cell})" if f.cell else j.statistic,
            j.threshold,
            f.text,
            (j.theirs or "-") if i == 0 else "",
            f.verdict,
        ]
        for j in judgements
        for i, f in enumerate(j.findings)
    ]


def verdict_line(outcome: Outcome) -> str:
    """Say in a line what became of an experiment."""
    if outcome.status != JUDGED:
        return f"{outcome.status}: {outcome.reason}"
    verdicts = [j.verdict for j in outcome.judgements]
    counts = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
    return f"{len(verdicts)} claims: {', '.join(counts)}" if verdicts else "no claims"


def facts_line(outcome: Outcome) -> str:
    """Say in a line how it was run."""
    f = outcome.facts
    if not f:
        return outcome.reason
    counted = ((f["seeds"], "seed"), (f["runs"], "run"))
    work = "".join(f"{n} {name}{'s' * (n > 1)}, " for n, name in counted if n)
    commit = f", commit {f['commit']}" if f["commit"] else ""
    seconds = f"{f['wall_seconds']:,.0f} s ({f['core_seconds']:,.0f} core seconds)"
    return f"{work}{seconds} on {f['machine']}, {f['date']}, fltune {f['version']}{commit}."


def as_markdown(outcome: Outcome) -> str:
    """Return the Markdown page."""
    entry = outcome.entry
    lines = [f"# {entry.name}", "", f"{entry.paper}: {entry.shows}.", ""]
    if outcome.facts:
        lines += [f"    {outcome.facts['command']}", ""]
    lines += [facts_line(outcome), ""]
    if outcome.reason and outcome.facts:
        lines += [outcome.reason, ""]
    if outcome.judgements:
        rows = claim_rows(outcome.judgements)
        lines += ["## Claims", "", *markdown_table(HEADS, rows), "", NOTE, ""]
        lines += [f"{j.claim}: {j.note}.\n" for j in outcome.judgements if j.note]
    if outcome.numbers:
        lines += ["## Numbers", "", *numbers_lines([asdict(t) for t in outcome.numbers])]
    if outcome.pictures:
        lines += ["## Figure", "", f"Drawn in [{entry.name}.html]({entry.name}.html).", ""]
        lines += [f"- {p.title}: {v.text}" for p in outcome.pictures for v in p.views]
        lines.append("")
    if outcome.rows:
        lines += ["## Results", "", *markdown_table(outcome.heads, outcome.rows), ""]
    return "\n".join(lines)


def numbers_lines(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of printed tables with ours in them: title, heads and rows of each."""
    lines = []
    for one in tables:
        lines += [f"{one['title']}.", "", *markdown_table(one["heads"], one["rows"]), ""]
    return [*lines, numbers.NOTE, ""] if lines else []


def as_html(outcome: Outcome) -> str:
    """Return the HTML page, one file with its figures."""
    entry = outcome.entry
    sections = {"claims": ("Claims", _claims(outcome))}
    if outcome.numbers:
        sections["numbers"] = (
            "Numbers",
            "".join(map(_numbers, range(len(outcome.numbers)), outcome.numbers)),
        )
    if outcome.pictures:
        sections["figure"] = ("Figure", "".join(map(figure, outcome.pictures)))
    if outcome.rows:
        rows = [(row[0], list(row[1:]), False) for row in outcome.rows]
        shown = table("table-results", "Results", list(outcome.heads), rows, texts=(0,))
        sections["results"] = ("Results", shown)
    lead = f"<p>{escape(entry.paper)}: {escape(entry.shows)}.</p>"
    lead += f"<p class=note>{escape(facts_line(outcome))}</p>"
    if outcome.facts:
        lead += f"<pre><code>{escape(outcome.facts['command'])}</code></pre>"
    return document(
        f"{entry.name}, reproduced",
        lead,
        sections,
        outcome.pictures,
        "Made by fltune reproduce.",
        skip=("claims", "the claims"),
    )


def _claims(outcome: Outcome) -> str:
    said = f"<p>{escape(verdict_line(outcome))}.</p>"
    if not outcome.judgements:
        return said
    rows = [(row[0], row[1:], row[-1] == "shown") for row in claim_rows(outcome.judgements)]
    notes = [f"<p>{escape(f'{j.claim}: {j.note}')}.</p>" for j in outcome.judgements if j.note]
    shown = table("table-claims", NOTE, list(HEADS), rows, texts=(0, 1, 2, 3, 4))
    return said + shown + "".join(notes)


def _numbers(place: int, one: numbers.NumbersTable) -> str:
    rows = [(row[0], list(row[1:]), False) for row in one.rows]
    label = f"{one.title}. {numbers.NOTE}"
    return table(
        f"table-numbers-{place}", label, list(one.heads), rows, texts=range(len(one.heads))
    )


def index(outcomes: Sequence[Outcome]) -> str:
    """Return the Markdown index of several experiments."""
    rows = [
        [
            f"[{o.entry.name}]({o.entry.name}.md)" if o.facts else o.entry.name,
            o.entry.paper,
            worst(j.verdict for j in o.judgements) if o.judgements else o.status,
            verdict_line(o),
            f"{o.facts['wall_seconds']:,.0f} s" if o.facts else "-",
        ]
        for o in outcomes
    ]
    heads = ("experiment", "paper", "worst verdict", "outcome", "time")
    return "\n".join(["# Reproductions", "", *markdown_table(heads, rows), ""])
