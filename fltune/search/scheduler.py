"""Early stopping, a scheduler per method: trials are ranked against their own method's only."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from fltune.search.config import SearchConfig
from fltune.search.record import TRIAL


class PerMethodASHA(FIFOScheduler):
    """ASHA (Li et al. 2020) with a round as the resource, a bracket per method.

    Confirmation runs are never stopped.

    Args:
        config: the search; says grace, reduction and each method's rounds.
    """

    def __init__(self, config: SearchConfig) -> None:
        super().__init__()
        search = config.settings.search
        self._schedulers = {}
        for name, method in config.methods.items():
            rounds = method.experiment(method.first_values()).rounds
            self._schedulers[name] = ASHAScheduler(
                time_attr="round",
                metric="objective",
                mode="max" if search.maximize else "min",
                max_t=rounds,
                grace_period=min(search.grace, rounds),
                reduction_factor=search.reduction,
            )

    def _of(self, trial: Any) -> ASHAScheduler | None:
        return self._schedulers[trial.config["method"]] if trial.config["kind"] == TRIAL else None

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Put a trial into its method's bracket."""
        if (own := self._of(trial)) is not None:
            own.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Continue or stop."""
        own = self._of(trial)
        if own is None or result.get("finished"):
            return TrialScheduler.CONTINUE
        return own.on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Let the bracket note a trial's last result."""
        if (own := self._of(trial)) is not None:
            own.on_trial_complete(tune_controller, trial, result)
