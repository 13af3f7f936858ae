"""Who proposes the next trial: searchers of our own over Optuna's ask and tell.

Ray's OptunaSearch cannot say what a federated search needs: it tells a trial that was stopped early
as complete, never tells one whose metric is NaN, and cannot walk a grid. Here every trial ends in
the state it deserves: COMPLETE, PRUNED (stopped early, or diverged) or FAIL.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import optuna
from ray.tune.search import Searcher

from fltune.search.space import Space

REASKS = 30
"""Times an already tried point is told its known score and another one is asked for."""


def make_sampler(name: str, budget: int, seed: int) -> optuna.samplers.BaseSampler:
    """Return an Optuna sampler.

    TPE draws its first points at random, ten by default: with a small budget it would never come to
    learn, so here they are at most a third of it.
    """
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(n_startup_trials=max(1, min(10, budget // 3)), seed=seed)


class ListSearcher(Searcher):
    """Runs given configs, each once, in order: the cells of an exact grid.

    Args:
        configs: what each trial gets on top of the shared config.
    """

    def __init__(self, configs: Iterable[dict[str, Any]]) -> None:
        super().__init__(metric="objective", mode="max")
        self.configs = list(configs)
        self.next = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """Return the next config, or FINISHED."""
        if self.next == len(self.configs):
            return Searcher.FINISHED
        self.next += 1
        return self.configs[self.next - 1]

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A list learns nothing."""

    def save(self, checkpoint_path: str) -> None:
        """Write the position."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self.next))

    def restore(self, checkpoint_path: str) -> None:
        """Read the position."""
        self.next = pickle.loads(Path(checkpoint_path).read_bytes())


class OptunaSearcher(Searcher):
    """Asks an Optuna study for values and tells it how each trial ended.

    A run is a function of its config and seed, so a point that was tried before is not run again:
    the study is told its known score and asked anew.

    Args:
        space: what is searched.
        sampler: ``tpe`` or ``random``.
        budget: trials in all.
        seed: seed of the proposals.
        maximize: whether a larger objective is better.
        worst: the finite score of a trial that diverged.
    """

    def __init__(
        self, space: Space, sampler: str, budget: int, seed: int, maximize: bool, worst: float
    ) -> None:
        super().__init__(metric="objective", mode="max" if maximize else "min")
        self.space = space
        self.budget = budget
        self.worst = worst
        self.asked = 0
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(
            direction="maximize" if maximize else "minimize",
            sampler=make_sampler(sampler, budget, seed),
        )
        self._running: dict[str, int] = {}
        self._scores: dict[str, float | None] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """Return ``{"values": {dotted name: value}}``, or FINISHED when the budget is spent."""
        if self.asked == self.budget:
            return Searcher.FINISHED
        self.asked += 1
        for attempt in range(REASKS + 1):
            trial = self.study.ask(self.space.distributions())
            values = self.space.decode(trial.params)
            key = repr(values)
            if key not in self._scores or attempt == REASKS:
                break
            known = self._scores[key]
            if known is None:  # running, diverged or failed: no score to repeat
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self.study.tell(trial, known)
        self._running[trial_id] = trial.number
        self._scores.setdefault(key, None)
        trial.set_user_attr("key", key)
        return {"values": values}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the study how a trial ended; whatever happened, it does not stay RUNNING."""
        number = self._running.pop(trial_id, None)
        if number is None:
            return
        trial = optuna.trial.Trial(self.study, self.study.trials[number]._trial_id)
        if error or not result or "objective" not in result:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        objective, round = float(result["objective"]), int(result["round"])
        diverged = result.get("diverged") or not math.isfinite(objective)
        if diverged:
            trial.set_user_attr("diverged", True)
            objective = self.worst
        if diverged or not result.get("finished"):
            trial.report(objective, step=round)
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self._scores[trial.user_attrs["key"]] = objective
            self.study.tell(trial, objective)

    def save(self, checkpoint_path: str) -> None:
        """Write the study and what is running."""
        state = (self.study, self.asked, self._running, self._scores)
        Path(checkpoint_path).write_bytes(pickle.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote; the file is our own."""
        state = pickle.loads(Path(checkpoint_path).read_bytes())
        self.study, self.asked, self._running, self._scores = state
