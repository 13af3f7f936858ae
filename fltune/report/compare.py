"""The methods of a search side by side: what the table, the files and the page are made from.

All of it comes from the search's folder, so a search that was interrupted, or that is still under
way, is compared as far as it has come, and what is missing is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune import dotted
from fltune.errors import ConfigError
from fltune.plain import finite
from fltune.report.explain import alone
from fltune.report.references import Reference
from fltune.report.summary import MethodSummary, Summary
from fltune.report.table import (
    own_name,
    print_summary,
    short,
    values_text,
    warnings_of,
)
from fltune.search.lane import Lane
from fltune.search.objective import Objective, natural_mode
from fltune.search.record import TrialRecord
from fltune.search.settings import SearchSettings
from fltune.tracking import redact


@dataclass(frozen=True)
class Reach:
    """When the confirmation runs of a method first reached a target.

    Attributes:
        rounds: the first evaluated round that did, mean over the seeds that did; None if none did.
        reached: how many seeds did. A run that diverged or failed has reached nothing.
        seeds: how many runs there are.
    """

    rounds: float | None
    reached: int
    seeds: int

    @classmethod
    def of(cls, runs: Sequence[TrialRecord], goal: Objective) -> Reach:
        """Look through the rows of some runs."""
        found = [goal.first_round(run.rows) for run in runs if run.status == "complete"]
        rounds = [r for r in found if r is not None]
        return cls(float(np.mean(rounds)) if rounds else None, len(rounds), len(runs))

    def __str__(self) -> str:
        if not self.seeds:
            return "-"
        if self.rounds is None:
            return "not reached"
        missed = self.seeds - self.reached
        return f"{self.rounds:.4g}" + (f" ({missed} of {self.seeds} not)" if missed else "")


@dataclass(frozen=True)
class Row:
    """One method in the comparison.

    Attributes:
        name: as the search calls it.
        title: the method's own name, without its scenario.
        scenario: its cell, such as ``alpha harsh``; empty where there are no scenarios.
        rank: in its cell, from 1.
        summary: its numbers.
        reach: rounds to the target; None where there is no target.
        missing: what the search still lacks of it; empty if nothing.
        command: what runs its best config alone; empty if there is none.
    """

    name: str
    title: str
    scenario: str
    rank: int
    summary: MethodSummary
    reach: Reach | None
    missing: str
    command: str

    @property
    def wins(self) -> bool:
        """Whether it is to be marked as the best: confirmed, and on no seed without a result."""
        return self.rank == 1 and self.summary.test is not None and not self.summary.lost_seeds


@dataclass(frozen=True)
class Report:
    """A search, compared.

    Attributes:
        summary: all numbers, as the search itself reports them.
        rows: the methods, cell after cell, best first in each.
        lanes: the methods' work, by name.
        search: budget, and how winners were chosen.
        goal: the target; None if none was asked for.
        config_yaml: the frozen config, without the passwords of its store.
        hint: the command that opens the MLflow UI.
        warnings: what to distrust, and what an interrupted search lacks, a sentence each.
        references: rows beside the methods, without rank or test.
        resume: the command that goes on with the search; empty if nothing is missing.
    """

    summary: Summary
    rows: list[Row]
    lanes: Mapping[str, Lane]
    search: SearchSettings
    goal: Objective | None
    config_yaml: str
    hint: str
    warnings: list[str] = field(default_factory=list)
    references: Sequence[Reference] = ()
    resume: str = ""

    @property
    def cells(self) -> dict[str, list[Row]]:
        """The rows of each scenario, by its label."""
        cells: dict[str, list[Row]] = {}
        for row in self.rows:
            cells.setdefault(row.scenario, []).append(row)
        return cells

    @property
    def headline(self) -> str:
        """What is tested: ``test/accuracy``, or ``test/loss`` where the task has no classes."""
        return self.summary.headline

    def as_json(self) -> dict[str, Any]:
        """Return plain values: the search's own object, and what the comparison adds."""
        plain = self.summary.as_json()
        plain["target"] = None if self.goal is None else self.goal.label
        plain["references"] = finite([reference.as_json() for reference in self.references])
        for row in self.rows:
            reach = None if row.reach is None else asdict(row.reach)
            plain["methods"][row.name] |= {
                "rank": row.rank,
                "rounds_to_target": reach,
                "missing": row.missing,
                "command": row.command,
            }
        return plain


def build_report(
    summary: Summary,
    lanes: Mapping[str, Lane],
    frozen: Path,
    target: float | None = None,
    hint: str = "",
    resume: str = "",
    references: Sequence[Reference] = (),
) -> Report:
    """Put a search's methods side by side.

    Args:
        summary: its numbers.
        lanes: its methods' work.
        frozen: its config.
        target: of the validation metric; a row says when a method reached it.
        hint: the command that opens the MLflow UI.
        resume: the command that goes on with the search; empty if it has come to its end.
        references: rows beside the methods.

    Raises:
        ConfigError: the target is no number.
    """
    search = next(iter(lanes.values())).search
    goal = None if target is None else _goal(search, lanes, target)
    rows = []
    ranks = summary.ranks
    for cell, methods in summary.by_cell().items():
        for name, method in methods:
            lane = lanes[name]
            chosen = lane.chosen
            rows.append(
                Row(
                    name=name,
                    title=own_name(name, method),
                    scenario=cell,
                    rank=ranks[name],
                    summary=method,
                    reach=None if goal is None else Reach.of(lane.reported, goal),
                    missing=missing(lane) if resume else "",
                    command=alone(lane, chosen, frozen) if chosen else "",
                )
            )
    unfinished = [f"{row.name}: {row.missing}" for row in rows if row.missing]
    go_on = [f"the search is not finished; go on with: {resume}"] if unfinished else []
    said = [*unfinished, *go_on, *warnings_of(summary)]
    config_yaml = shared_yaml(frozen)
    command = resume if unfinished else ""
    return Report(summary, rows, lanes, search, goal, config_yaml, hint, said, references, command)


def _goal(search: SearchSettings, lanes: Mapping[str, Lane], target: float) -> Objective:
    """Return the target as an objective of the validation metric."""
    if not math.isfinite(target):
        raise ConfigError(f"--target: found {target}; must be a finite number, such as 0.9")
    metric, main = validation_metric(search, lanes), search.goals[0]
    rising = main.maximize if metric == main.metric else natural_mode(metric) == "max"
    return Objective(metric, rising, target=target)


def validation_metric(search: SearchSettings, lanes: Mapping[str, Lane]) -> str:
    """Return the first objective's metric if it is a validation one, else accuracy, else loss."""
    main = search.goals[0].metric
    if main.startswith("val/"):
        return main
    runs = [run for lane in lanes.values() for run in lane.reported]
    classes = any("val/accuracy" in row for run in runs for row in run.rows)
    return "val/accuracy" if classes else "val/loss"


def missing(lane: Lane) -> str:
    """Say what the search still lacks of a method; empty if nothing."""
    left = lane.planned - lane.done
    if lane.closed:  # the budget is spent: what was begun goes on if there is no winner yet
        left = 0 if lane.front else lane.in_flight
    lacks = [f"{left} of {lane.planned} trials"] if left > 0 else []
    seeds = lane.search.confirm_seeds * len(lane.winners) - lane.done_confirmations
    if seeds:
        lacks.append(f"{seeds} of {lane.planned_confirmations} confirmation runs")
    return f"{' and '.join(lacks)} still to come" if lacks else ""


def shared_yaml(frozen: Path) -> str:
    """Return a frozen config as it may be passed on: without the passwords of its store."""
    raw = dotted.load_yaml(frozen.read_text(encoding="utf-8"))
    uri = (raw.get("tracking") or {}).get("uri")
    if uri:
        raw["tracking"]["uri"] = redact(uri)
    return dotted.dump_yaml(raw)


def bits_text(bits: float | None) -> str:
    """Show a number of bits in a unit that people know: 1.2 MiB; n/a where no run is complete."""
    if bits is None:
        return "n/a"
    amount = bits / 8
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def edges_text(summary: MethodSummary) -> str:
    """Show the parameters whose winning value is on a border."""
    return ", ".join(
        f"{key}={short(summary.best.get(key))} {side}" for key, side in summary.edges.items()
    )


def print_report(report: Report, console: Console) -> None:
    """Print the table of results, then what it has no room for."""
    from fltune.report.pivot import print_pivot

    seeds = report.search.confirm_seeds
    print_summary(report.summary, console, report.hint, seeds)
    if len(report.cells) > 1:
        print_pivot(report, console)
    print_costs(report, console)
    if report.references:
        print_references(report, console)


def print_references(report: Report, console: Console) -> None:
    """Print the rows beside the methods."""
    title = escape(f"{report.summary.name}: references, without rank and test")
    caption = "Mean ± half the 95% interval over the same fresh seeds. Centralised and clients "
    caption += "alone: plain SGD, as many passes over the samples as the best method made."
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("reference", style="italic", overflow="fold")
    table.add_column("values", overflow="fold")
    table.add_column(report.headline.replace("/", " "), justify="right", no_wrap=True)
    table.add_column("client samples", justify="right")
    cell = ""
    for reference in report.references:
        if reference.scenario != cell:
            cell = reference.scenario
            table.add_section()
            table.add_row("", f"[bold]{escape(cell)}[/bold]")
        samples = f"{reference.client_samples:,.0f}"
        shown = [reference.name, values_text(reference.values), reference.test_text, samples]
        table.add_row(*map(escape, shown))
    console.print(table)


def print_costs(report: Report, console: Console) -> None:
    """Print what the table of results has no room for: cost, speed, and what to distrust."""
    caption = "Communication of one confirmed run that is complete; optimism: how much better the "
    caption += "score was in the search than on fresh seeds."
    if report.goal is not None:
        caption = f"{report.goal.label}: mean over the fresh seeds that reached it. {caption}"
    title = escape(f"{report.summary.name}: cost and trust")
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("method", style="bold", overflow="fold")
    columns = ["uplink", "downlink", "client samples", "optimism"]
    if report.goal is not None:
        columns.insert(0, "rounds to target")
    for column in columns:
        table.add_column(column, justify="right")
    for row in report.rows:
        m = row.summary
        confirmed = m.test is not None
        cells = [bits_text(bits) if confirmed else "-" for bits in (m.bits_up, m.bits_down)]
        cells += [f"{m.client_samples:,}", "-" if m.optimism is None else f"{m.optimism:+.4f}"]
        if row.reach is not None:
            cells.insert(0, str(row.reach))
        table.add_row(*map(escape, [row.name, *cells]))
    console.print(table)
    for row in report.rows:
        if row.missing:
            text = escape(f"{row.name}: {row.missing}")
            console.print(f"[yellow]unfinished:[/yellow] {text}", highlight=False)
    if report.resume:
        console.print(f"go on with: {report.resume}", highlight=False, markup=False, soft_wrap=True)
