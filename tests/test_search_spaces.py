"""Every method of every shipped search file runs: two rounds of the first point of its space."""

from pathlib import Path

import pytest

import fltune
from fltune.algorithms import ALGORITHMS
from fltune.search.config import SearchConfig

FILES = sorted((Path(__file__).parents[1] / "search_spaces").glob("*.yaml"))
CONFIGS = {path.stem: SearchConfig.read(path) for path in FILES}
CASES = [(stem, name) for stem, config in CONFIGS.items() for name in config.methods]


@pytest.mark.parametrize(("stem", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_three_rounds_of_every_method(stem, name):
    method = CONFIGS[stem].method(name)
    experiment = method.experiment(method.first_values()).with_values({"rounds": 3})
    result = fltune.run(experiment, test=False)
    assert (result.rounds, result.stop_reason.value) == (3, "completed")
    assert result.metrics["val/loss"] < 10
    assert result.comm["up_bits"] > 0


def test_methods_digits_holds_every_algorithm():
    methods = CONFIGS["methods_digits"].methods.values()
    used = {method.experiment(method.first_values()).algorithm.name for method in methods}
    assert used == set(ALGORITHMS)
