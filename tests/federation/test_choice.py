"""Which strategy ``auto`` and ``fastest`` take."""

from types import SimpleNamespace

import pytest
import torch
from local_work import SGDS, Deciding, Residual, Setting, Walking, by_hand, conv, large, mlp
from torch import nn

from fltune.federation import LocalSGD, LocalSolver, strategies
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.strategies import choose_strategy
from fltune.models.dropout import KeyedDropout
from fltune.models.linear import Linear

AUTO = {
    "mlp": (lambda: mlp(), "dense"),
    "dropout": (lambda: mlp(0.5), "dense"),
    "keyed": (lambda: nn.Sequential(nn.Linear(2, 2), KeyedDropout(0.5, 0)), "dense"),
    "linear": (lambda: Linear((3,)), "dense"),
    "by_hand": (by_hand, "dense"),
    "walking": (Walking, "dense"),
    "residual": (Residual, "auto"),
    "deciding": (Deciding, "auto"),
    "large": (large, "auto"),
    "conv": (conv, "auto"),
    "recurrent": (lambda: nn.GRU(2, 2), "loop"),
}


@pytest.mark.parametrize("name", AUTO)
def test_auto_goes_by_the_model(name):
    make, expected = AUTO[name]
    assert choose_strategy(make(), cross_entropy) == expected
    solver = LocalSolver(FlatNetwork(make()), cross_entropy, LocalSGD(), "auto")
    assert solver.strategy == expected


BY_COHORT = {
    "many": (Residual, 4, {}, "stacked"),
    "few": (Residual, 3, {}, "loop"),
    "large": (large, 6, {"batch_size": None}, "loop"),
    "small_steps": (large, 6, {"batch_size": 3}, "stacked"),
    "conv": (conv, 9, {}, "stacked"),
}


@pytest.mark.parametrize("name", BY_COHORT)
def test_auto_goes_by_the_cohort(name):
    make, clients, changes, expected = BY_COHORT[name]
    sgd = LocalSGD(lr=0.3, **{"epochs": 1, "batch_size": 3, **changes})
    setting = Setting(sgd, lambda: make().double(), sizes=[40] * clients)
    solve = setting.ready("auto")
    found = solve()
    assert solve.func.__self__.strategy == expected
    assert torch.equal(found.end, setting.solve(expected).end)


def test_the_work_of_a_network_is_counted_once_and_leaves_it_alone():
    flat = FlatNetwork(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)))
    assert flat.flops(torch.zeros(4, 6)) == 2 * (6 * 5 + 5 * 3)
    assert flat.network.training
    assert flat.flops(torch.zeros(0, 9)) == 90


def test_unknown_strategy():
    text = r"'stack'; must be auto, fastest or one of \['loop', 'stacked', 'dense', 'compiled'\]"
    with pytest.raises(ValueError, match=text):
        LocalSolver(FlatNetwork(mlp()), cross_entropy, LocalSGD(), "stack")


@pytest.fixture
def clock(monkeypatch):
    """Says how long a strategy takes, instead of the clock; ``asked`` are those it timed."""
    monkeypatch.setattr(strategies, "_timed", {})
    slowness = {"loop": 2.0, "stacked": 1.0, "dense": 3.0}
    asked = []

    def seconds(solve, device, work):
        solve(*work)
        name = next(k for k, v in strategies.STRATEGIES.items() if v is solve)
        asked.append(name)
        return slowness[name]

    monkeypatch.setattr(strategies, "_seconds", seconds)
    return SimpleNamespace(slowness=slowness, asked=asked)


@pytest.mark.parametrize("name", ["loop", "stacked", "dense"])
def test_fastest_is_the_strategy_that_it_chose(clock, name):
    """To the last bit, and nothing of the others is left in the random numbers or the model."""
    clock.slowness[name] = 0.5
    setting = Setting(SGDS["all"], lambda: mlp(0.4))
    solve = setting.ready("fastest")
    state = torch.get_rng_state()
    found, expected = solve(), setting.solve(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found.end, expected.end)
    assert torch.equal(found.loss, expected.loss)
    solver = solve.func.__self__
    assert solver.strategy == name
    assert solver.timings == clock.slowness
    assert torch.equal(solver.network.read(), setting.x)


def test_fastest_is_timed_once_for_each_shape(clock):
    setting = Setting(SGDS["steps"])
    solve = setting.ready("fastest")
    solve()
    solve()
    setting.solve("fastest")
    once = len(clock.asked)
    assert once == 3 * (1 + strategies.REPETITIONS)
    setting.solve("fastest", clients=[0, 2])
    assert len(clock.asked) == 2 * once


def test_fastest_leaves_out_what_the_network_does_not_allow(clock):
    solve = Setting(SGDS["steps"], conv).ready("fastest")
    solve()
    assert solve.func.__self__.timings == {"loop": 2.0, "stacked": 1.0}
