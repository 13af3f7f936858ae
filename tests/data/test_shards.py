import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from partitions import assert_clients, assert_disjoint, counts_of, labels_of, problems, sizes_of

from fltune.data.shards import Shards
from fltune.errors import DataError


@given(problems(), st.integers(1, 5), st.sampled_from(["strided", "random"]))
def test_equal_disjoint_clients_or_an_error(problem, per_client, deal):
    labels, num_clients, seed = problem
    partition = Shards(per_client, deal)
    length = len(labels) // (num_clients * per_client)
    if length == 0:
        with pytest.raises(DataError, match=f"{num_clients} clients with {per_client} shards"):
            partition(labels, num_clients, seed)
        return
    clients = partition(labels, num_clients, seed)
    assert_clients(clients, num_clients, len(labels))
    assert_disjoint(clients)
    assert set(sizes_of(clients)) == {per_client * length}


def test_unsorted_labels_are_sorted_and_leftovers_are_the_last_class():
    labels = torch.tensor([2, 0, 1, 0, 2, 1, 2, 0, 1])  # sorted: 1 3 7 | 2 5 8 | 0 4 6
    clients = Shards(2)(labels, 2, seed=0)  # shards 1 3, 7 2, 5 8, 0 4; sample 6 is left over
    assert [indices.tolist() for indices in clients] == [[1, 3, 5, 8], [0, 2, 4, 7]]


def test_samples_of_a_class_are_dealt_in_their_order():
    """On every machine: a quick sort of many equal labels would mix them, each in its own way."""
    labels = torch.arange(3).repeat(3000)
    first, second = Shards(1)(labels, 2, seed=0)
    assert torch.equal(
        first,
        torch.cat([(labels == 0).nonzero(), (labels == 1).nonzero()[:1500]])
        .squeeze(1)
        .sort()
        .values,
    )
    assert len(first) == len(second)


def test_balanced_classes_give_two_classes_each_and_strides_make_neighbours_alike():
    labels = torch.arange(10).repeat(600)
    counts = counts_of(Shards(2)(labels, 100, seed=0), labels)
    assert ((counts > 0).sum(1) == 2).all()
    assert torch.equal(counts[0], counts[19])
    assert not torch.equal(counts[0], counts[20])


def test_random_shards_depend_on_the_seed_and_strided_ones_do_not():
    labels = labels_of(600, 10)
    first = [torch.cat(Shards(2, deal)(labels, 30, seed=0)) for deal in ("strided", "random")]
    other = [torch.cat(Shards(2, deal)(labels, 30, seed=1)) for deal in ("strided", "random")]
    assert torch.equal(first[0], other[0])
    assert not torch.equal(first[1], other[1])


def test_random_shards_give_fewer_classes_where_two_of_a_client_are_of_one_class():
    # 20 shards of each of 10 classes: both of a client are of one class with probability 19/199;
    # 2,000 clients over 20 seeds: five standard errors, one false alarm in two million.
    labels = torch.arange(10).repeat(600)
    single = 0
    for seed in range(20):
        counts = counts_of(Shards(2, "random")(labels, 100, seed), labels)
        single += int(((counts > 0).sum(1) == 1).sum())
    assert abs(single / 2000 - 19 / 199) < 5 * (0.0955 * 0.9045 / 2000) ** 0.5


def test_hyperparameters_are_checked():
    with pytest.raises(ValueError, match="per_client = 0"):
        Shards(0)
    with pytest.raises(ValueError, match="deal = 'any' is not allowed; must be one of strided"):
        Shards(deal="any")
