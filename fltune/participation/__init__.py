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
        "groups": "fltune.participation.groups:Groups",
        "with_replacement": "fltune.participation.with_replacement:WithReplacement",
        "markov": "fltune.participation.markov:Markov",
        "blocks": "fltune.participation.markov:Blocks",
        "trace": "fltune.participation.trace:Trace",
        "asynchronous": "fltune.participation.asynchronous:Asynchronous",
    },
    aliases={"cycp": "groups"},
    bases=("fltune.participation.base:Participation",),
)
