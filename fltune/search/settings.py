"""The sections of a search file besides experiment and methods: budget, record, resources."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from fltune.experiment import Count, Seed
from fltune.schema import Integer, Real, Section, located, problem, validate
from fltune.search.names import plain_name
from fltune.search.objective import Constraint, Judge, Objective, check_metric, natural_mode
from fltune.search.resources import RaySettings, Resources
from fltune.search.samplers import SINGLE, check_options, sampler_name

Mode = Literal["max", "min"]


def _as_problem(check: Callable[[str], str]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, str):
            return value  # the type itself says what is wrong
        try:
            return check(value)
        except ValueError as error:
            raise problem(str(error)) from None

    return checked


def _pack(value: Any) -> Any:
    if value != "auto" and (type(value) is not int or value < 1):
        raise problem(f"found {value!r}; auto, or how many runs go together: 1, 2, ...")
    return value


Metric = Annotated[str, BeforeValidator(_as_problem(check_metric))]


class ObjectiveSection(Section):
    """One of several objectives; what it leaves open is as in ``search``."""

    metric: Metric = Field(description="a row's metric, such as val/accuracy or comm/up_bits")
    mode: Mode | None = Field(None, description="null: min for losses and totals, else max")
    target: Real | None = Field(
        None, description="if given, the score is the rounds until the metric reaches it"
    )
    select: Literal["last", "best", "mean"] | None = Field(None, description="as in search")
    average_last: Count | None = Field(None, description="as in search")

    @model_validator(mode="after")
    def _is_clear(self) -> ObjectiveSection:
        if self.mode is None and natural_mode(self.metric) is None:
            raise problem(f"{self.metric} is a metric of your own; say mode: max or mode: min")
        if self.target is not None and (self.select or self.average_last):
            raise problem("target counts rounds; select and average_last do not apply to it")
        return self


class ConstraintSection(Section):
    """A bound on a metric at the end of a run."""

    max: Real | None = Field(None, description="largest allowed value")
    min: Real | None = Field(None, description="smallest allowed value")

    @model_validator(mode="after")
    def _is_a_bound(self) -> ConstraintSection:
        if self.max is None and self.min is None:
            raise problem("give a bound, such as {max: 1.0e+9} or {min: 0.8}")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise problem(f"min {self.min:g} is above max {self.max:g}")
        return self


def _objective(raw: Any) -> Any:
    return validate(ObjectiveSection, {"metric": raw} if isinstance(raw, str) else raw)


Goal = Annotated[ObjectiveSection, BeforeValidator(_objective)]
Limit = Annotated[ConstraintSection, BeforeValidator(lambda r: validate(ConstraintSection, r))]


def _named_metrics(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    wrong = []
    for name in raw:
        try:
            check_metric(str(name))
        except ValueError as error:
            wrong.append(located(str(name), str(error)))
    if wrong:
        raise ValidationError.from_exception_data("constraints", wrong)
    return raw


class SearchSettings(Section):
    """The budget, and how winners are chosen."""

    sampler: Annotated[
        Literal["tpe", "random", "qmc", "gp", "cmaes", "nsga2", "grid"],
        BeforeValidator(_as_problem(sampler_name)),
    ] = Field(
        "tpe",
        description="how values are proposed, by Optuna's sampler of that name; a finite space "
        "with no more cells than trials is always run as an exact grid. cmaes draws choices at "
        "random: it knows numbers only",
    )
    sampler_options: dict[str, Any] = Field(
        {}, description="arguments of Optuna's sampler, such as {multivariate: false}"
    )
    trials: Count = Field(20, description="trials per method; a grid runs each cell once")
    rounds: Count | None = Field(
        None,
        description="rounds that a trial makes at most; null: all of its experiment. Winners are "
        "confirmed over all rounds",
    )
    metric: Metric = Field("val/accuracy", description="what winners are chosen by")
    mode: Mode | None = Field(None, description="null: min for losses and totals, else max")
    select: Literal["last", "best", "mean"] | None = Field(
        None,
        description="the score of a run: its last evaluation, its best one, or the mean of its "
        "last average_last ones; null: mean if average_last > 1, else last",
    )
    average_last: Count = Field(
        1, description="mean over the last k evaluations as the score; with best, over any k"
    )
    objectives: list[Goal] = Field(
        [], description="several metrics at once, the first is the main one; instead of metric"
    )
    constraints: Annotated[dict[str, Limit], BeforeValidator(_named_metrics)] = Field(
        {}, description="bounds that a winner must keep, such as {comm/up_bits: {max: 1.0e+9}}"
    )
    scheduler: Literal["none", "asha", "hyperband", "median"] = Field(
        "none", description="early stopping of trials, among those of the same method"
    )
    grace: Count = Field(10, description="rounds before a scheduler may stop a trial")
    reduction: Annotated[Real, Field(gt=1)] = Field(
        3.0, description="asha and hyperband keep 1/reduction of the trials at a rung"
    )
    first_panel: Count | None = Field(
        None,
        description="asha and hyperband: so many clients judge on the first rung, reduction times "
        "as many on each further one, and all after the last; null: all judge everywhere. Needs "
        "data.val_from: clients, or data with clients of its own",
    )
    brackets: Count | None = Field(
        None, description="hyperband: asha's of ever longer grace; null: as many as fit"
    )
    min_trials: Count = Field(
        3, description="median: other trials that must have come as far, before it stops one"
    )
    seeds: Count = Field(
        1,
        description="seeds on which each config is run in the search; its score is their mean, and "
        "it has diverged if it does on any",
    )
    confirm_seeds: Annotated[Integer, Field(ge=0)] = Field(
        3, description="fresh seeds on which each winner is run again, on the test split"
    )
    confirm_top: Count = Field(
        1,
        description="so many of a method's best configs are confirmed; the one with the best score "
        "on the fresh seeds is reported",
    )
    deterministic: bool = Field(
        False,
        description="propose in batches and learn from a whole batch at once: the same search with "
        "any number of workers; else who is quicker changes what is proposed. At which trial a cap "
        "(max_...) ends it still depends on the workers",
    )
    batch: Count = Field(8, description="proposals in a batch of a deterministic search")
    extend_edges: Annotated[Integer, Field(ge=0)] = Field(
        0, description="times a space is widened, and searched on, where its winner is on an edge"
    )
    max_seconds: Annotated[Real, Field(gt=0)] | None = Field(
        None, description="wall-clock seconds after which no trial starts; winners are confirmed"
    )
    max_client_samples: Count | None = Field(
        None, description="the same for samples processed by clients, of all trials together"
    )
    max_bytes: Annotated[Real, Field(gt=0)] | None = Field(
        None, description="the same for bytes sent, up and down"
    )
    seed: Seed = Field(0, description="seed of the proposals")
    concurrent: Count | None = Field(None, description="trials at once; null: as many as fit")
    pack: Annotated[Literal["auto"] | int, BeforeValidator(_pack)] = Field(
        "auto",
        description="runs of a method that go as one computation where they differ in numbers "
        "alone (rates, momenta ...): at most so many; 1: each by itself. auto: as many as pay on "
        "the model, so that every worker gets two packs at least and a sampler that learns has at "
        "most a fifth of its trials in flight; of a deterministic search half a batch",
    )

    @model_validator(mode="before")
    @classmethod
    def _main_objective(cls, raw: Any) -> Any:
        """Let metric and mode tell of the first objective, unless they say something else."""
        listed = raw.get("objectives") if isinstance(raw, Mapping) else None
        if not isinstance(listed, list) or not listed:
            return raw
        first = listed[0] if isinstance(listed[0], Mapping) else {"metric": listed[0]}
        own = {key: first.get(key) for key in ("metric", "mode") if first.get(key) is not None}
        return {**own, **{k: v for k, v in raw.items() if v is not None or k not in own}}

    @model_validator(mode="after")
    def _goes_together(self) -> SearchSettings:
        wrong = [
            *self._selection_problems(),
            *self._sampler_problems(),
            *self._stop_problems(),
            *self._panel_problems(),
        ]
        if wrong:
            raise ValidationError.from_exception_data("SearchSettings", wrong)
        return self

    def _selection_problems(self) -> list[InitErrorDetails]:
        wrong = []
        if not self.objectives and self.mode is None and natural_mode(self.metric) is None:
            wrong.append(located("mode", f"say max or min; {self.metric} is a metric of your own"))
        if self.objectives:
            first = self.objectives[0]
            if (self.metric, self.mode or first.mode) != (first.metric, first.mode):
                text = f"the first of objectives is {first.metric!r}; leave metric and mode out"
                wrong.append(located("metric", text))
        goals = self.goals
        for i, goal in enumerate(goals):
            if goal in goals[:i]:
                wrong.append(located("objectives", f"{goal.label} is named twice"))
        sections: list[tuple[str, Any]] = [("select", self)]
        for where, own in [*sections, *(("objectives", o) for o in self.objectives)]:
            select, k = own.select or self.select, own.average_last or self.average_last
            if select == "mean" and k == 1:
                wrong.append(located(where, "mean of one evaluation; set average_last: 3, say"))
            if select == "last" and k > 1:
                wrong.append(located(where, f"last is one evaluation, average_last is {k}"))
        return wrong

    def _sampler_problems(self) -> list[InitErrorDetails]:
        wrong = []
        if self.sampler in SINGLE and len(self.goals) > 1:
            text = f"{self.sampler} knows one objective; take tpe, nsga2, gp, qmc or random"
            wrong.append(located("sampler", text))
        if self.sampler == "cmaes" and importlib.util.find_spec("cmaes") is None:
            wrong.append(located("sampler", "cmaes needs the package cmaes: pip install cmaes"))
        for option, text in check_options(self.sampler, self.sampler_options):
            key = f"sampler_options.{option}".rstrip(".")
            wrong.append(located(key, text))
        return wrong

    def _stop_problems(self) -> list[InitErrorDetails]:
        if self.scheduler == "none":
            return []
        if len(self.goals) > 1:
            text = f"{self.scheduler} ranks trials by one objective; with several, take none"
            return [located("scheduler", text)]
        if self.goals[0].target is not None:
            text = f"rounds to a target are not known early; with {self.goals[0].label} take none"
            return [located("scheduler", text)]
        return []

    def _panel_problems(self) -> list[InitErrorDetails]:
        if self.first_panel is None:
            return []
        if self.scheduler not in ("asha", "hyperband"):
            text = f"scheduler {self.scheduler} has no rungs; take asha or hyperband, or drop it"
            return [located("first_panel", f"found {self.first_panel}; {text}")]
        if any(goal.best or goal.average_last > 1 for goal in self.goals):
            text = "scores of several evaluations mix what few and many clients say; take select"
            return [located("first_panel", f"found {self.first_panel}; {text}: last, or drop it")]
        return []

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives, the main one first."""
        if self.objectives:
            return tuple(self._goal(own, own.target) for own in self.objectives)
        return (self._goal(self, None),)

    def _goal(self, own: SearchSettings | ObjectiveSection, target: float | None) -> Objective:
        return Objective(
            metric=own.metric,
            maximize=(own.mode or natural_mode(own.metric)) == "max",
            average_last=own.average_last or self.average_last,
            best=(own.select or self.select) == "best",
            target=target,
        )

    @property
    def objective_name(self) -> str:
        """What the main score is, in short."""
        return self.goals[0].label

    @property
    def limits(self) -> tuple[Constraint, ...]:
        """The constraints, in the file's order."""
        return tuple(Constraint(name, c.min, c.max) for name, c in self.constraints.items())

    @property
    def maximize(self) -> bool:
        """Whether a larger score is better, of the main objective."""
        return self.goals[0].direction == "maximize"

    def judge(self, max_loss: float, rounds: int) -> Judge:
        """Return what judges one run of so many rounds."""
        return Judge(self.goals, self.limits, max_loss=max_loss, rounds=rounds)


class Tracking(Section):
    """Where the record goes."""

    uri: str | None = Field(
        None, description="MLflow store; null: MLFLOW_TRACKING_URI, or sqlite in root"
    )
    root: str = Field("mlruns", description="folder of the local store and of the searches' state")
    experiment: str | None = Field(None, description="MLflow experiment; null: the file's name")


class About(Section):
    """What a file is, for those who list files; nothing is computed from it."""

    paper: str | None = Field(None, description="whose experiment it is")
    experiment: str | None = Field(None, description="which one, such as fedgm-fig5")
    mini_of: list[str] = Field([], description="experiments that it is a small variant of")
    shows: str | None = Field(None, description="what its figure or table shows, in one line")


class Settings(Section):
    """The sections of a file besides the experiment and the methods."""

    about: About = About()
    search: SearchSettings = SearchSettings()
    tracking: Tracking = Tracking()
    resources: Resources = Resources()
    ray: RaySettings = RaySettings()
    name: Annotated[str | None, BeforeValidator(_as_problem(plain_name))] = Field(
        None, description="name of the search; null: file name and time"
    )
