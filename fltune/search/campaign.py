"""The order of work of a whole search: every method's trials, then its winner on fresh seeds.

All methods share one Ray Tuner, because a worker pays seconds of imports once, not once per method,
and no core waits for the last trial of a method. Each method keeps a proposer of its own, so its
proposals do not depend on the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from fltune.randomness import derive_seed
from fltune.search.config import Method, SearchConfig
from fltune.search.confirm import fresh_seeds, winner
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.searcher import ListSearcher, OptunaSearcher
from fltune.search.settings import SearchSettings
from fltune.search.trainable import worst_score

Job = dict[str, Any]
"""What a worker is told: method, kind, number, base (nested config), values, test."""


def proposer(method: Method, search: SearchSettings) -> ListSearcher | OptunaSearcher:
    """Return what proposes the values of a method's trials."""
    if method.exact(search):
        return ListSearcher({"values": cell} for cell in method.space.grid())
    return OptunaSearcher(
        method.space,
        search.sampler,
        search.trials,
        seed=derive_seed(search.seed, method.name) % 2**32,
        maximize=search.maximize,
        worst=worst_score(
            search.metric, search.maximize, method.experiment(method.first_values()).max_loss
        ),
    )


class Lane:
    """The work of one method, in order.

    Args:
        method: what is tuned.
        search: budget, and how the winner is chosen.
    """

    def __init__(self, method: Method, search: SearchSettings) -> None:
        self.method = method
        self.search = search
        self.proposer = proposer(method, search)
        self.trials: dict[str, TrialRecord] = {}
        self.running: set[str] = set()
        self.confirming: list[Job] | None = None

    def next(self, trial_id: str) -> Job | str | None:
        """Return the next job, None while the winner is not known yet, or FINISHED."""
        if self.confirming is None:
            proposed = self.proposer.suggest(trial_id)
            if isinstance(proposed, dict):
                return self._trial(trial_id, proposed["values"])
            if self.running:
                return None
            self.confirming = list(self._confirmations())
        return self.confirming.pop(0) if self.confirming else Searcher.FINISHED

    def _trial(self, trial_id: str, values: dict[str, Any]) -> Job:
        number = len(self.trials)
        seed = int(self.method.raw.get("seed", 0))
        self.trials[trial_id] = TrialRecord(self.method.name, TRIAL, number, values, seed)
        self.running.add(trial_id)
        return self._job(TRIAL, number, values, values, test=False)

    def _confirmations(self) -> Iterable[Job]:
        best = winner(list(self.trials.values()), self.search.maximize)
        if best is None:
            return
        for number, seed in enumerate(fresh_seeds(self.method, self.search.confirm_seeds)):
            values = {**best.values, "seed": seed}
            yield self._job(CONFIRMATION, number, values, best.values, test=True)

    def _job(
        self, kind: str, number: int, values: dict[str, Any], searched: dict[str, Any], test: bool
    ) -> Job:
        return {
            "method": self.method.name,
            "kind": kind,
            "number": number,
            "base": self.method.raw,
            "values": values,
            "searched": searched,
            "test": test,
        }

    def ended(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        """Learn how a trial ended; confirmations teach nothing."""
        if trial_id not in self.running:
            return
        self.running.remove(trial_id)
        self.proposer.on_trial_complete(trial_id, result, error)
        if result and not error and result.get("finished"):
            trial = self.trials[trial_id]
            trial.status = "diverged" if result["diverged"] else "complete"
            trial.score = result["objective"]


class Campaign(Searcher):
    """Hands out the jobs of all methods, a method's trials before the next one's.

    Args:
        config: the search.
    """

    def __init__(self, config: SearchConfig) -> None:
        search = config.settings.search
        super().__init__(metric="objective", mode="max" if search.maximize else "min")
        self.lanes = [Lane(method, search) for method in config.methods.values()]
        self._lane: dict[str, Lane] = {}

    def suggest(self, trial_id: str) -> Job | str | None:
        """Return the next job; None while all that is left waits for a winner; else FINISHED."""
        waiting = False
        for lane in self.lanes:
            job = lane.next(trial_id)
            if isinstance(job, dict):
                self._lane[trial_id] = lane
                return job
            waiting = waiting or job is None
        return None if waiting else Searcher.FINISHED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass an ended trial to its method; Ray may say so twice when something went wrong."""
        lane = self._lane.pop(trial_id, None)
        if lane is not None:
            lane.ended(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Write all lanes."""
        Path(checkpoint_path).write_bytes(pickle.dumps((self.lanes, self._lane)))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote; the file is our own."""
        self.lanes, self._lane = pickle.loads(Path(checkpoint_path).read_bytes())
