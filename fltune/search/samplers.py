"""Optuna's samplers by short names, with their options checked before anything starts."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fltune.errors import nearest

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "nsga2": "NSGAIISampler",
}
"""Short name to the class in ``optuna.samplers``. A grid is walked without one."""
GRID = "grid"
RANDOM = "random"
"""Chance looks at no earlier trial."""
ALIASES = {"nsgaii": "nsga2"}
SINGLE = ("cmaes",)
"""Samplers that know no more than one objective."""
BLIND = ("gp", "cmaes", "nsga2")
"""Samplers that look at complete trials only."""
LEARNING = ("tpe", "gp", "cmaes", "nsga2")
"""Samplers whose proposals depend on how earlier trials ended."""
PLAIN = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
"""Types of the options that a file can hold."""


def sampler_name(name: str) -> str:
    """Return the short name of a sampler, which may be given as Optuna's class.

    Raises:
        ValueError: there is no such sampler.
    """
    short = re.sub(r"sampler$", "", re.sub(r"[^a-z0-9]", "", name.lower()))
    short = ALIASES.get(short, short)
    if short not in (*SAMPLERS, GRID):
        known = (*SAMPLERS, GRID)
        raise ValueError(f"found {name!r}; must be one of {', '.join(known)}{nearest(name, known)}")
    return short


def check_options(name: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (option, what is wrong with it); ("", ...) where Optuna refuses them together.

    Args:
        name: short name of the sampler.
        options: as in the file.
    """
    if not options:
        return []
    if name == GRID:
        return [("", "a grid has no options")]
    known, wrong = _known_options(name), []
    for key, value in options.items():
        if key not in known:
            listed = ", ".join(known) or "none"
            wrong.append((key, f"unknown option of {name}{nearest(key, known)}; known: {listed}"))
        elif not _fits(value, known[key]):
            wrong.append((key, f"found {value!r}; should be {' or '.join(known[key])}"))
    if wrong:
        return wrong
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", FutureWarning)  # an option that Optuna lets go
            _construct(name, dict(options), seed=0)
    except (ValueError, FutureWarning) as error:
        return [("", str(error))]
    return []


def make_sampler(
    name: str, options: Mapping[str, Any], budget: int, seed: int, constant: int
) -> BaseSampler:
    """Return a sampler for one proposal.

    Where the user leaves it open, the number of random trials (TPE, GP: a third of the budget, at
    most ten) and the population (NSGA-II: a quarter, at most fifty) follow the budget, because
    Optuna's defaults would never come to learn from a small one. A Sobol sequence is scrambled,
    because the plain one starts in a corner of the space.

    Args:
        name: short name.
        options: as in the file.
        budget: trials in all.
        seed: of this proposal.
        constant: a seed that is the same for all proposals of a search.
    """
    chosen: dict[str, Any] = {}
    if name in ("tpe", "gp"):
        chosen["n_startup_trials"] = max(1, min(10, budget // 3))
    if name == "tpe":
        chosen["constant_liar"] = True  # trials that run beside each other keep apart
    if name == "nsga2":
        chosen["population_size"] = max(4, min(50, budget // 4))
    if name == "qmc":
        chosen["scramble"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _construct(name, {**chosen, **options}, seed, constant)


def _construct(name: str, options: dict[str, Any], seed: int, constant: int = 0) -> BaseSampler:
    from optuna import samplers

    if name == "random":
        return samplers.RandomSampler(seed=seed)
    if name == "qmc":  # the scrambling is a function of the seed: one sequence, one seed
        own = samplers.RandomSampler(seed=seed)
        return samplers.QMCSampler(
            seed=constant, independent_sampler=own, warn_independent_sampling=False, **options
        )
    if name in ("gp", "cmaes"):
        options = {"warn_independent_sampling": False, **options}
    return getattr(samplers, SAMPLERS[name])(seed=seed, **options)


def _known_options(name: str) -> dict[str, list[str]]:
    """Return the options that a file can hold, each with the names of its types."""
    from optuna import samplers

    known = {}
    signature = inspect.signature(getattr(samplers, SAMPLERS[name]).__init__)
    for key, parameter in signature.parameters.items():
        types = str(parameter.annotation).split(" | ")
        if key not in ("self", "seed") and set(types) <= {*PLAIN, "None"}:
            known[key] = [t for t in types if t != "None"]
    return {k: types for k, types in known.items() if not k.startswith("warn_")}


def _fits(value: Any, types: list[str]) -> bool:
    if isinstance(value, bool):
        return "bool" in types
    return any(isinstance(value, PLAIN[t]) for t in types if t != "bool")
