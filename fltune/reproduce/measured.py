"""The page of measured reproductions in the documentation, written from results and nothing else.

Each result is the JSON of one ``fltune reproduce``, kept under ``measured/reproductions`` beside
the page; running an experiment again replaces its result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fltune.report.markdown import markdown_table
from fltune.reproduce.catalogue import names
from fltune.reproduce.page import NOTE, numbers_lines, save
from fltune.reproduce.reproduction import NOT_RUN, Outcome

RESULTS = Path("measured") / "reproductions"
PAGE = "reproductions.md"
HEADS = ("claim", "must be", "ours", "theirs", "verdict")
OVERVIEW = ("experiment", "paper", "run as", "claims")
SMALL = "mini-"
CUT = "Cut: the line above the command says what the paper shows, its `--set` what was run instead."


def keep(outcomes: Iterable[Outcome], docs: Path) -> Path:
    """Keep the results of some experiments, and write the page anew from all there are.

    Args:
        outcomes: those that were not run are passed over.
        docs: the folder of the documentation.

    Raises:
        FltuneError: it cannot be written.
    """
    for outcome in outcomes:
        if outcome.status != NOT_RUN and outcome.facts:
            text = json.dumps(outcome.as_json(), indent=1, allow_nan=False) + "\n"
            save(docs / RESULTS / f"{outcome.entry.name}.json", text)
    return save(docs / PAGE, render(docs))


def render(docs: Path) -> str:
    """Return the page for the results in a folder.

    Args:
        docs: the folder of the documentation. ``search_spaces`` beside it says what is not run yet;
            without it nothing is said of that.
    """
    paths = sorted((docs / RESULTS).glob("*.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    lines = [
        "# Reproductions",
        "",
        "What the papers claim, run again and judged by code. Written by",
        "",
        "    python -m fltune reproduce ID --record docs",
        "",
        f"from measured results only. {NOTE} Theirs is what the paper prints; most print curves.",
        "",
        "Small variants (`mini-...`) keep a claim on data, models and rounds that two cores can "
        "afford: orderings are compared, never levels. A file of a paper may be cut as well: then "
        "each `--set` of the command below its heading says what differs from the paper, and a "
        "verdict on a cut run says nothing about the full one. Run as printed is what has no "
        "`--set`: the file as it is, with what the paper leaves open chosen by us, though on fewer "
        "seeds where the command says so.",
        "",
        *_progress(results, docs.resolve().parent / "search_spaces"),
        "## Overview",
        "",
        *markdown_table(OVERVIEW, map(_overview, results)),
        "",
    ]
    for result in results:
        lines += _section(result)
    return "\n".join(lines)


def _progress(results: Iterable[Mapping[str, Any]], spaces: Path) -> list[str]:
    """Return the lines on how much has been run of what there is."""
    run = {result["id"] for result in results}
    papers, minis = (names(spaces, mini) for mini in (False, True))
    if not papers or not minis:
        return []
    return [
        f"Run so far, whole or cut: {len(run & papers)} of the {len(papers)} files of the papers, "
        f"and {len(run & minis)} of the {len(minis)} small variants.",
        "",
    ]


def _overview(result: Mapping[str, Any]) -> list[str]:
    verdicts = [claim["verdict"] for claim in result["claims"]]
    counts = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
    link = f"[{result['id']}](#{result['id']})"
    return [link, result["paper"], _run_as(result), ", ".join(counts) or "none"]


def _run_as(result: Mapping[str, Any]) -> str:
    """Say how much of its experiment a result is of."""
    said = []
    if result["id"].startswith(SMALL):
        said.append("small variant")
    if not result["runs"]:
        said.append("computed")
    if _is_cut(result):
        said.append("cut: see its command")
    return ", ".join(said) or "as printed"


def _is_cut(result: Mapping[str, Any]) -> bool:
    return " --set " in result["command"]


def _section(result: Mapping[str, Any]) -> list[str]:
    commit = f", commit {result['commit']}" if result["commit"] else ""
    runs = f"{result['runs']} runs, " if result["runs"] else ""
    rows = [
        [
            f"{claim['says']}. {claim['statistic']}",
            claim["threshold"],
            "<br>".join(claim["ours"]),
            claim["theirs"] or "-",
            claim["verdict"],
        ]
        for claim in result["claims"]
    ]
    return [
        f"## {result['id']}",
        "",
        f"{result['paper']}: {result['shows']}.",
        "",
        f"    {result['command']}",
        "",
        *([CUT, ""] if _is_cut(result) else ()),
        f"{result['date']}, {result['machine']}, {runs}{result['wall_seconds']:,.0f} s "
        f"({result['core_seconds']:,.0f} core seconds), fltune {result['version']}{commit}.",
        "",
        *markdown_table(HEADS, rows),
        "",
        *numbers_lines(result.get("numbers", ())),
        *(f"{c['claim']}: {c['note']}.\n" for c in result["claims"] if c.get("note")),
    ]
