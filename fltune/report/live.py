"""The live display of a search: a table in a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fltune.report.table import values_text
from fltune.search.record import CONFIRMATION, TrialRecord


@dataclass
class Progress:
    """What is known of one method so far."""

    total: int
    done: int = 0
    running: int = 0
    diverged: int = 0
    confirmed: int = 0
    best: TrialRecord | None = None
    seconds: list[float] = field(default_factory=list)


class LiveDisplay:
    """Follows the trials of a search; use it as a context manager and call it with each event.

    Args:
        totals: trials planned, by method.
        seeds: confirmation runs planned, per method.
        maximize: whether a larger score is better.
        concurrent: trials at once, for the estimate of the time left.
        console: where to print.
    """

    def __init__(
        self,
        totals: Mapping[str, int],
        seeds: int,
        maximize: bool,
        concurrent: int,
        console: Console,
    ) -> None:
        self.methods = {name: Progress(total) for name, total in totals.items()}
        self.seeds = seeds
        self.maximize = maximize
        self.concurrent = concurrent
        self.console = console
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self.render)

    def __enter__(self) -> LiveDisplay:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: str, record: TrialRecord) -> None:
        """Take an event: start, progress or end of a trial."""
        progress = self.methods[record.method]
        if event == "start":
            progress.running += 1
        if event != "end":
            return
        progress.running -= 1
        progress.seconds.append(record.seconds)
        if record.kind == CONFIRMATION:
            progress.confirmed += 1
        else:
            progress.done += 1
            progress.diverged += record.status == "diverged"
            if record.status == "complete" and self._better(record):
                progress.best = record
        if not self.console.is_terminal:
            line = self._line(record, progress)
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _better(self, record: TrialRecord) -> bool:
        best = self.methods[record.method].best
        if best is None or best.score is None or record.score is None:
            return record.score is not None
        return record.score > best.score if self.maximize else record.score < best.score

    def _line(self, record: TrialRecord, progress: Progress) -> str:
        score = "-" if record.score is None else f"{record.score:.4f}"
        if record.kind == CONFIRMATION:
            which = f"confirmed {progress.confirmed}/{self.seeds} seed={record.seed}"
        else:
            which = f"{progress.done}/{progress.total}"
        text = f"{record.method} {which} {record.status} {score}"
        reason = "" if record.status == "complete" else f"  ({record.message})"
        return f"{text}  {values_text(record.values)}{reason}"

    def render(self) -> Table:
        """Return the table as it stands now."""
        table = Table(title=self._left(), title_justify="left")
        for column in ("method", "trials", "running", "diverged", "confirmed", "best score"):
            table.add_column(column, justify="left" if column == "method" else "right")
        table.add_column("best values")
        for name, p in self.methods.items():
            score = "-" if p.best is None or p.best.score is None else f"{p.best.score:.4f}"
            values = escape(values_text(p.best.values)) if p.best else ""
            confirmed = f"{p.confirmed}/{self.seeds}"
            counts = (f"{p.done}/{p.total}", str(p.running), str(p.diverged), confirmed)
            table.add_row(escape(name), *counts, score, values)
        return table

    def _left(self) -> str:
        seconds = [s for p in self.methods.values() for s in p.seconds]
        if not seconds:
            return "no trial has ended yet"
        waiting = sum(p.total - p.done + self.seeds - p.confirmed for p in self.methods.values())
        left = waiting * sum(seconds) / len(seconds) / self.concurrent
        return f"about {timedelta(seconds=round(left))} left"
