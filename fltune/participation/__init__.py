"""Who takes part in a round: torch Samplers of cohorts, a file per family."""

from fltune.registry import Registry

PARTICIPATION = Registry(
    "participation pattern",
    {
        "full": "fltune.participation.full:Full",
        "uniform": "fltune.participation.uniform:Uniform",
        "trace": "fltune.participation.trace:Trace",
    },
)
