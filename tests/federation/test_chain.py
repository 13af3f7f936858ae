"""Which networks are chains of dense layers, and what ``dense`` makes of them."""

import copy
import math

import pytest
import torch
from local_work import (
    PROBLEMS,
    SGDS,
    Deciding,
    Residual,
    Setting,
    Twice,
    assert_same,
    by_hand,
    conv,
    hooked,
    mlp,
    normed,
    part_frozen,
)
from torch import nn

from fltune.data.federated import Split
from fltune.federation import LocalSGD, LocalSolver
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy, squared_error
from fltune.federation.strategies import choose_strategy


@pytest.mark.parametrize("sgd", SGDS)
@pytest.mark.parametrize("problem", ["own_prox", "frozen", "correction"])
def test_dense_reads_networks_written_by_hand(sgd, problem):
    setting = Setting(SGDS[sgd], by_hand)
    asked = PROBLEMS[problem](setting)
    loop = setting.solve("loop", asked)
    assert_same(setting.solve("dense", asked), loop)
    assert not torch.allclose(loop.end, setting.x)


@pytest.mark.parametrize("strategy", ["stacked", "dense"])
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["vectors", "matrices"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_squared_errors_of_vectors_and_matrices(shape, bias, strategy):
    """Also of layers that work on the last of several dimensions."""
    layers = [nn.Linear(shape[-1], 4), nn.Tanh(), nn.Linear(4, 2, bias=bias), nn.Flatten()]
    setting = Setting(SGDS["all"], lambda: nn.Sequential(*map(copy.deepcopy, layers)).double())
    chance = torch.Generator().manual_seed(1)
    n = len(setting.data)
    x = torch.randn(n, *shape, generator=chance, dtype=torch.float64)
    y = torch.randn(n, 2 * math.prod(shape[:-1]), generator=chance, dtype=torch.float64)
    setting.data, setting.losses = Split(x, y), squared_error
    assert_same(setting.solve(strategy), setting.solve("loop"))


@pytest.mark.parametrize("make", [Residual, Twice, Deciding, part_frozen, hooked, normed, conv])
def test_dense_refuses_what_is_no_chain(make):
    name = type(make()).__name__
    with pytest.raises(ValueError, match=rf"'dense' is for chains .*{name} is none, use .* auto"):
        LocalSolver(FlatNetwork(make()), cross_entropy, LocalSGD(), "dense")


def test_dense_refuses_losses_that_it_does_not_know():
    def absolute(output, target):
        return (output - target).abs().flatten(1).sum(1)

    with pytest.raises(ValueError, match="cross_entropy and squared_error, not absolute"):
        LocalSolver(FlatNetwork(mlp()), absolute, LocalSGD(), "dense")
    assert choose_strategy(mlp(), absolute) == "auto"
