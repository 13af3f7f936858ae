"""What a Ray worker does with a job: parse, run, report. It never opens the tracking store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fltune.experiment import Experiment
from fltune.federation.history import Row
from fltune.federation.stopping import StopReason
from fltune.search.jobs import Job, experiment_of
from fltune.search.settings import SearchSettings
from fltune.search.verdicts import stopped_members

if TYPE_CHECKING:
    from fltune.runner import RunResult

Send = Callable[[Sequence[Mapping[str, Any]]], None]
"""Takes what there is to say of some members, each with its ``member``."""

FLUSH_SECONDS = 1.0
"""Rows are sent together at most this often, unless a scheduler wants to see each one."""


def train(config: Mapping[str, Any]) -> None:
    """Run the jobs of one Ray trial inside a worker: one, or several as one computation.

    An error is reported as an outcome of its own. So a trial that Ray sees fail has lost its
    worker, and is worth starting again; an exception would only come again.

    Args:
        config: ``jobs`` (:data:`fltune.search.jobs.Job`), each with its ``member``: none, if all
            had ended when another worker was lost; ``search``, the settings that say how a run is
            judged; ``cpus`` and ``gpus`` of the trial; of a pack, ``trial`` and where to ask for
            ``verdicts``.
    """
    from fltune.runner import use_threads

    use_threads(config["cpus"])
    search = SearchSettings.model_validate(config["search"])
    jobs = config["jobs"] if config["gpus"] else [without_gpu(job) for job in config["jobs"]]
    if len(jobs) > 1:
        from fltune.search.pack_run import run_together

        name, trial = config["verdicts"], config["trial"]
        jobs = run_together(jobs, search, report, lambda: stopped_members(name, trial))
    for job in jobs:
        report([run_alone(job, search, report)])


def without_gpu(job: Job) -> Job:
    """Return a job whose ``device: auto`` is the CPU.

    Ray hides no GPU from a trial that reserved none, and ``auto`` would take the first one.
    """
    wanted = {**job["base"], **job["values"]}.get("device", "auto")
    return {**job, "values": {**job["values"], "device": "cpu"}} if wanted == "auto" else job


def report(entries: Sequence[Mapping[str, Any]]) -> None:
    """Send what there is to say of some members in one message; it returns when it was heard."""
    from ray import tune

    tune.report({"round": max(e.get("round", 0) for e in entries), "members": list(entries)})


def run_alone(job: Job, search: SearchSettings, send: Send) -> dict[str, Any]:
    """Run one job; return how it ended.

    Args:
        job: what to run.
        search: says how a run is judged.
        send: takes what is to be reported on the way.
    """
    from fltune.runner import run

    member = {"member": job["member"]}
    try:
        experiment = experiment_of(job)
        sender = Sender(search, experiment, lambda entry: send([{**member, **entry}]))
        result = run(experiment, test=job["test"], on_row=sender.add)
        return {**member, **outcome(sender, result)}
    except Exception as error:
        return {**member, **failure(error)}


def failure(error: Exception) -> dict[str, Any]:
    """Return the final report of a run that raised."""
    text = " ".join(str(error).split())
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return {"round": 0, "finished": True, "status": "failed", "message": message}


def outcome(sender: Sender, result: RunResult) -> dict[str, Any]:
    """Return the final report of a run, with what its sender has not sent yet."""
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
        "by_client": result.by_client,
    }


class Sender:
    """Judges the rows of a run as they come, and sends them a few at a time.

    Args:
        search: says how a run is judged.
        experiment: the run.
        send: takes a report.
        together: how many runs share the time, as members of a pack.
    """

    def __init__(
        self,
        search: SearchSettings,
        experiment: Experiment,
        send: Callable[[dict[str, Any]], None],
        together: int = 1,
    ) -> None:
        self.experiment = experiment
        self.send = send
        self.every_row = search.scheduler != "none"
        self._judge = search.judge(experiment.max_loss, experiment.rounds)
        self._scores = self._judge.worst
        self._waiting: list[Row] = []
        self._row: Row = {}
        self._sent = self._began = time.monotonic()
        self._together = together

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
            "seconds": (self._sent - self._began) / self._together,
        }

    def rest(self, diverged: bool) -> dict[str, Any]:
        """Return what was not sent yet, with the final scores."""
        if diverged:
            self._scores = self._judge.worst
        return self._report()
