"""A ReLU and the max-pooling after it change places, and nobody can tell by the numbers."""

import copy

import pytest
import torch
from torch import nn

from fltune.federation.flat import FlatNetwork
from fltune.federation.pool_first import pool_first


def network(pooling, **options):
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(inplace=True), pooling(2, **options)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.Identity(), nn.ReLU(), pooling(3, 2, padding=1)),
        *(nn.Flatten(), nn.LazyLinear(3)),
    )


def outcome(model, x):
    """Return the output, and the gradients of its squared sum for parameters and input."""
    x = x.clone().requires_grad_()
    output = model(x)
    return output, *torch.autograd.grad(output.square().sum(), [*model.parameters(), x])


def kinds(model):
    return [type(layer) for layer in model]


@pytest.mark.parametrize("options", [{}, {"ceil_mode": True}, {"dilation": 2, "stride": 1}])
def test_the_numbers_are_the_same_to_the_last_bit(options):
    before = network(nn.MaxPool2d, **options)
    # whole numbers: many values tie, and many pools have no positive one
    x = torch.randint(-2, 3, (5, 2, 9, 11)).float()
    with torch.no_grad():
        before(x)  # the lazy layer learns its size
        for parameter in before[0].parameters():
            parameter.round_()
    after = copy.deepcopy(before)
    pool_first(after)
    assert kinds(after) != kinds(before)
    for one, other in zip(outcome(before, x), outcome(after, x), strict=True):
        assert torch.equal(one, other)


def test_both_pairs_move_and_names_stay():
    model = network(nn.MaxPool2d)
    model(torch.zeros(1, 2, 9, 9))
    names = list(model.state_dict())
    FlatNetwork(model)
    assert [place for place, kind in enumerate(kinds(model)) if kind is nn.MaxPool2d] == [1, 5]
    assert [place for place, kind in enumerate(kinds(model)) if kind is nn.ReLU] == [2, 6]
    assert list(model.state_dict()) == names


class Own(nn.Sequential):
    """May do anything with its layers."""


class OwnPool(nn.MaxPool2d):
    """May do anything with its input."""


def hooked(layer):
    layer.register_forward_hook(lambda *args: None)
    return layer


@pytest.mark.parametrize(
    "model",
    [
        Own(nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.ReLU(), OwnPool(2)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
        nn.Sequential(hooked(nn.ReLU()), nn.MaxPool2d(2)),
        nn.Sequential(nn.ReLU(), hooked(nn.MaxPool2d(2))),
        nn.Sequential(nn.ReLU(), nn.Identity(), nn.MaxPool2d(2)),
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
    ],
    ids=["subclass", "own pool", "indices", "hooked relu", "hooked pool", "apart", "pooled"],
)
def test_nothing_else_moves(model):
    before = list(model)
    pool_first(model)
    assert all(one is other for one, other in zip(model, before, strict=True))
