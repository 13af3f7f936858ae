from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data.dataset import Dataset, RawData, federate, split_validation
from fltune.data.digits import Digits
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.federated import Split
from fltune.data.natural import Natural
from fltune.data.partition import Iid
from fltune.errors import DataError


@settings(max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=200), st.floats(0.01, 0.99), st.data())
def test_validation_is_stratified_and_disjoint(labels, fraction, data):
    count = round(fraction * len(labels))
    y = torch.tensor(labels)
    if not 0 < count < len(labels):
        with pytest.raises(DataError, match="each needs at least one"):
            split_validation(y, fraction, 0)
        return
    kept, held_out = split_validation(y, fraction, data.draw(st.integers(0, 1000)))
    assert len(held_out) == count
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(len(y)))
    quota = y.bincount() * count / len(labels)
    assert (y[held_out].bincount(minlength=len(quota)) - quota).abs().max() < 1


@settings(max_examples=100)
@given(st.lists(st.integers(-1, 9), min_size=2, max_size=200), st.floats(0.01, 0.99), st.data())
def test_validation_by_client_takes_a_share_of_each_but_never_its_last_sample(ids, fraction, data):
    clients = torch.tensor(ids)
    owned = clients[clients >= 0]
    sizes = owned.bincount(minlength=10)
    count = round(fraction * len(owned))
    y = torch.zeros(len(ids), dtype=torch.int64)
    if count == 0 or not (sizes > 1).any():
        with pytest.raises(DataError, match="each needs at least one"):
            split_validation(y, fraction, 0, clients)
        return
    kept, held_out = split_validation(y, fraction, data.draw(st.integers(0, 1000)), clients)
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(len(ids)))
    given = clients[held_out].bincount(minlength=10)
    assert (given < sizes)[sizes > 0].all()
    quota = sizes * count / len(owned)
    assert ((given - quota).abs() <= 1)[sizes - 1 > quota].all()
    assert len(held_out) <= count
    if (sizes - 1 >= quota.ceil())[sizes > 0].all():  # nobody is too small to give its share
        assert len(held_out) == count


def test_validation_by_client_keeps_what_belongs_to_nobody():
    clients = torch.tensor([-1] * 5 + [3] * 10 + [7] * 10)
    kept, held_out = split_validation(torch.zeros(25), 0.2, 0, clients)
    assert clients[held_out].bincount(minlength=8)[[3, 7]].tolist() == [2, 2]
    assert kept[:5].tolist() == [0, 1, 2, 3, 4]


def test_validation_depends_on_its_seed_alone():
    y = torch.tensor([0, 1] * 50)
    torch.manual_seed(1)
    first = split_validation(y, 0.2, seed=5)[1]
    torch.manual_seed(2)
    assert torch.equal(first, split_validation(y, 0.2, seed=5)[1])
    assert not torch.equal(first, split_validation(y, 0.2, seed=6)[1])


def test_validation_of_a_regression():
    kept, held_out = split_validation(torch.zeros(10, 1), 0.3, 0)
    assert (len(kept), len(held_out)) == (7, 3)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_validation_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match=r"must be in \(0, 1\)"):
        split_validation(torch.tensor([0, 1]), fraction, 0)


@pytest.mark.parametrize("groups", [torch.zeros(3, dtype=torch.int64), torch.zeros(2)])
def test_groups_are_one_id_per_training_sample(groups):
    split = Split(torch.zeros(2, 1), torch.tensor([0, 1]))
    with pytest.raises(DataError, match=r"one torch.int64 id for each of 2 training samples"):
        RawData(split, split, 2, groups)


def test_federate():
    data = federate(Digits(), DirichletClass(0.1), 50, val_fraction=0.1, seed=0)
    assert data.num_clients == 50
    assert (len(data.train), len(data.val), len(data.test)) == (1293, 144, 360)
    assert len(data.order) == 1293
    assert torch.equal(data.test.x, Digits().load().test.x)
    other = federate(Digits(), DirichletClass(0.1), 50, val_fraction=0.1, seed=1)
    assert not torch.equal(other.order, data.order)
    assert torch.equal(other.val.x, data.val.x)  # another partition, the same validation samples
    resplit = federate(Digits(), Iid(), 50, val_fraction=0.1, seed=0, split_seed=1)
    assert not torch.equal(resplit.val.x, data.val.x)


@dataclass(frozen=True)
class Grouped(Dataset):
    """Sample j is j; client ids are shuffled, and their sizes 1, 10, 20 and 30."""

    def load(self):
        x = torch.arange(61.0)[:, None]
        groups = torch.tensor([40] + [5] * 10 + [9] * 20 + [2] * 30)
        mixed = torch.randperm(61, generator=torch.Generator().manual_seed(0))
        split = Split(x[mixed], torch.zeros(61, dtype=torch.int64))
        return RawData(split, split, 1, groups[mixed])


def test_a_natural_partition_keeps_clients_and_holds_out_of_each():
    data = federate(Grouped(), Natural(), 4, val_fraction=0.1, seed=0)
    held = [data.train.x[data.client(i)].flatten().tolist() for i in range(4)]
    assert data.sizes.tolist() == [27, 9, 18, 1]  # ids 2, 5, 9, 40
    for samples, (low, high) in zip(held, [(31, 60), (1, 10), (11, 30), (0, 0)], strict=True):
        assert low <= min(samples) <= max(samples) <= high
    assert data.val_by_client
    assert "validation samples were held out of every client" in str(data.report())
    other = federate(Grouped(), Natural(), 2, val_fraction=0.1, seed=1)
    assert torch.equal(other.val.x, data.val.x)


def test_another_partition_of_grouped_data_holds_out_by_class():
    data = federate(Grouped(), Iid(), 4, val_fraction=0.1, seed=0)
    assert (len(data.val), data.val_by_client) == (6, False)


def test_federate_more_clients_than_samples_is_an_error():
    with pytest.raises(DataError, match="2000 clients cannot share 1293 samples"):
        federate(Digits(), Iid(), 2000, val_fraction=0.1, seed=0)
