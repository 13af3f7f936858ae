"""Experiments that train nothing: formulas, counts and gradients, each a function of its file.

A file says ``computes: NAME`` where others have methods to tune; if it has methods and scenarios,
they are the worlds (data, clients, model) that the numbers are of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fltune.experiment import Experiment
from fltune.registry import Registry
from fltune.report.figures import Picture
from fltune.search.config import SearchConfig
from fltune.search.extends import read_extended

COMPUTATIONS = Registry(
    "computation",
    {
        "coverage_table": "fltune.reproduce.formulas:coverage_table",
        "fairness_table": "fltune.reproduce.formulas:fairness_table",
        "cost_table": "fltune.reproduce.formulas:cost_table",
        "coverage": "fltune.reproduce.formulas:coverage",
        "label_histogram": "fltune.reproduce.clients:label_histogram",
        "gradient_cosines": "fltune.reproduce.clients:gradient_cosines",
        "cyclic_rates": "fltune.reproduce.rates:cyclic_rates",
    },
)


@dataclass(frozen=True)
class Computed:
    """What a computation found.

    Attributes:
        values: numbers by name, one for each seed; claims are made of them.
        heads, rows: a table of the numbers beside the printed ones.
        pictures: figures.
        seeds: on how many anything random was done; 0 where nothing is random.
    """

    values: Mapping[str, Sequence[float]]
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[Picture] = field(default=())
    seeds: int = 0


@dataclass(frozen=True)
class Setup:
    """What a computation is given.

    Attributes:
        raw: the file, with what it extends.
        worlds: the experiments of its methods, by cell label; empty where it has none.
        seeds: how many times anything random is done, at least.
    """

    raw: Mapping[str, Any]
    worlds: Mapping[str, Experiment]
    seeds: int


Computation = Callable[[Setup], Computed]


def compute(path: Path, name: str, seeds: int, root: str | None = None) -> Computed:
    """Run a file's computation.

    Args:
        path: the file.
        name: of the computation.
        seeds: see :class:`Setup`.
        root: where the data is; None: where the file says.

    Raises:
        UnknownNameError: there is none of that name.
        ConfigError, DataError: of its worlds.
    """
    computation: Computation = COMPUTATIONS.load(name)
    return computation(Setup(read_extended(path), worlds(path, root), seeds))


def worlds(path: Path, root: str | None = None) -> dict[str, Experiment]:
    """Return the experiments of a file that trains nothing, by cell label.

    Raises:
        ConfigError: they are wrong, or have no ``data.root``.
    """
    raw = {k: v for k, v in read_extended(path).items() if k != "computes"}
    if "scenarios" not in raw:
        return {}
    config = SearchConfig.parse(raw, str(path), {} if root is None else {"data.root": root})
    found = {}
    for method in config.methods.values():
        label = ", ".join(v for k, v in method.scenario.items() if k != "method")
        found[label] = method.first_experiment()
    return found
