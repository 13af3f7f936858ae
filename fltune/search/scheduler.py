"""Early stopping inside Ray, per method: trials are ranked against their own method's only."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from fltune.search.config import SearchConfig
from fltune.search.record import TRIAL
from fltune.search.rungs import Rungs, make_rungs


class PerMethodStopping(FIFOScheduler):
    """Asks a method's :class:`~fltune.search.rungs.Rungs` after each report of its trials.

    Confirmation runs are never stopped, nor a trial with its final report.

    Args:
        config: the search; says which scheduler, and each method's rounds.
    """

    def __init__(self, config: SearchConfig) -> None:
        super().__init__()
        self._rungs = {
            name: make_rungs(
                config.settings.search, method.experiment(method.first_values()).rounds
            )
            for name, method in config.methods.items()
        }

    def _of(self, trial: Any) -> Rungs | None:
        return self._rungs[trial.config["method"]] if trial.config["kind"] == TRIAL else None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Continue or stop."""
        own = self._of(trial)
        if own is None:
            return TrialScheduler.CONTINUE
        hopeless = own.stop(trial.config["number"], int(result["round"]), result["objective"])
        final = result.get("finished", False)
        return TrialScheduler.STOP if hopeless and not final else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Let a trial that diverged count as the worst of all."""
        own = self._of(trial)
        if own is not None and result.get("diverged"):
            own.diverged(trial.config["number"])
