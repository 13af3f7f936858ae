"""``strategy: fastest`` in whole runs: what it chose is recorded, and a resumed run keeps it."""

import pytest

from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import strategies
from fltune.runner import run


def experiment(strategy, **changes):
    raw = {"rounds": 4, "data": {"clients": 6}, "participation": {"kind": "uniform"}}
    raw["participation"]["per_round"] = 3
    return Experiment.parse({**raw, "strategy": strategy, **changes})


@pytest.fixture
def choose(monkeypatch):
    """Makes one strategy the fastest."""

    def chosen(name):
        monkeypatch.setattr(strategies, "_timed", {})
        quick = strategies.STRATEGIES[name]
        monkeypatch.setattr(
            strategies, "_seconds", lambda solve, device, work: 1.0 if solve is quick else 2.0
        )

    return chosen


@pytest.mark.parametrize("name", ["loop", "stacked", "dense"])
def test_a_run_is_the_one_of_the_chosen_strategy(choose, name):
    choose(name)
    found, forced = run(experiment("fastest")), run(experiment(name))
    assert found.strategy == forced.strategy == name
    assert found.metrics == forced.metrics
    assert found.history == forced.history
    assert found.timings == {**dict.fromkeys(("loop", "stacked", "dense"), 2.0), name: 1.0}
    assert forced.timings == {}


def test_a_resumed_run_keeps_its_choice(choose, tmp_path):
    path = tmp_path / "run.ckpt"
    choose("stacked")
    whole = run(experiment("fastest"))
    run(experiment("fastest", rounds=2), checkpoint=path)
    choose("loop")
    resumed = run(experiment("fastest"), checkpoint=path, resume=True)
    assert resumed.strategy == "stacked"
    assert resumed.timings == whole.timings
    assert resumed.metrics == whole.metrics


def test_really_timed():
    result = run(experiment("fastest", rounds=1))
    assert set(result.timings) == {"loop", "stacked", "dense"}
    assert result.strategy == min(result.timings, key=result.timings.get)


def test_auto_of_the_shipped_mlp_is_dense():
    assert run(experiment("auto", rounds=1)).strategy == "dense"


def test_dense_is_refused_before_the_run_where_it_is_not_written():
    with pytest.raises(ConfigError, match=r"'dense' is for chains .* FedTorchMLP is none"):
        run(experiment("dense", model="mlp_fedtorch"))
