"""Who takes part in a round: torch Samplers of cohorts, a file per family."""

from fltune.registry import Registry

PARTICIPATION = Registry(
    "participation pattern",
    {
        "full": "fltune.participation.full:Full",
        "uniform": "fltune.participation.uniform:Uniform",
        "cyclic": "fltune.participation.cyclic:Cyclic",
        "reshuffled": "fltune.participation.cyclic:ReshuffledCyclic",
        "bernoulli": "fltune.participation.bernoulli:Bernoulli",
        "sine": "fltune.participation.bernoulli:Sine",
        "biased": "fltune.participation.bernoulli:Biased",
        "trace": "fltune.participation.trace:Trace",
    },
)
