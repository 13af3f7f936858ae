"""What passes between a lane and those that ask it for work: jobs, and decisions to be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fltune import dotted
from fltune.experiment import Experiment
from fltune.search.record import CONFIRMATION

if TYPE_CHECKING:
    from fltune.search.candidate import Candidate
    from fltune.search.method import Method

Job = dict[str, Any]
"""What a worker is told: method, kind, number, seed, base (nested config), values, searched, test.

``searched`` is what the method's space proposed; ``values`` is all that is set on ``base``. A point
at which a tied value cannot be computed has a ``fault`` instead, by which its run fails.
"""

DONE = "done"
"""What a lane answers when it has no more jobs to hand out."""

Journal = Callable[[Mapping[str, Any]], None]
"""Takes a decision before it is acted on."""


def make_job(
    method: Method,
    kind: str,
    candidate: Candidate,
    seed: int,
    beside: Mapping[str, Any] | None = None,
) -> Job:
    """Return the job that runs a config on one seed.

    Args:
        method: whose config it is.
        kind: trial or confirmation.
        candidate: the config.
        seed: of the run.
        beside: what is set beside the config's values (:meth:`Method.of_trials`).
    """
    try:
        values, fault = method.space.resolve(candidate.values, beside), ""
    except ValueError as error:
        values, fault = {}, str(error)
    return {
        "method": method.name,
        "kind": kind,
        "number": candidate.number,
        "seed": seed,
        "base": method.raw,
        "values": {**values, "seed": seed},
        "searched": candidate.values,
        "test": kind == CONFIRMATION,
        "fault": fault,
    }


def experiment_of(job: Job) -> Experiment:
    """Return the validated config of a job.

    Raises:
        ValueError: a tied value could not be computed.
        ConfigError: all that is wrong with it.
    """
    if job["fault"]:
        raise ValueError(job["fault"])
    return Experiment.parse(dotted.with_values(job["base"], job["values"]))
