"""A network as a function of a flat vector, and the quick ways around it."""

import pickle

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


def one_vector(flat):
    """Whether the parameters lie one after the other in the same memory."""
    return len({p.untyped_storage().data_ptr() for p in flat.parameters}) == 1


def test_what_is_written_is_what_the_network_computes_with(flat):
    x = torch.arange(float(flat.dimension))
    flat.write(x)
    assert one_vector(flat)
    assert torch.equal(torch.cat([p.flatten() for p in flat.network.parameters()]), x)
    with torch.no_grad():
        flat.parameters[1].fill_(-1.0)  # as an optimizer or load_state_dict does
    assert torch.equal(flat.split(flat.read())[1], torch.full((5,), -1.0))


def test_a_copy_that_is_read_does_not_move_with_the_network(flat):
    flat.write(torch.zeros(flat.dimension))
    copy = flat.read()
    flat.write(torch.ones(flat.dimension))
    assert not copy.any()


def test_parameters_that_were_given_other_memory_are_read_and_written_all_the_same(flat):
    flat.write(torch.zeros(flat.dimension))
    flat.parameters[2].data = torch.full_like(flat.parameters[2], 3.0)
    x = flat.read()
    assert torch.equal(flat.split(x)[2], flat.parameters[2])
    assert not flat.split(x)[0].any()
    flat.write(x + 1)
    assert one_vector(flat)
    assert torch.equal(flat.parameters[2], torch.full_like(flat.parameters[2], 4.0))
    flat.network.double()
    assert flat.read().dtype == torch.float64
    assert torch.equal(flat.read().float(), x + 1)


def test_a_network_of_two_kinds_of_numbers_is_read_and_written():
    network = MLP((6,), 3, [5])
    first = next(network.parameters())
    first.data = first.data.double()
    flat = FlatNetwork(network)
    x = torch.arange(float(flat.dimension))
    flat.write(x)
    assert not one_vector(flat)
    assert torch.equal(flat.read().float(), x)


def test_a_write_at_a_point_moves_the_point_alone(flat):
    before, w = flat.read(), torch.zeros(flat.dimension)
    with flat.at(w):
        flat.write(torch.ones_like(w))
        assert torch.equal(w, torch.ones_like(w))
    assert torch.equal(flat.read(), before)


def test_pickling_carries_each_parameter_once(flat):
    alone = len(pickle.dumps(flat))
    flat.write(flat.read())
    assert one_vector(flat)
    assert len(pickle.dumps(flat)) <= alone + 64
    flat.write(flat.read() + 1)
    assert torch.equal(pickle.loads(pickle.dumps(flat)).read(), flat.read())


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
