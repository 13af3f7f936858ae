from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from fltune.data.dataset import Dataset, RawData, federate
from fltune.data.digits import Digits
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.dirichlet_client import DirichletClientLognormal
from fltune.data.federated import Split
from fltune.data.natural import Natural
from fltune.data.partition import Iid
from fltune.data.partition_file import checksum
from fltune.data.shards import Shards
from fltune.errors import DataError


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


def test_the_pool_is_what_it_was_before_clients_could_hold_out_their_own():
    """Hashes of who trains on what and what validates, computed by the version before."""
    digits = federate(Digits(), DirichletClass(0.3), 20, 0.1, seed=7, split_seed=3)
    assert digits.val_owner is None
    assert checksum(digits.order.numpy()) == "sha256:" + (
        "7de14563f7842eb46e6804bb42702693e13597e92a61a9dabe54894cfcce643e"
    )
    assert checksum(digits.val.x.double().numpy()) == "sha256:" + (
        "ffe0f2d4a7b14ae26832a8c6eb25d16f97e041251bffc5f875bf4cd26dc9b454"
    )


def test_a_pool_of_natural_clients_knows_its_owners_also_of_those_left_out():
    raw = Grouped().load()
    ids = dict(zip(raw.train.x.flatten().tolist(), raw.groups.tolist(), strict=True))
    for clients in (4, 2):
        data = federate(Grouped(), Natural(), clients, val_fraction=0.1, seed=1)
        by_id = [[2, 5, 9, 40].index(ids[x]) for x in data.val.x.flatten().tolist()]
        assert data.val_owner.tolist() == by_id
        assert data.report()["val_clients"] == 3  # one sample is not held out


def held_by(data):
    """Return the clients that train on each sample of distinct inputs, and the one it judges."""
    trains, judges = {}, {}
    for i in range(data.num_clients):
        for x in data.train.x[data.client(i)].flatten().tolist():
            trains.setdefault(x, set()).add(i)
    for x, i in zip(data.val.x.flatten().tolist(), data.val_owner.tolist(), strict=True):
        judges[x] = i
    return trains, judges


KINDS = {
    "iid": Iid(),
    "dirichlet": DirichletClass(0.2),
    "lognormal": DirichletClientLognormal(1.0, mu=1.0, sigma=1.0, add=1, allocation="scale"),
    "shards": Shards(2),
    "natural": Natural(),
}


@dataclass(frozen=True)
class Distinct(Dataset):
    """Sample j is j, of class j % 4 and client j % 10."""

    def load(self):
        x = torch.arange(400.0)[:, None]
        j = torch.arange(400)
        split = Split(x, j % 4)
        return RawData(split, split, 4, j % 10)


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_holds_out_of_its_own_and_nobody_trains_on_it(kind):
    partition, seed = KINDS[kind], 5
    raw = Distinct().load()
    assigned = partition.assign(raw.train.y, 10, seed, raw.groups)
    data = federate(Distinct(), partition, 10, 0.25, seed, val_from="clients")
    trains, judges = held_by(data)
    assert not set(trains) & set(judges)
    for i, indices in enumerate(assigned.clients):
        own = {float(j) for j in indices}
        held = {x for x, owner in judges.items() if owner == i}
        assert held | {x for x, who in trains.items() if who == {i}} == own
        assert len(held) == (min(max(round(0.25 * len(own)), 1), len(own) - 1) if own else 0)
    left_out = 400 - sum(map(len, assigned.clients))
    assert data.report()["unused_samples"] == left_out


def test_clients_that_share_samples_cannot_hold_out_their_own():
    partition = DirichletClientLognormal(0.1, allocation="reuse")
    with pytest.raises(DataError, match="val_from: clients needs a partition whose clients share"):
        federate(Digits(), partition, 30, 0.1, seed=3, val_from="clients")


def test_what_clients_hold_out_depends_on_the_split_seed_and_what_they_hold():
    def val(**changes):
        given = {"val_fraction": 0.2, "seed": 0, "val_from": "clients", **changes}
        return federate(Distinct(), Natural(), 10, **given).val.x

    assert torch.equal(val(), val(seed=1))  # natural clients hold the same with any seed
    assert not torch.equal(val(), val(split_seed=1))


@pytest.mark.parametrize("val_from", ["pool", "clients"])
def test_a_panel_is_nested_and_the_same_with_any_partition(val_from):
    def panel_of(k, seed=0, split_seed=0):
        data = federate(
            Distinct(), Natural(), 10, 0.2, seed, split_seed, val_from=val_from, val_clients=k
        )
        assert data.report()["val_clients"] == k
        whole = federate(Distinct(), Natural(), 10, 0.2, seed, split_seed, val_from=val_from)
        mine = torch.isin(whole.val_owner, data.val_owner)
        assert torch.equal(data.val.x, whole.val.x[mine])  # all samples of the panel, no others
        assert torch.equal(data.order, whole.order)
        assert torch.equal(data.test.x, whole.test.x)
        return set(data.val_owner.tolist())

    panels = [panel_of(k) for k in range(1, 11)]
    assert all(a < b for a, b in pairwise(panels))
    assert panels[2] == panel_of(3, seed=9)
    assert len({frozenset(panel_of(3, split_seed=s)) for s in range(5)}) > 1


@pytest.mark.parametrize("val_from", ["pool", "clients"])
def test_a_growing_panel_sorts_the_samples_of_its_largest_one(val_from):
    def federated(clients):
        return federate(Distinct(), Natural(), 10, 0.2, 0, val_from=val_from, val_clients=clients)

    data, whole = federated({1: 2, 5: 3, 9: 6}), federated(6)
    assert torch.equal(data.val.x.sort(0).values, whole.val.x.sort(0).values)
    assert data.report() == whole.report()
    assert torch.equal(data.order, whole.order)
    for rounds, k in ((0, 2), (1, 2), (4, 2), (5, 3), (8, 3), (9, 6), (99, 6)):
        few = federated(k)
        count = data.to(torch.device("cpu"), torch.float64).judging(rounds)
        assert count == few.judging(rounds) == len(few.val)
        assert set(data.val_owner[:count].tolist()) == set(few.val_owner.tolist())
        judged = zip(data.val.x.flatten().tolist(), data.val_owner.tolist(), strict=True)
        assert all(x % 10 == owner for x, owner in judged)


def test_a_panel_needs_owners_and_enough_clients():
    with pytest.raises(DataError, match=r"come from a pool. Set data.val_from to clients"):
        federate(Digits(), Iid(), 20, 0.1, seed=0, val_clients=5)
    with pytest.raises(DataError, match=r"come from a pool. Set data.val_from to clients"):
        federate(Digits(), Iid(), 20, 0.1, seed=0, val_clients={1: 5, 9: 6})
    with pytest.raises(DataError, match=r"panel of 21 clients is asked for; 20 hold validation"):
        federate(Digits(), Iid(), 20, 0.1, seed=0, val_from="clients", val_clients=21)


SHARES = [0.8, 0.1, 0.1]


def test_all_samples_are_split_anew():
    """Sizes by hand: of 1,797 digits 180 test; of the 1,617 left a ninth, 180, validate."""
    published = Digits().load()
    data = federate(Digits(), Iid(), 10, 0.5, seed=0, resplit=SHARES)
    assert (len(data.train), len(data.val), len(data.test)) == (1437, 180, 180)
    split = torch.cat([data.train.x, data.val.x, data.test.x]).flatten(1)
    pool = torch.cat([published.train.x, published.test.x]).flatten(1)
    assert sorted(split.tolist()) == sorted(pool.tolist())
    counts = data.test.y.bincount()
    assert counts.max() - counts.min() <= 2  # digits has 174 to 183 of each class


def test_the_new_split_is_that_of_its_own_seed():
    first = federate(Digits(), Iid(), 10, 0.1, seed=0, resplit=SHARES)
    again = federate(Digits(), DirichletClass(0.1), 5, 0.1, seed=9, resplit=SHARES)
    other = federate(Digits(), Iid(), 10, 0.1, seed=0, split_seed=1, resplit=SHARES)
    for part in ("val", "test"):
        assert torch.equal(getattr(first, part).x, getattr(again, part).x)
        assert not torch.equal(getattr(first, part).x, getattr(other, part).x)


def test_clients_of_their_own_cannot_be_split_anew():
    with pytest.raises(DataError, match=r"data\.resplit: this data has clients of its own"):
        federate(Grouped(), Natural(), 4, 0.1, seed=0, resplit=SHARES)


def test_test_samples_may_choose_too():
    published = Digits().load()
    data = federate(Digits(), Iid(), 10, 0.1, seed=0, val_from="test")
    assert (len(data.train), len(data.order)) == (1437, 1437)  # nothing is held out
    assert torch.equal(data.val.x, published.test.x)
    assert torch.equal(data.test.x, published.test.x)
    assert "the test samples are the validation samples too" in str(data.report())
    grouped = federate(Grouped(), Natural(), 4, 0.1, seed=0, val_from="test")
    assert grouped.sizes.tolist() == [30, 10, 20, 1]
    with pytest.raises(DataError, match="whose the validation samples are is not known"):
        federate(Digits(), Iid(), 10, 0.1, seed=0, val_from="test", val_clients=2)


def test_of_a_new_split_the_validation_share_is_left_unused_where_test_samples_choose():
    plain = federate(Digits(), Iid(), 10, 0.1, seed=0, resplit=SHARES)
    chosen = federate(Digits(), Iid(), 10, 0.1, seed=0, resplit=SHARES, val_from="test")
    assert torch.equal(chosen.train.x, plain.train.x)
    assert torch.equal(chosen.val.x, plain.test.x)


@dataclass(frozen=True)
class Judged(Dataset):
    """Digits whose training labels are all 0, and validation samples that keep their own."""

    width: int = 64

    def load(self):
        raw = Digits().load()
        val = Split(raw.test.x[:100, : self.width], raw.test.y[:100])
        train = Split(raw.train.x, torch.zeros_like(raw.train.y))
        return RawData(train, Split(raw.test.x[100:], raw.test.y[100:]), 10, val=val)


def test_validation_samples_of_the_data_set_are_taken_as_they_are():
    data, raw = federate(Judged(), Iid(), 10, val_fraction=0.1, seed=0), Judged().load()
    assert len(data.train) == len(data.order) == 1437  # nothing is held out
    assert torch.equal(data.val.x, raw.val.x)
    assert torch.equal(data.val.y, raw.val.y)
    assert data.val.y.max() > 0
    assert not data.val_by_client
    assert not data.notes


def test_test_samples_may_choose_in_the_place_of_the_data_set_s_own():
    data = federate(Judged(), Iid(), 10, val_fraction=0.1, seed=0, val_from="test")
    assert torch.equal(data.val.x, data.test.x)
    assert len(data.test) == 260
    assert data.notes


@pytest.mark.parametrize(
    ("options", "key"),
    [({"val_from": "clients"}, "val_from: clients"), ({"resplit": [0.8, 0.1, 0.1]}, "resplit")],
    ids=str,
)
def test_validation_samples_of_the_data_set_are_not_left_unused(options, key):
    with pytest.raises(DataError, match=rf"^data\.{key}: this data has validation samples of its"):
        federate(Judged(), Iid(), 10, val_fraction=0.1, seed=0, **options)


def test_validation_samples_of_the_data_set_must_fit_the_others():
    with pytest.raises(DataError, match="validation samples have shape"):
        federate(Judged(width=60), Iid(), 10, val_fraction=0.1, seed=0)
    split = Split(torch.zeros(2, 1), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="val is a list; must be a Split"):
        RawData(split, split, 2, val=[])
