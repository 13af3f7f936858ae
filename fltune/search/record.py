"""What is kept of every run of a search: a plain record, the same for files, tables and MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

TRIAL, CONFIRMATION = "trial", "confirmation"
"""The two kinds of run: one selects on validation data, the other reports on test data."""


@dataclass
class TrialRecord:
    """One ended trial or confirmation run.

    Attributes:
        method: the method's name.
        kind: trial or confirmation.
        number: position of the config among the method's; a config has a run per search seed. For
            a confirmation, the number of the config that is confirmed.
        values: searched values, by dotted name.
        seed: the run's seed.
        status: complete, pruned, diverged or failed.
        scores: what it is judged by, one number per objective; empty where there is none (failed).
        violations: of each constraint; above 0 it is broken.
        message: why it ended, in a sentence.
        rows: metrics by round.
        metrics: final metrics.
        comm: up_bits and down_bits.
        participation: tau_max, tau_avg and how evenly clients took part.
        client_samples: samples processed by clients.
        seconds: training time; of a run in a pack, its share of it; of one that was stopped or
            failed, up to its last report.
        strategy: how the local solver worked.
        node: the machine that ran it, by name and address.
        by_client: the last validation, client by client: see
            :class:`fltune.federation.evaluation.ClientScores`. Empty where validation samples have
            no owners, and for a run that was stopped.
    """

    method: str
    kind: str
    number: int
    values: dict[str, Any]
    seed: int
    status: str = "failed"
    scores: list[float] = field(default_factory=list)
    violations: list[float] = field(default_factory=list)
    message: str = ""
    rows: list[dict[str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    comm: dict[str, float] = field(default_factory=dict)
    participation: dict[str, float] = field(default_factory=dict)
    client_samples: int = 0
    seconds: float = 0.0
    strategy: str = ""
    node: str = ""
    by_client: dict[str, list[float]] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The first objective, by which runs are ranked; None where there is none."""
        return self.scores[0] if self.scores else None

    @property
    def rounds(self) -> int:
        """The last round that it reported."""
        return int(self.rows[-1]["round"]) if self.rows else 0

    def take(self, result: Mapping[str, Any]) -> None:
        """Add what one report of a running trial says."""
        self.rows += result.get("rows", [])
        self.scores = list(result.get("scores", self.scores))
        self.violations = list(result.get("violations", self.violations))
        self.seconds = result.get("seconds", self.seconds)
        if "hostname" in result:  # Ray's own columns
            self.node = f"{result['hostname']} ({result['node_ip']})"
        if not result.get("finished"):
            return
        if result["status"] == "failed":
            self.fail(result["message"])
            return
        self.status, self.message = result["status"], result["message"]
        for name in ("metrics", "comm", "participation", "strategy"):
            setattr(self, name, result[name])
        self.client_samples = int(result["client_samples"])
        self.by_client = result.get("by_client", {})

    def restart(self) -> None:
        """Forget what a worker reported before it died: the run starts again."""
        self.rows, self.scores, self.violations, self.seconds = [], [], [], 0.0

    def stop_early(self) -> None:
        """The scheduler ended it."""
        last = self._count_work()
        self.status = "pruned"
        self.message = f"stopped early by the scheduler after {last.get('round', 0):g} rounds"
        if "val/clients" in last:  # its score does not compare with that of a completed run
            self.message += f", judged by {last['val/clients']:g} clients"
        self.metrics = {k: v for k, v in last.items() if "/" in k and not k.startswith("comm/")}

    def fail(self, message: str) -> None:
        """It ended with an error, or its worker died: it has no score, but its work was done."""
        self._count_work()
        self.status, self.scores, self.message = "failed", [], message

    def diverge(self, worst: Sequence[float]) -> None:
        """It has a score that is no number: it counts as the worst."""
        self.status, self.scores = "diverged", list(worst)
        self.message = f"diverged: its score is no number; {self.message}"

    def _count_work(self) -> Mapping[str, float]:
        """Take from the last row what a run that made no final report has cost; return the row."""
        last = self.rows[-1] if self.rows else {}
        self.comm = {k: last.get(f"comm/{k}", 0.0) for k in ("up_bits", "down_bits")}
        self.client_samples = int(last.get("client_samples", 0))
        return last

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the columns are the record's own, not copies."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> TrialRecord:
        """Read what :meth:`as_json` wrote."""
        known = {f.name for f in fields(cls)}
        record = cls(**{k: v for k, v in raw.items() if k in known})
        record.rows = [_numbers(row) for row in record.rows]
        record.metrics = _numbers(record.metrics)
        columns = record.by_client.items()
        record.by_client = {k: [math.nan if v is None else v for v in vs] for k, vs in columns}
        return record


def _numbers(row: Mapping[str, float | None]) -> dict[str, float]:
    """Read null, which is how a file keeps what is no number, as NaN."""
    return {k: math.nan if v is None else v for k, v in row.items()}


Listener = Callable[[str, TrialRecord], None]
"""Called with an event (start, progress, end) and the record it is about."""
