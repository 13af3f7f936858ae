"""What is kept of every trial: one plain record, the same for files, tables and MLflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TRIAL, CONFIRMATION = "trial", "confirmation"
"""The two kinds of run: one selects on validation data, the other reports on test data."""


@dataclass
class TrialRecord:
    """One ended trial or confirmation run.

    Attributes:
        method: the method's name.
        kind: trial or confirmation.
        number: position among the method's trials; for a confirmation, among its seeds.
        values: searched values, by dotted name.
        seed: the run's seed.
        status: complete, pruned, diverged or failed.
        score: the objective; None where there is none (failed).
        message: why it ended, in a sentence.
        rows: metrics by round.
        metrics: final metrics.
        comm: up_bits and down_bits.
        participation: delays and counts of the cohorts drawn.
        client_samples: samples processed by clients.
        seconds: training time.
        strategy: how the local solver worked.
    """

    method: str
    kind: str
    number: int
    values: dict[str, Any]
    seed: int
    status: str = "failed"
    score: float | None = None
    message: str = ""
    rows: list[dict[str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    comm: dict[str, float] = field(default_factory=dict)
    participation: dict[str, float] = field(default_factory=dict)
    client_samples: int = 0
    seconds: float = 0.0
    strategy: str = ""

    def take(self, result: dict[str, Any]) -> None:
        """Add what one report of a running trial says."""
        self.rows += result.get("rows", [])
        self.score = result.get("objective", self.score)
        if not result.get("finished"):
            return
        self.status = "diverged" if result["diverged"] else "complete"
        for name in ("message", "metrics", "comm", "participation", "seconds", "strategy"):
            setattr(self, name, result[name])
        self.client_samples = int(result["client_samples"])

    def stop_early(self) -> None:
        """The scheduler ended it."""
        self.status = "pruned"
        last = self.rows[-1] if self.rows else {}
        self.message = f"stopped early by the scheduler after {last.get('round', 0):g} rounds"
        self.metrics = {k: v for k, v in last.items() if "/" in k and not k.startswith("comm/")}
        self.comm = {k: last.get(f"comm/{k}", 0.0) for k in ("up_bits", "down_bits")}
        self.client_samples = int(last.get("client_samples", 0))


Listener = Callable[[str, TrialRecord], None]
"""Called with an event (start, progress, end) and the record it is about."""


class RecordFile:
    """An append-only file of records, one JSON object a line: nothing finished is ever lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, record: TrialRecord) -> None:
        """Write one record."""
        line = json.dumps(asdict(record))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
