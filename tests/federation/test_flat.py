"""A network as a function of a flat vector, and the quick ways around it."""

import pytest
import torch

from fltune.federation.batches import take
from fltune.federation.flat import FlatNetwork
from fltune.models.mlp import MLP
from fltune.randomness import client_keys, seed_global, step_keys


@pytest.fixture
def flat():
    torch.manual_seed(0)
    return FlatNetwork(MLP((6,), 3, [5], dropout=0.5))


def test_parameters_at_a_point_are_views_of_it_and_come_back(flat):
    before = flat.read()
    w = torch.zeros_like(before)
    with flat.at(w) as parameters:
        w += 1
        assert all(torch.equal(p, torch.ones_like(p)) for p in parameters)
        assert torch.equal(flat.read(), w)
    assert torch.equal(flat.read(), before)
    flat.write(before + 1)  # the network no longer shares memory with w
    assert torch.equal(w, torch.ones_like(w))


def test_parameters_come_back_after_an_error(flat):
    before = flat.read()
    with pytest.raises(ZeroDivisionError), flat.at(torch.zeros_like(before)):
        _ = 1 / 0
    assert torch.equal(flat.read(), before)


def test_output_at_a_point_is_that_of_the_functional_call(flat):
    inputs, w, key = torch.randn(4, 6), torch.randn(flat.dimension), torch.tensor(7)
    expected = flat.call(flat.split(w), inputs, key)
    flat.set_key(key)
    with flat.at(w):
        assert torch.equal(flat.network(inputs), expected)
    flat.set_key(key + 1)
    with flat.at(w):
        assert not torch.equal(flat.network(inputs), expected)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (0,)])
@pytest.mark.parametrize("row", [(), (4,), (2, 3)])
def test_take_is_indexing(shape, row):
    values, index = torch.randn(9, *row), torch.randint(9, shape)
    assert torch.equal(take(values, index), values[index])


def test_keys_of_many_steps_are_those_of_each():
    keys = client_keys(3, 1, torch.arange(5))
    together = step_keys(keys, torch.arange(4).unsqueeze(1))
    assert torch.equal(together, torch.stack([step_keys(keys, step) for step in range(4)]))


@pytest.mark.parametrize("seed", [0, 5, -(1 << 63), (1 << 63) - 1])
def test_seed_global_is_manual_seed_on_the_cpu(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        seed_global(seed, torch.device("cpu"))
        assert torch.equal(torch.rand(3), expected)
