"""What an experiment claims, and how its figure and its table are: three sections of a search file.

    figure: {y: [val/accuracy], panels: method}
    numbers:
      accuracy: {table: Table 1, columns: {Synthetic-(0,0): {data: Synthetic 0-0}}}
    claims:
      fedavg-collapses:
        says: FedAvg collapses at a server rate of 5
        statistic: level
        of: FedAvg
        where: {eta: eta 5}
        below: 0.5

They belong to the file that says them: a file that ``extends`` another makes claims of its own. A
method's name stands for the method in every cell that ``where`` leaves, and the claim has to hold
in each; ``METHOD @ LABEL, LABEL`` is one cell alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fltune import dotted
from fltune.errors import ConfigError, nearest
from fltune.experiment import Count
from fltune.schema import Real, Section, located, problem, problems, validate
from fltune.search.objective import METRICS, check_metric

StatisticName = Literal[
    "level",
    "difference",
    "ratio",
    "smallest_step",
    "largest_step",
    "spread",
    "growth",
    "ratio_growth",
    "computed",
]
Take = Literal["last", "mean", "sd", "best", "rounds", "equal_bits", "equal_uplink", "setting"]

TWO_SIDED = ("difference", "ratio", "growth", "ratio_growth")
"""Statistics that compare ``of`` with ``than``."""
OF_A_RUN = ("tau_max", "tau_avg", "coverage", "fairness", "count_cv")
"""What a run's end says of ``participation``, besides the totals of its rows."""
ENDS = ("test/accuracy", "test/loss", *METRICS, *(f"participation/{name}" for name in OF_A_RUN))
"""Metrics that a run may end with."""
EXACT = ("comm/up_bits", "comm/down_bits")
"""Metrics that are counted and not estimated: every seed has the same, if cohorts have one size."""
ALONG = ("smallest_step", "largest_step", "spread", "growth", "ratio_growth")
"""Statistics that go from label to label of an axis."""


class Theirs(Section):
    """Where a paper prints the numbers that a claim's statistic is made of."""

    table: str = Field(description="as the paper numbers it: Table 4")
    rows: Annotated[list[str], Field(min_length=1)] = Field(description="row labels, of first")
    columns: Annotated[list[str], Field(min_length=1)] = Field(description="column labels")


class Reading(Section):
    """The one number that is read from a run."""

    metric: str = Field("test/accuracy", description="of a run's end, or of its rows")
    take: Take = Field(
        "last",
        description="what of a run: the metric at its end; mean, sd or best of its last `over` "
        "evaluations; rounds until it reaches `target`; its value when all compared runs have sent "
        "equal bits, in all or up; or the winner's setting of that name",
    )
    over: Count = Field(10, description="evaluations that mean, sd and best look at")
    target: Real | None = Field(None, description="of the metric, for rounds")

    @model_validator(mode="after")
    def _has_its_target(self) -> Self:
        if (self.target is not None) != (self.take == "rounds"):
            word = "needs" if self.target is None else "has no use for"
            raise problem(f"take: {self.take} {word} a target")
        return self

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        """Refuse what no run has: it would be found out after the training."""
        told = {"metric": self._wrong_metric(), "target": self._out_of_reach()}
        if self.take == "sd" and self.over < 2:
            told["over"] = f"found {self.over}; a deviation needs two evaluations or more"
        if wrong := [located(key, text) for key, text in told.items() if text]:
            raise ValidationError.from_exception_data("Reading", wrong)
        return self

    def _wrong_metric(self) -> str:
        if self.take == "setting":
            return ""  # which there are, the file's methods say
        if self.take == "last":
            return _wrong_end(self.metric)
        if self.metric.startswith("test/"):
            return (
                f"found {self.metric!r}; take: {self.take} looks at a run's rounds, and test data "
                "is touched once, at its end: name a metric of the rounds, such as val/accuracy"
            )
        try:
            check_metric(self.metric)
        except ValueError as error:
            return str(error)
        return ""

    def _out_of_reach(self) -> str:
        if self.target is None or not self.metric.endswith("accuracy") or 0 < self.target <= 1:
            return ""
        return f"found {self.target:g}; an accuracy is a share: above 0, and at most 1"

    @property
    def exact(self) -> bool:
        """Whether all seeds have the same number, so that one of them tells it."""
        return self.take == "setting" or (self.take == "last" and self.metric in EXACT)

    @property
    def reading(self) -> str:
        """What is read from a run, in words."""
        if self.take == "rounds":
            return f"rounds until {self.metric} is {self.target:g}"
        words = {
            "last": self.metric,
            "mean": f"mean of the last {self.over} {self.metric}",
            "sd": f"standard deviation of the last {self.over} {self.metric}",
            "best": f"best {self.metric}",
            "equal_bits": f"{self.metric} at equal bits",
            "equal_uplink": f"{self.metric} at equal uplink bits",
            "setting": f"the chosen {self.metric}",
        }
        return words[self.take]


def _wrong_end(metric: str) -> str:
    """Return why no run ends with a metric; empty if one may."""
    if metric in ENDS:
        return ""
    name = metric.removeprefix("test/")
    try:  # a user's own module may log others, of the test data too
        check_metric(metric if name == metric else f"val/{name}")
    except ValueError:
        return (
            f"found {metric!r}{nearest(metric, ENDS)}; must be one of {', '.join(ENDS)}, or a "
            "metric of your own that starts with test/, val/ or train/"
        )
    return ""


class Claim(Reading):
    """One claim: a statistic of the confirmed runs, and what it must be."""

    says: str = Field(description="the claim in words")
    statistic: StatisticName = Field(description="see fltune.reproduce.statistics")
    of: str = Field(description="a method, a method in one cell, or a computed value's name")
    than: str | None = Field(None, description="what it is compared with")
    along: str | None = Field(None, description="the axis that a statistic goes along")
    labels: list[str] = Field([], description="of that axis, in order; empty: all")
    where: dict[str, str] = Field({}, description="a label for each axis that is held")
    above: Real | None = Field(None, description="the statistic must be at least this")
    below: Real | None = Field(None, description="the statistic must be at most this")
    theirs: Theirs | None = Field(None, description="the printed numbers, where there are any")
    note: str = Field("", description="what explains the outcome; it decides nothing")

    @model_validator(mode="after")
    def _goes_together(self) -> Claim:
        if self.above is None and self.below is None:
            raise problem("give a threshold: above, below, or both")
        if self.above is not None and self.below is not None and self.above > self.below:
            raise problem(f"above {self.above:g} leaves nothing below {self.below:g}")
        if (self.than is not None) != (self.statistic in TWO_SIDED):
            word = "needs" if self.than is None else "knows no"
            raise problem(f"{self.statistic} {word} than")
        if (self.along is not None) != (self.statistic in ALONG):
            word = "needs" if self.along is None else "knows no"
            raise problem(f"{self.statistic} {word} along")
        return self

    @property
    def formula(self) -> str:
        """The statistic in words."""
        axis = f" along {self.along}"
        words = {
            "level": f"{self.of}: {self.reading}",
            "difference": f"{self.of} - {self.than}: {self.reading}",
            "ratio": f"{self.of} / {self.than}: {self.reading}",
            "smallest_step": f"{self.of}: smallest step{axis} of {self.reading}",
            "largest_step": f"{self.of}: largest step{axis} of {self.reading}",
            "spread": f"{self.of}: largest less smallest{axis} of {self.reading}",
            "growth": f"growth{axis} of {self.of} - {self.than}: {self.reading}",
            "ratio_growth": f"growth factor{axis} of {self.of} / that of {self.than}: "
            f"{self.reading}",
            "computed": self.of,
        }
        return words[self.statistic]

    @property
    def threshold(self) -> str:
        """The threshold in words."""
        if self.above == self.below:
            return f"exactly {self.above:g}"
        bounds = [f"at least {self.above:g}" if self.above is not None else ""]
        bounds.append(f"at most {self.below:g}" if self.below is not None else "")
        return " and ".join(filter(None, bounds))


Named = Annotated[Claim, BeforeValidator(lambda raw: validate(Claim, raw))]
"""A claim whose unknown keys are told with the nearest known one."""
Axis = Literal["round", "communication", "client_samples", "clock/seconds"]


class FigureSection(Section):
    """How the paper draws its figure; a line is a method in a cell."""

    x: Axis = Field("round", description="the horizontal axis; communication is bits up and down")
    y: list[str] = Field(["train/loss", "val/accuracy"], description="a picture for each")
    panels: str | None = Field(None, description="an axis, or method: a picture for each label")
    where: dict[str, str] = Field(
        {}, description="a label for each axis of which only that is drawn"
    )
    log: list[Literal["x", "y"]] = Field([], description="axes with a logarithmic scale")
    last: Count | None = Field(None, description="only the last so many rounds")


class Numbers(Reading):
    """A printed table of which ours are shown beside theirs; a number is one method's in a cell."""

    table: str = Field(description="as the paper numbers it: Table 4")
    columns: Annotated[dict[str, dict[str, str]], Field(min_length=1)] = Field(
        description="by printed label, what of ours a column is: a label for each of some axes"
    )
    rows: dict[str, dict[str, str]] = Field(
        {},
        description="likewise; `method` is one more axis. Empty: the rows that are called as our "
        "methods are",
    )

    @model_validator(mode="after")
    def _is_of_one_run(self) -> Self:
        if self.take in ("equal_bits", "equal_uplink"):
            raise problem(f"take: {self.take} is for claims, which say whom a run is compared with")
        return self


class Claims(Section):
    """The part of a file that is judged."""

    figure: FigureSection = FigureSection()
    numbers: dict[str, Annotated[Numbers, BeforeValidator(lambda raw: validate(Numbers, raw))]] = (
        Field({}, description="printed tables, by a name of ours")
    )
    claims: dict[str, Named] = Field({}, description="by name")
    computes: str | None = Field(None, description="what there is instead of training")


def read_claims(path: str | Path) -> Claims:
    """Return the claims and the figure of a search file; those of the files it extends are not its.

    Raises:
        ConfigError: all problems of the sections at once, with dotted keys.
    """
    raw = dotted.read_yaml(path)
    own: dict[str, Any] = {k: raw[k] for k in Claims.model_fields if raw.get(k) is not None}
    try:
        return validate(Claims, own)
    except ValidationError as error:
        raise ConfigError(problems(error), str(path)) from None
