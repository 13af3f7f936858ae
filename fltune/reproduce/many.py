"""One experiment or all of them, one after another: run, judged, written, and told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.reproduce.catalogue import find, views_beside
from fltune.reproduce.measured import keep
from fltune.reproduce.page import HEADS, claim_rows, index, save, verdict_line, write
from fltune.reproduce.reproduction import FAILED, Outcome, attempt, reproduce
from fltune.search.ray_session import shared_ray
from fltune.search.session import InterruptedSearchError

COLOURS = {"shown": "green", "not shown": "yellow", "opposite": "red"}


def reproduce_all(
    what: str,
    spaces: Path,
    out: Path,
    mini: bool = False,
    seeds: int | None = None,
    settings: Sequence[str] = (),
    record: Path | None = None,
    console: Console | None = None,
    quiet: bool = False,
) -> tuple[bool, dict[str, Any]]:
    """Reproduce what an id names; return whether anything failed, and all results in plain values.

    The pages are written as each experiment ends, so that one that is killed loses nothing; started
    again, it goes on with the search that it was in.

    Args:
        what: a file's name, an id, or ``all``.
        spaces: the folder of the experiments.
        out: the folder of the pages.
        mini: the small variants.
        seeds: fresh seeds per winner; None: as each file says.
        settings: ``KEY=VALUE`` overrides of each file.
        record: the documentation whose page of measured results is renewed; None: none.
        console: where progress and verdicts go; silent if None.
        quiet: verdicts only.

    Raises:
        ConfigError: there is no such experiment; or there is one, and its file is wrong.
        FltuneError: it is one, and its search failed. Of several, that is an outcome.
        InterruptedSearchError: Ctrl-C, or SIGTERM.
    """
    console = console or Console(quiet=True)
    outcomes: list[Outcome] = []
    entries = find(what, spaces, mini)
    each = reproduce if len(entries) == 1 else attempt
    progress = _progress(console, quiet)
    with shared_ray():
        for entry in entries:
            try:
                outcome = each(entry, seeds=seeds, settings=settings, console=progress, quiet=quiet)
            except InterruptedSearchError:
                said = f"{entry.name} is cut off; the same command goes on with it"
                console.print(said, highlight=False, markup=False)
                raise
            outcomes.append(outcome)
            if outcome.facts:
                write(outcome, out)
            print_outcome(outcome, console)
            if record is not None:
                keep([outcome], record)
    if len(outcomes) > 1:
        save(out / "index.md", index(outcomes))
    beside = views_beside(entries[0], spaces) if len(entries) == 1 else []
    if beside:
        console.print(f"of the same experiment: {', '.join(beside)}", highlight=False, markup=False)
    if len(outcomes) > 1 or outcomes[0].facts:
        console.print(f"pages in {out}", highlight=False, markup=False)
    failed = any(o.status == FAILED for o in outcomes)
    return failed, {"experiments": [o.as_json() for o in outcomes]}


def _progress(console: Console, quiet: bool) -> Console:
    """Return where a search may print: its own table of results is no verdict."""
    return Console(quiet=True) if quiet else console


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Print the verdicts on an experiment's claims."""
    title = f"{outcome.entry.name}: {verdict_line(outcome)}"
    if not outcome.judgements:
        console.print(title, highlight=False, markup=False)
        return
    shown = Table(title=escape(title), title_justify="left", show_lines=True)
    for head in HEADS:
        shown.add_column(head, overflow="fold")
    for row in claim_rows(outcome.judgements):
        colour = COLOURS[row[-1]]
        shown.add_row(*map(escape, row[:-1]), f"[{colour}]{row[-1]}[/{colour}]")
    console.print(shown)
    for one in outcome.numbers:
        printed = Table(title=escape(f"{one.title}, ours (theirs)"), title_justify="left")
        for head in one.heads:
            printed.add_column(escape(head), overflow="fold")
        for cells in one.rows:
            printed.add_row(*map(escape, cells))
        console.print(printed)
