"""The sections of a search file besides experiment and methods: budget, record, resources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from fltune.errors import nearest
from fltune.experiment import Count, Seed
from fltune.schema import Integer, Real, Section, problem

METRICS = ("val/accuracy", "val/loss", "train/loss")


class SearchSettings(Section):
    """The budget, and how winners are chosen."""

    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe",
        description="how values are proposed; a finite space with no more cells than trials "
        "is always run as an exact grid",
    )
    trials: Count = Field(20, description="trials per method; a grid runs each cell once")
    metric: str = Field("val/accuracy", description="what winners are chosen by")
    mode: Literal["max", "min"] | None = Field(None, description="null: min for losses, else max")
    average_last: Count = Field(1, description="mean over the last k evaluations as the score")
    scheduler: Literal["none", "asha"] = Field("none", description="early stopping of trials")
    grace: Count = Field(10, description="rounds before asha may stop a trial")
    reduction: Annotated[Real, Field(gt=1)] = Field(3.0, description="asha keeps 1/reduction")
    confirm_seeds: Annotated[Integer, Field(ge=0)] = Field(
        3, description="fresh seeds on which each winner is run again, on the test split"
    )
    seed: Seed = Field(0, description="seed of the proposals")
    concurrent: Count | None = Field(None, description="trials at once; null: as many as fit")

    @field_validator("metric")
    @classmethod
    def _selects_on_validation(cls, metric: str) -> str:
        if metric.startswith("test/"):
            raise problem(f"found {metric!r}; select on validation, such as val/accuracy")
        if metric not in METRICS:
            allowed = ", ".join(METRICS)
            raise problem(f"found {metric!r}; must be one of {allowed}{nearest(metric, METRICS)}")
        return metric

    @property
    def maximize(self) -> bool:
        """Whether a larger metric is better."""
        return self.mode == "max" or (self.mode is None and not self.metric.endswith("loss"))


class Tracking(Section):
    """Where the record goes."""

    uri: str | None = Field(
        None, description="MLflow store; null: MLFLOW_TRACKING_URI, or sqlite in root"
    )
    root: str = Field("mlruns", description="folder of the local store and of the searches' state")
    experiment: str | None = Field(None, description="MLflow experiment; null: the file's name")


class Resources(Section):
    """What one trial gets."""

    cpus: Annotated[Real, Field(gt=0)] = Field(1.0, description="CPU cores, and torch threads")
    gpus: Annotated[Real, Field(ge=0)] = Field(0.0, description="GPUs; a fraction shares one")


class RaySettings(Section):
    """How to reach Ray."""

    address: str | None = Field(
        None, description="a running cluster ('auto'); null: start one here"
    )


class Settings(Section):
    """The sections of a file besides the experiment and the methods."""

    search: SearchSettings = SearchSettings()
    tracking: Tracking = Tracking()
    resources: Resources = Resources()
    ray: RaySettings = RaySettings()
    name: str | None = Field(None, description="name of the search; null: file name and time")
