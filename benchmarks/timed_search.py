"""A search of one method, and when it said what: the one clock that reaches into no search."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fltune.report.summary import MethodSummary
from fltune.search.config import SearchConfig
from fltune.search.record import TrialRecord
from fltune.search.search import search
from fltune.search.state import SearchState

FILE = Path(__file__).parents[1] / "search_spaces" / "digits_fedgm.yaml"
METHOD = "FedGM"


@dataclass(frozen=True)
class TimedSearch:
    """A search that has ended.

    Attributes:
        config: what was searched.
        summary: of its one method.
        records: its runs, in the order in which they ended.
        ends: times at which they did.
        started, ended: times at which it was called, and returned.
        told: time at which all was written and the last line printed; Ray leaves after it.
        announced: time at which Ray was up.
        said: what it said then: how many trials run at a time.
    """

    config: SearchConfig
    summary: MethodSummary
    records: list[TrialRecord]
    ends: list[float]
    started: float
    ended: float
    told: float
    announced: float
    said: str


class TimedLines(io.StringIO):
    """Takes what a search prints, and notes when: it says a line when Ray is up and at each end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        """Note the time of each line."""
        now = time.time()
        self.lines += [(now, line) for line in text.splitlines() if line.strip()]
        return super().write(text)


def time_search(settings: Sequence[str]) -> TimedSearch:
    """Search the method on digits without confirmation, in a folder that is gone afterwards.

    Args:
        settings: ``KEY=VALUE`` overrides of the file.
    """
    with tempfile.TemporaryDirectory(prefix="fltune-") as folder:
        place = [f"tracking.root={folder}", f"tracking.uri=sqlite:///{folder}/mlflow.db"]
        config = SearchConfig.read(FILE, [*settings, "search.confirm_seeds=0", *place], [METHOD])
        out = TimedLines()
        started = time.time()
        found = search(config, name="timed", console=Console(file=out, width=200))
        ended = time.time()
        records = SearchState.find(Path(folder), "timed").records()
    announced, said = next((when, line) for when, line in out.lines if " at a time" in line)
    told = out.lines[-1][0]
    ends = [when for when, line in out.lines if line.startswith(f"{METHOD} ")]
    summary = found.methods[METHOD]
    return TimedSearch(config, summary, records, ends, started, ended, told, announced, said)
