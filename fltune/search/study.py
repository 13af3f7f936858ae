"""From the history of a search to the Optuna study that a sampler looks at, and back.

A study is made anew for every look at it: its trials are the history's, in the order of their
numbers, each in the state that it deserves.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fltune.search.cma_state import PREFIXES, from_plain, to_plain
from fltune.search.samplers import BLIND

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage

    from fltune.search.frozen import SharedTrial

STATES = ("complete", "pruned", "diverged", "failed")
KEPT = (*PREFIXES, "x_for_tell", "NSGAIISampler:")
"""Attributes of a trial by which Optuna's samplers remember; the others repeat its values."""


@dataclass(frozen=True)
class Outcome:
    """How one trial ended.

    Attributes:
        state: complete, pruned (stopped early), diverged or failed.
        scores: one per objective; empty if there are none.
        round: rounds made.
        violations: one per constraint, > 0 where it is broken.
        intermediate: the score of a single objective by round.

    Raises:
        ValueError: an unknown state, or a complete trial without scores.
    """

    state: str
    scores: Sequence[float] = ()
    round: int = 0
    violations: Sequence[float] = ()
    intermediate: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"found state {self.state!r}; must be one of {', '.join(STATES)}")
        if self.state == "complete" and not self.scores:
            raise ValueError("a complete trial has a score for each objective; found none")

    @property
    def complete(self) -> bool:
        """Whether it ran to its end, with scores that are numbers."""
        return self.state == "complete" and all(map(math.isfinite, self.scores))


@dataclass(frozen=True)
class PastTrial:
    """A trial of the history, inside the present space.

    Attributes:
        number: of the proposal; negative for a warm point with a known score.
        params: what Optuna stores of its point.
        distributions: what its active parameters are drawn from.
        attrs: what Optuna's samplers remember of it.
        outcome: None while it runs.
    """

    number: int
    params: dict[str, Any]
    distributions: dict[str, BaseDistribution]
    attrs: dict[str, Any]
    outcome: Outcome | None


class Look(NamedTuple):
    """What the look of one trial depends on besides itself.

    Attributes:
        horizon: rounds behind which trials that diverged are set back.
        blind: the scores of PRUNED trials, for a sampler that looks at complete ones only.
        expected: violations of a trial, where its own are not known.
    """

    horizon: int
    blind: tuple[float, ...]
    expected: int


class StudyMaker:
    """Makes studies of histories.

    COMPLETE, FAIL and RUNNING are what they say; PRUNED are trials that were stopped early, with
    their scores by round, and those that diverged, with the worst score. With several objectives a
    PRUNED trial has no values: Optuna has no place for more than one.

    Args:
        directions: ``maximize`` or ``minimize``, per objective.
        worst: the finite scores of a trial that diverged.
        constraints: whether trials come with violations.
    """

    def __init__(
        self, directions: Sequence[str], worst: Sequence[float], constraints: bool
    ) -> None:
        self.directions = list(directions)
        self.worst = [float(w) for w in worst]
        self.constraints = constraints
        self._made: dict[int, tuple[PastTrial, Look | None, SharedTrial]] = {}

    def make(
        self,
        past: Sequence[PastTrial],
        attrs: Mapping[str, Any] | None = None,
        sampler: str | None = None,
    ) -> tuple[Study, BaseStorage]:
        """Return a study and its storage.

        Args:
            past: the trials, in order.
            attrs: what samplers keep with the study; see :func:`remembered`.
            sampler: None: the study as it is. A sampler's name: as it should look to that one.
                TPE prefers the PRUNED trial that got furthest, so those that diverged are set back
                behind all that were stopped. Samplers that look at COMPLETE trials only would
                propose the region again in which all diverge: to them a trial that was stopped or
                diverged looks like the worst complete one so far.
        """
        import optuna

        storage = optuna.storages.InMemoryStorage()
        study = optuna.create_study(storage=storage, directions=self.directions)
        told = [t.outcome for t in past if t.outcome is not None]
        blind = self._worst_of([o for o in told if o.complete]) if sampler in BLIND else []
        horizon = 1 + max((o.round for o in told), default=0)
        count = max((len(o.violations) for o in told), default=0)
        look = Look(0 if sampler is None else horizon, tuple(blind), count)
        own = study_id(study, storage)
        for trial in past:
            storage.create_new_trial(own, template_trial=self._frozen(trial, look))
        self._set_attrs(study, storage, past, attrs or {})
        return study, storage

    def _frozen(self, trial: PastTrial, look: Look) -> SharedTrial:
        """Return a trial as Optuna keeps it: the one made before, if it would be the same.

        To make one takes a fraction of a millisecond, too long for thousands at every proposal.
        """
        outcome = trial.outcome
        by_look = outcome is not None and (self.constraints or not outcome.complete)
        key = look if by_look else None
        before = self._made.get(trial.number)
        if before is None or before[0] is not trial or before[1] != key:
            before = self._made[trial.number] = trial, key, self._make_frozen(trial, look)
        return before[2]

    def _make_frozen(self, trial: PastTrial, look: Look) -> SharedTrial:
        from optuna.trial import TrialState

        from fltune.search.frozen import SharedTrial

        kept: dict[str, Any] = {"state": TrialState.RUNNING}
        if trial.outcome is not None:
            kept = self._standing(trial.outcome, look.horizon)
            if look.blind and kept["state"] == TrialState.PRUNED:
                kept = {"state": TrialState.COMPLETE, "values": list(look.blind)}
            kept["constraints"] = self._violations(trial.outcome, look.expected)
            kept["user_attrs"] = {"number": trial.number, "outcome": trial.outcome.state}
        return SharedTrial.make(
            params=trial.params,
            distributions=trial.distributions,
            system_attrs=from_plain(trial.attrs),
            **kept,
        )

    def _standing(self, outcome: Outcome, horizon: int) -> dict[str, Any]:
        from optuna.trial import TrialState

        if outcome.state == "failed":
            return {"state": TrialState.FAIL}
        if outcome.complete:
            return {"state": TrialState.COMPLETE, "values": [float(s) for s in outcome.scores]}
        if len(self.directions) > 1:
            return {"state": TrialState.PRUNED}
        (worst,) = self.worst
        if outcome.state == "pruned":
            told = outcome.intermediate or {outcome.round: next(iter(outcome.scores), worst)}
            steps = {int(r): s if math.isfinite(s) else worst for r, s in sorted(told.items())}
        else:
            steps = {outcome.round - horizon: worst}
        last = steps[max(steps)]
        return {"state": TrialState.PRUNED, "values": [last], "intermediate_values": steps}

    def _worst_of(self, complete: Sequence[Outcome]) -> list[float]:
        if not complete:
            return []
        columns = zip(*(o.scores for o in complete), strict=True)
        worse = [min if d == "maximize" else max for d in self.directions]
        return [float(pick(column)) for pick, column in zip(worse, columns, strict=True)]

    def _violations(self, outcome: Outcome, count: int) -> dict[str, float] | None:
        if not self.constraints:
            return None
        # GP wants as many of each trial; where they are not known, they count as kept
        own = [v if math.isfinite(v) else 1.0 for v in outcome.violations] or [0.0] * count
        return {str(i): float(v) for i, v in enumerate(own)}

    def _set_attrs(
        self,
        study: Study,
        storage: BaseStorage,
        past: Sequence[PastTrial],
        attrs: Mapping[str, Any],
    ) -> None:
        place = {trial.number: i for i, trial in enumerate(past)}
        for key, value in attrs.items():
            if isinstance(value, list):  # a population, by numbers of ours
                value = [place[number] for number in value if number in place]
            if value != []:
                storage.set_study_system_attr(study_id(study, storage), key, value)


def study_id(study: Study, storage: BaseStorage) -> int:
    """Return the number by which a storage knows a study."""
    return storage.get_study_id_from_name(study.study_name)


def remembered(
    study: Study,
    storage: BaseStorage,
    trial: Trial,
    past: Sequence[PastTrial],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what must be known of a trial just asked for, to make its study again; JSON.

    In a study of its own storage a trial's place is its identity, so populations are kept by the
    numbers of the trials in them.

    Args:
        study, storage: as made by :meth:`StudyMaker.make`.
        trial: what was asked for.
        past: the trials that the study was made of.
        before: the attributes that it was made with.
    """
    own = study.get_trials(deepcopy=False)[trial.number].system_attrs
    kept = to_plain({k: v for k, v in own.items() if k.startswith(KEPT)})
    shared = {
        key: [past[i].number for i in value] if isinstance(value, list) else value
        for key, value in storage.get_study_system_attrs(study_id(study, storage)).items()
    }
    changed = {k: v for k, v in shared.items() if before.get(k) != v}
    return {k: v for k, v in (("trial", kept), ("study", changed)) if v}


def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    """Draw one parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    assert isinstance(distribution, (FloatDistribution, IntDistribution))
    low, high, log = distribution.low, distribution.high, distribution.log
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, int(low), int(high), step=distribution.step, log=log)
    return trial.suggest_float(name, low, high, step=distribution.step, log=log)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's notes on studies made and parameters drawn independently."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
