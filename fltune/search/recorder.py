"""Keeps every ended trial: first in a file of our own, then in MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape

from fltune.report.summary import MethodSummary, Summary, mean_curve
from fltune.search.config import Method
from fltune.search.record import CONFIRMATION, RecordFile, TrialRecord
from fltune.tracking import MethodBranch, SearchTree, TrackingError


class Recorder:
    """Keeps every ended trial: first in our own file, then in MLflow.

    A store that fails in the middle costs no result: it is named once, and the file goes on.

    Args:
        tree: the search's runs in MLflow.
        file: our own record.
        console: where a failing store is named.
    """

    def __init__(self, tree: SearchTree, file: RecordFile, console: Console) -> None:
        self.tree = tree
        self.file = file
        self.console = console
        self.alive = True
        self._branches: dict[str, MethodBranch] = {}
        self._methods: dict[str, Method] = {}

    def open(self, method: Method) -> None:
        """Make the run of a method."""
        self._methods[method.name] = method
        fixed = method.experiment(method.first_values()).as_params()
        params = {k: v for k, v in fixed.items() if k not in method.space.dimensions}

        def write() -> None:
            branch = self.tree.method(method.name, params)
            self._branches[method.name] = branch
            branch.run.log_dict(_partition_of(method), "partition.json")

        self._try(write)

    def ended(self, trial: TrialRecord) -> None:
        """Keep one ended trial or confirmation run."""
        self.file.append(trial)
        confirmation = trial.kind == CONFIRMATION
        values = {**trial.values, "seed": trial.seed} if confirmation else trial.values
        own = yaml.safe_dump(self._methods[trial.method].raw_with(values), sort_keys=False)
        totals = {f"comm/{name}": bits for name, bits in trial.comm.items()}
        final: dict[str, Any] = {**trial.metrics, **totals, "client_samples": trial.client_samples}
        final.update({f"participation/{k}": v for k, v in trial.participation.items()})
        if trial.score is not None and not confirmation:
            final["score"] = trial.score

        def write() -> None:
            branch = self._branches[trial.method]
            common = {"status": trial.status, "stop_reason": trial.message, "config_yaml": own}
            if confirmation:
                branch.confirmation(trial.seed, trial.values, trial.rows, final, **common)
            else:
                branch.trial(trial.number, trial.values, trial.rows, summary=final, **common)

        self._try(write)

    def method_done(
        self, name: str, summary: MethodSummary, confirmed: Sequence[TrialRecord]
    ) -> None:
        """Give the method's run its winner and its confirmed metrics."""

        def write() -> None:
            branch = self._branches[name]
            if not summary.best:
                branch.fail("no trial completed")
                return
            metrics: dict[str, Any] = {
                key: {"mean": i.mean, "std": i.std, "low": i.low, "high": i.high}
                for key, i in summary.metrics.items()
            }
            metrics["search/score"] = summary.val
            counts = {k: getattr(summary, k) for k in ("trials", "pruned", "diverged", "failed")}
            branch.run.set_tags({f"fltune.{k}": v for k, v in counts.items()})
            metrics["search/client_samples"] = float(summary.client_samples)
            branch.finish(summary.best, mean_curve(confirmed), metrics)

        self._try(write)

    def close(self, summary: Summary, note: str) -> None:
        """End the search's run."""
        self._try(lambda: self.tree.finish(note))

    def _try(self, write: Any) -> None:
        if not self.alive:
            return
        try:
            write()
        except TrackingError as error:
            self.alive = False
            self.console.print(
                f"[red]the tracking store failed:[/red] {escape(str(error))}\n"
                f"The search goes on; every result is in {escape(str(self.file.path))}.",
                highlight=False,
                soft_wrap=True,
            )


def _partition_of(method: Method) -> dict[str, Any]:
    """Return who holds what in the trials of a method: summary, sizes, label histograms."""
    from fltune.runner import load_data

    experiment = method.experiment(method.first_values())
    data = load_data(experiment.data, experiment.seed)
    return {**data.report(), **data.holdings()}
