"""The live display of a search: a table in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fltune.report.spark import finite_values, spark
from fltune.report.table import values_text
from fltune.search.candidate import Candidate
from fltune.search.lane import Lane
from fltune.search.record import CONFIRMATION, TrialRecord

MOST_RUNNING = 8
"""Runs whose curves are shown; a table that is higher than the terminal would flicker."""
SPARK = 24
"""Characters of a curve."""
SHARE = 20
"""The picture is drawn anew when so many times the seconds of the last drawing have passed."""
FRAME = 6
"""Lines of the methods' table that are no methods: title, head, rules, what is left out."""


class LiveDisplay:
    """Follows the runs of a search; use it as a context manager and call it with each event.

    Args:
        lanes: by method; what has ended is read from them.
        concurrent: runs at once, for the estimate of the time left.
        console: where to print.
        clock: seconds that pass; for the rate.
    """

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        concurrent: int,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lanes = lanes
        self.concurrent = concurrent
        self.console = console
        self._running: dict[tuple[str, str, int, int], TrialRecord] = {}
        self._seconds: list[float] = []
        self._clock = clock
        self._started = clock()
        self._picture: tuple[float, float, Group] | None = None
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._view)

    def __enter__(self) -> LiveDisplay:
        if self.console.is_terminal:
            self._picture = None
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._picture = None  # the last one stays on the screen
        self._live.stop()

    def __call__(self, event: str, record: TrialRecord) -> None:
        """Take an event: start, progress or end of a run."""
        key = record.method, record.kind, record.number, record.seed
        if event != "end":
            self._running[key] = record
            return
        self._running.pop(key, None)
        self._seconds.append(record.seconds)
        if not self.console.is_terminal:
            self.console.print(self._line(record), highlight=False, markup=False, soft_wrap=True)

    def _line(self, record: TrialRecord) -> str:
        lane = self.lanes[record.method]
        score = "-" if record.score is None else f"{record.score:.4f}"
        if record.kind == CONFIRMATION:
            done = f"confirmed {lane.done_confirmations}/{lane.planned_confirmations}"
        else:
            done = f"{lane.done}/{lane.planned}"
        which = f"#{record.number} ({done})"
        seed = f" seed={record.seed}" if len(lane.seeds) > 1 or record.kind == CONFIRMATION else ""
        reason = "" if record.status == "complete" else f"  ({record.message})"
        values = _shown(lane, record.values)
        return f"{record.method} {which}{seed} {record.status} {score}  {values}{reason}"

    def _view(self) -> Group:
        """Return the picture, the last one where a new one would take the search's own time.

        Trials by the thousand are counted for it: four times a second nothing else would be done.
        """
        if self._picture is not None:
            drawn, took, picture = self._picture
            if self._clock() - drawn < SHARE * took:
                return picture
        began = self._clock()
        running = [self.render_running()] if self._running else []
        free = self.console.height - sum(map(self._lines, running))
        methods = self.render() if len(self.lanes) <= free else None
        if methods is None or self._lines(methods) > free:
            methods = self.render(max(1, free - FRAME))
        picture = Group(methods, *running)
        now = self._clock()
        self._picture = now, now - began, picture
        return picture

    def _lines(self, table: Table) -> int:
        return len(self.console.render_lines(table))

    def render_running(self) -> Table:
        """Return the runs that are out, the oldest first, each with its curve so far."""
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for column in ("running", "round", "curve", "", "values"):
            table.add_column(column, justify="right" if column == "round" else "left")
        out = list(self._running.values())
        for record in out[:MOST_RUNNING]:
            lane = self.lanes[record.method]
            metric = lane.search.goals[0].metric
            values = [row.get(metric) for row in record.rows]
            if not finite_values(values):  # not evaluated yet, or judged by another thing
                metric = "train/loss"
                values = [row.get(metric) for row in record.rows]
            known = finite_values(values)
            last = f"{metric} {known[-1]:.4g}" if known else "no evaluation yet"
            seed = f" seed {record.seed}" if record.kind == CONFIRMATION else ""
            name = f"{record.method} #{record.number}{seed}"
            cells = [name, str(record.rounds), spark(values, SPARK), last]
            table.add_row(*map(escape, [*cells, _shown(lane, record.values)]))
        if len(out) > MOST_RUNNING:
            table.add_row(f"and {len(out) - MOST_RUNNING} more")
        return table

    def render(self, room: int | None = None) -> Table:
        """Return the table of the methods as it stands now.

        Args:
            room: methods at most, a line each; those at work go before the others. None: all.
        """
        shown = self._at_work(room)
        left = [lane for name, lane in self.lanes.items() if name not in shown]
        rest = f"and {len(left)} more"
        running = Counter(record.method for record in self._running.values())
        table = Table(title=self._left(), title_justify="left")
        for column in ("method", "trials", "running", "diverged", "confirmed", "best score"):
            justify: Literal["left", "right"] = "left" if column == "method" else "right"
            named = [*shown, rest] if column == "method" else [column]
            least = None if room is None else max(min(len(name), SPARK) for name in named)
            table.add_column(column, justify=justify, no_wrap=least is not None, min_width=least)
        table.add_column("best values", no_wrap=room is not None)
        for name in shown:
            lane = self.lanes[name]
            best = next(iter(lane.front), None)
            diverged = sum(c.status == "diverged" for c in lane.tried)
            table.add_row(
                escape(name),
                f"{lane.done}/{lane.planned}",
                str(running[name]),
                str(diverged),
                f"{lane.done_confirmations}/{lane.planned_confirmations}",
                *_best(lane, best),
            )
        if left:
            done, planned = sum(x.done for x in left), sum(x.planned for x in left)
            table.add_row(rest, f"{done}/{planned}")
        return table

    def _at_work(self, room: int | None) -> list[str]:
        """Return the methods that are shown, as the file has them."""
        if room is None or len(self.lanes) <= room:
            return list(self.lanes)
        out = {record.method for record in self._running.values()}
        begun = {name for name, lane in self.lanes.items() if lane.candidates} - out
        first = [n for n in self.lanes if n in out] + [n for n in self.lanes if n in begun][::-1]
        first += [n for n in self.lanes if n not in out | begun]
        chosen = set(first[:room])
        return [name for name in self.lanes if name in chosen]

    def _left(self) -> str:
        """Say how fast it goes, from the runs of this process: an earlier one had other workers."""
        if not self._seconds:
            return "no run has ended yet"
        ended = len(self._seconds)
        waiting = sum(map(_waiting, self.lanes.values()))
        at_once = max(1, min(self.concurrent, waiting))
        left = waiting * sum(self._seconds) / ended / at_once
        minutes = max(self._clock() - self._started, 1e-9) / 60
        return f"about {timedelta(seconds=round(left))} left, {ended / minutes:.3g} runs a minute"


def _waiting(lane: Lane) -> int:
    """Return the runs that a method still needs, those that are out included."""
    confirmations = max(0, lane.planned_confirmations - lane.done_confirmations)
    if lane.settled or lane.closed:
        return confirmations
    begun = sum(len(c.missing) for c in lane.tried if c.status == "running")
    return confirmations + begun + (lane.planned - len(lane.tried)) * len(lane.seeds)


def _best(lane: Lane, best: Candidate | None) -> tuple[str, str]:
    if best is None:
        return "-", ""
    return f"{best.scores[0]:.4f}" if best.scores else "-", escape(_shown(lane, best.values))


def _shown(lane: Lane, values: Mapping[str, Any]) -> str:
    """Return values as the final table shows them: stages as lists, not what they are made of."""
    return values_text(lane.method.readable(values))
