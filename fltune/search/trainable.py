"""What a Ray worker does with one job: parse, run, report. It never opens the tracking store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from fltune import dotted
from fltune.experiment import Experiment
from fltune.federation.history import Row
from fltune.federation.stopping import StopReason
from fltune.search.settings import SearchSettings

FLUSH_SECONDS = 1.0
"""Rows are sent together at most this often, unless a scheduler wants to see each one."""


def train(config: Mapping[str, Any]) -> None:
    """Run one job inside a Ray worker.

    An error is reported as an outcome of its own. So a run that Ray sees fail has lost its worker,
    and is worth starting again; an exception would only come again.

    Args:
        config: a job (:data:`fltune.search.jobs.Job`); ``search``, the settings that say how a run
            is judged; ``cpus`` of the run.
    """
    from ray import tune

    try:
        tune.report(_run(config))
    except Exception as error:
        text = " ".join(str(error).split())
        message = f"{type(error).__name__}: {text}" if text else type(error).__name__
        tune.report({"round": 0, "finished": True, "status": "failed", "message": message})


def _run(config: Mapping[str, Any]) -> dict[str, Any]:
    from ray import tune

    from fltune.runner import run, use_threads

    if config["fault"]:
        raise ValueError(config["fault"])
    use_threads(config["cpus"])
    raw = dotted.merge(config["base"], {})
    for key, value in config["values"].items():
        dotted.assign(raw, key, value)
    experiment = Experiment.parse(raw)
    search = SearchSettings.model_validate(config["search"])
    sender = Sender(search, experiment, tune.report)
    result = run(experiment, test=config["test"], on_row=sender.add)
    diverged = result.stop_reason is StopReason.DIVERGED
    return {
        **sender.rest(diverged),
        "round": result.rounds,
        "finished": True,
        "status": "diverged" if diverged else "complete",
        "message": result.message,
        "metrics": result.metrics,
        "comm": result.comm,
        "participation": result.participation,
        "client_samples": result.client_samples,
        "seconds": result.seconds,
        "strategy": result.strategy,
    }


class Sender:
    """Judges the rows of a run as they come, and sends them a few at a time.

    Args:
        search: says how a run is judged.
        experiment: the run.
        send: takes a report.
    """

    def __init__(
        self,
        search: SearchSettings,
        experiment: Experiment,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self.experiment = experiment
        self.send = send
        self.every_row = search.scheduler != "none"
        self._judge = search.judge(experiment.max_loss, experiment.rounds)
        self._scores = self._judge.worst
        self._waiting: list[Row] = []
        self._row: Row = {}
        self._sent = time.monotonic()

    def add(self, row: Row) -> None:
        """Take a row; the last one waits for the final report.

        A scheduler would stop what has just ended.
        """
        self._scores = self._judge.add(row)
        self._row = row
        self._waiting.append(row)
        due = self.every_row or time.monotonic() - self._sent > FLUSH_SECONDS
        if due and row["round"] < self.experiment.rounds and self._healthy(row):
            self.send(self._report())

    def _healthy(self, row: Row) -> bool:
        """Whether the run goes on after a row, as far as the row shows."""
        bounded = row.get("train/loss", 0.0) <= self.experiment.max_loss
        return bounded and all(map(math.isfinite, row.values()))

    def _report(self) -> dict[str, Any]:
        rows, self._waiting = self._waiting, []
        self._sent = time.monotonic()
        violations = self._judge.violations(self._row)
        scores = list(self._scores)
        return {
            "round": self._row.get("round", 0),  # it may have diverged before any evaluation
            "scores": scores,
            "violations": violations,
            "rows": rows,
        }

    def rest(self, diverged: bool) -> dict[str, Any]:
        """Return what was not sent yet, with the final scores."""
        if diverged:
            self._scores = self._judge.worst
        return self._report()
