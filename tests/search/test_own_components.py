"""Components of the script that calls a search, which no worker can import."""

import sys

import pytest
from torch import nn

import fltune
from fltune.algorithms.fedavg import FedAvg
from fltune.errors import ConfigError


class Mine(FedAvg):
    """Written in a script."""


class Net(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(64, num_classes)


@pytest.fixture
def raw(monkeypatch, tmp_path):
    for kind in (Mine, Net):
        monkeypatch.setattr(sys.modules["__main__"], kind.__name__, kind, raising=False)
    return {
        "experiment": {"data": {"name": "digits", "clients": 4}, "rounds": 1, "device": "cpu"},
        "methods": {"A": {"space": {"client.lr": {"grid": [0.1]}}}},
        "search": {"confirm_seeds": 1},
        "tracking": {"root": str(tmp_path / "mlruns")},
    }


def refusal(method, name):
    return (
        f"methods.{method}: workers cannot import `__main__:{name}`; put {name} in a file of its "
        f"own, for example my_methods.py, and write my_methods:{name}"
    )


def test_a_search_refuses_what_its_workers_cannot_import(raw, tmp_path):
    space = {"client.lr": {"grid": [0.1]}}
    raw["methods"] |= {
        "B": {"algorithm": {"name": "__main__:Mine"}, "space": space},
        "C": {"space": {**space, "model.name": {"choice": ["linear", "__main__:Net"]}}},
    }
    with pytest.raises(ConfigError) as caught:
        fltune.search(raw)
    assert caught.value.problems == [refusal("B", "Mine"), refusal("C", "Net")]
    assert not (tmp_path / "mlruns" / "searches").exists()


def test_a_run_has_it_at_hand(raw):
    result = fltune.run({**raw["experiment"], "algorithm": {"name": "__main__:Mine"}})
    assert result.rounds == 1
