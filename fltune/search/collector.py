"""Turns Ray's callbacks into trial records, in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.tune import Callback

from fltune.search.record import Listener, TrialRecord


class Collector(Callback):
    """Collects what the workers report.

    Args:
        listen: told of every start, progress and end.
    """

    def __init__(self, listen: Listener) -> None:
        self.listen = listen
        self._records: dict[str, TrialRecord] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Ray pickles callbacks into its own state; ours is in the records file."""
        return {"listen": _ignore, "_records": {}}

    def records(self) -> list[TrialRecord]:
        """Return the records in the order the trials started."""
        return list(self._records.values())

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Open a record."""
        if trial.trial_id in self._records:
            return
        job = trial.config
        seed = job["values"].get("seed", job["base"].get("seed", 0))
        record = TrialRecord(job["method"], job["kind"], job["number"], job["searched"], int(seed))
        self._records[trial.trial_id] = record
        self.listen("start", record)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Add a report."""
        record = self._records[trial.trial_id]
        record.take(result)
        self.listen("progress", record)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Close a record; without a final report it was stopped early."""
        record = self._records[trial.trial_id]
        if record.status == "failed":
            record.stop_early()
        self.listen("end", record)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Close the record of a trial that raised."""
        record = self._records[trial.trial_id]
        record.status, record.score = "failed", None
        record.message = _last_line(trial.error_file)
        self.listen("end", record)


def _ignore(event: str, record: TrialRecord) -> None:
    """Listen to nothing."""


def _last_line(error_file: str | None) -> str:
    """Return the end of the traceback; Ray writes it here before it copies it to its storage."""
    path = Path(error_file or "none")
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the worker died"
