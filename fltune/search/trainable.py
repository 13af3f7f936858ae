"""What a Ray worker does with one trial: parse, run, report. It never opens the tracking store."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from fltune import dotted
from fltune.experiment import Experiment
from fltune.federation.history import Row
from fltune.federation.stopping import StopReason

FLUSH_SECONDS = 1.0
"""Rows are sent together at most this often, unless a scheduler wants to see each one."""


class Objective:
    """The score of a run so far: a metric's mean over the last k evaluations, always finite.

    Args:
        metric: a row's key, such as ``val/accuracy``.
        maximize: whether larger is better.
        average_last: k.
        max_loss: the loss at which a run counts as diverged.
    """

    def __init__(self, metric: str, maximize: bool, average_last: int, max_loss: float) -> None:
        self.metric = metric
        self.average_last = average_last
        self.worst = worst_score(metric, maximize, max_loss)
        self._seen: list[float] = []

    def add(self, row: Row) -> float:
        """Return the score with one more evaluation."""
        value = row.get(self.metric, math.nan)
        self._seen.append(value if math.isfinite(value) else self.worst)
        recent = self._seen[-self.average_last :]
        return sum(recent) / len(recent)


def worst_score(metric: str, maximize: bool, max_loss: float) -> float:
    """Return the finite score of a run that diverged: no accuracy, or the loss bound."""
    if metric.endswith("loss"):
        return -max_loss if maximize else max_loss
    return 0.0 if maximize else 1.0


def healthy(row: Row, max_loss: float) -> bool:
    """Whether a run goes on after a row, as far as the row shows."""
    return row.get("train/loss", 0.0) <= max_loss and all(map(math.isfinite, row.values()))


def train(config: Mapping[str, Any]) -> None:
    """Run one trial inside a Ray worker.

    Args:
        config: ``base`` (nested experiment), ``values`` (dotted), ``score`` (arguments of
            :class:`Objective` but the last), ``test`` (evaluate the test split), ``cpus`` of the
            trial, ``every_row`` (report each evaluation as it comes).
    """
    from ray import tune

    from fltune.runner import run, use_threads

    use_threads(config["cpus"])
    raw = dotted.merge(config["base"], {})
    for key, value in config["values"].items():
        dotted.assign(raw, key, value)
    experiment = Experiment.parse(raw)
    objective = Objective(**config["score"], max_loss=experiment.max_loss)
    waiting: list[Row] = []
    sent = time.monotonic()

    def on_row(row: Row) -> None:
        nonlocal sent
        score = objective.add(row)
        waiting.append(row)
        # The last row goes with the final report: a scheduler would stop what has just ended.
        last = row["round"] == experiment.rounds or not healthy(row, experiment.max_loss)
        if not last and (config["every_row"] or time.monotonic() - sent > FLUSH_SECONDS):
            tune.report({"round": row["round"], "objective": score, "rows": list(waiting)})
            waiting.clear()
            sent = time.monotonic()
        on_row.score = score  # type: ignore[attr-defined]

    result = run(experiment, test=config["test"], on_row=on_row)
    diverged = result.stop_reason is StopReason.DIVERGED
    tune.report(
        {
            "round": result.rounds,
            "objective": objective.worst if diverged else on_row.score,  # type: ignore[attr-defined]
            "rows": list(waiting),
            "finished": True,
            "diverged": diverged,
            "stop_reason": result.stop_reason.value,
            "message": result.message,
            "metrics": result.metrics,
            "comm": result.comm,
            "participation": result.participation,
            "client_samples": result.client_samples,
            "seconds": result.seconds,
            "strategy": result.strategy,
        }
    )
