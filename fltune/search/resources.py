"""What one trial gets of a machine, and where Ray is that hands it out: two sections of a file."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from fltune.schema import Real, Section, located


class Resources(Section):
    """What one trial gets."""

    cpus: Annotated[Real, Field(gt=0)] = Field(1.0, description="CPU cores, and torch threads")
    gpus: Annotated[Real, Field(ge=0)] = Field(
        0.0, description="GPUs; a fraction shares one, above 1 they are whole"
    )

    @model_validator(mode="after")
    def _whole_gpus(self) -> Resources:
        if self.gpus > 1 and self.gpus % 1:
            wrong = [
                located("gpus", f"found {self.gpus:g}; a share is of one GPU, or take whole ones")
            ]
            raise ValidationError.from_exception_data("Resources", wrong)
        return self

    def device(self, wanted: str) -> str:
        """Return where a trial runs whose config says ``device: wanted``: cpu or cuda.

        ``auto`` is the CPU where trials get no GPU: none is to take one that nobody counts.
        """
        if wanted == "auto":
            return "cuda" if self.gpus else "cpu"
        return wanted

    def __str__(self) -> str:
        """Return what one trial gets, in words."""
        cores = "core" if self.cpus == 1 else "cores"
        gpus = "GPU" if self.gpus == 1 else "GPUs"
        return f"{self.cpus:g} {cores}, {self.gpus:g} {gpus} each"


RAY_ADDRESS = "RAY_ADDRESS"
"""Ray's own name in the environment; ``ray job submit`` sets it, too."""


class RaySettings(Section):
    """How to reach Ray."""

    address: str | None = Field(
        None, description="a running cluster ('auto'); null: RAY_ADDRESS, or start one here"
    )

    @property
    def cluster(self) -> str | None:
        """The address of the cluster to join; None: start Ray on this machine."""
        named = self.address or os.environ.get(RAY_ADDRESS)
        return None if named == "local" else named or None

    @property
    def source(self) -> str:
        """Where the address was said."""
        return "ray.address" if self.address else RAY_ADDRESS
