"""The contract of partitions, held by all of them, and what they share."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partitions import (
    ALPHAS,
    assert_clients,
    assert_disjoint,
    assert_disjoint_cover,
    distance_to_iid,
    labels_of,
    problems,
    same,
    sizes_of,
)

from fltune.data import PARTITIONS
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.dirichlet_client import (
    DirichletClientEqual,
    DirichletClientLognormal,
    DirichletClientNormalised,
)
from fltune.data.from_file import FromFile
from fltune.data.natural import Natural
from fltune.data.partition import (
    Assignment,
    Iid,
    Partition,
    cut,
    fill,
    largest_remainder,
    lognormal_sizes,
    owners_by_class,
)
from fltune.data.shards import Shards
from fltune.errors import DataError

KINDS = {
    "iid": Iid,
    "dirichlet_class": DirichletClass,
    "dirichlet_client_normalised": DirichletClientNormalised,
    "dirichlet_client_equal": DirichletClientEqual,
    "dirichlet_client_lognormal": DirichletClientLognormal,
    "shards": Shards,
    "natural": Natural,
    "file": FromFile,
}
REDRAWN = (DirichletClass, DirichletClientNormalised)
DIRICHLET = (*REDRAWN, DirichletClientEqual, DirichletClientLognormal)
COVER = (Iid, *REDRAWN)
DRAWN = [
    Iid(),
    *(kind(alpha) for kind in DIRICHLET for alpha in (0.05, 3.0)),
    DirichletClass(3, balance=True),
    DirichletClientLognormal(allocation="reuse", clip=50),
    Shards(deal="random"),
]


@given(problems())
def test_iid_is_a_disjoint_cover_with_equal_sizes(problem):
    labels, num_clients, seed = problem
    clients = Iid()(labels, num_clients, seed)
    assert_clients(clients, num_clients, len(labels))
    assert_disjoint_cover(clients, len(labels))
    assert max(sizes_of(clients)) - min(sizes_of(clients)) <= 1


@settings(max_examples=300)
@given(problems(), ALPHAS, st.sampled_from(DIRICHLET))
def test_no_client_is_empty_whatever_alpha_and_the_number_of_clients(problem, alpha, kind):
    labels, num_clients, seed = problem
    clients = kind(alpha)(labels, num_clients, seed)
    assert_clients(clients, num_clients, len(labels))
    assert_disjoint(clients)
    if kind in COVER:
        assert_disjoint_cover(clients, len(labels))


@settings(max_examples=200)
@given(problems(), ALPHAS, st.sampled_from([*REDRAWN, DirichletClientLognormal]), st.data())
def test_min_size_is_honoured_or_refused(problem, alpha, kind, data):
    labels, num_clients, seed = problem
    min_size = data.draw(st.integers(1, 2 * len(labels) // num_clients))
    partition = kind(alpha, min_size=min_size)
    if min_size * num_clients > len(labels):
        with pytest.raises(DataError, match=f"at least {min_size} samples each need"):
            partition(labels, num_clients, seed)
        return
    assert min(sizes_of(partition(labels, num_clients, seed))) >= min_size


@pytest.mark.parametrize("partition", DRAWN, ids=str)
def test_the_seed_alone_decides(partition):
    labels = labels_of(500, 7)
    torch.manual_seed(1)
    np.random.seed(1)
    first = partition(labels, 20, seed=3)
    state = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    torch.manual_seed(2)
    np.random.seed(2)
    assert same(first, partition(labels, 20, seed=3))
    assert not same(first, partition(labels, 20, seed=4))
    torch.manual_seed(1)
    np.random.seed(1)
    partition(labels, 20, seed=3)
    assert torch.equal(state[0], torch.random.get_rng_state())
    assert np.array_equal(state[1], np.random.get_state()[1])


@pytest.mark.parametrize("kind", DIRICHLET)
def test_clients_come_closer_to_iid_as_alpha_grows(kind):
    labels = labels_of(20_000, 10)
    distances = [distance_to_iid(kind(a)(labels, 50, 0), labels) for a in (0.01, 0.1, 1, 10, 1e3)]
    # The smallest step, 10 to 1000, is from about 0.09 to the noise of the samples themselves.
    assert all(a > b + 0.02 for a, b in pairwise(distances)), distances
    assert distances[0] > 0.8  # one class of ten each would be 0.9
    assert distances[-1] < 0.1


@pytest.mark.parametrize("kind", DIRICHLET)
def test_dirichlet_needs_class_ids(kind):
    targets = torch.zeros(10, 2)
    with pytest.raises(DataError, match=rf"{kind.__name__} needs class ids.*use iid for a regr"):
        kind()(targets, 2, seed=0)


def test_iid_needs_no_class_ids():
    assert_disjoint_cover(Iid()(torch.zeros(10, 2), 3, seed=0), 10)


@pytest.mark.parametrize("partition", DRAWN, ids=str)
def test_more_clients_than_samples_names_both(partition):
    with pytest.raises(DataError, match="11 clients cannot share 10 samples"):
        partition(labels_of(10, 2), 11, seed=0)
    with pytest.raises(DataError, match="0 clients are not allowed"):
        partition(labels_of(10, 2), 0, seed=0)


@pytest.mark.parametrize("partition", DRAWN, ids=str)
def test_ten_thousand_clients_all_hold_something(partition):
    if isinstance(partition, DirichletClientLognormal) and partition.allocation == "reuse":
        partition = DirichletClientLognormal(allocation="reuse", add=1, clip=5)
    clients = partition(labels_of(54_000, 10), 10_000, seed=0)
    assert_clients(clients, 10_000, 54_000)


class EveryOther(Partition):
    def draw(self, labels, num_clients, rng, groups):
        owner = np.arange(len(labels)) // 2 % num_clients
        owner[1::2] = -1
        return Assignment.of_owners(owner, num_clients, "every other sample is unused")


def test_samples_without_an_owner_are_left_out():
    assignment = EveryOther().assign(labels_of(8, 2), 2, seed=0)
    assert [indices.tolist() for indices in assignment.clients] == [[0, 4], [2, 6]]
    assert assignment.notes == ("every other sample is unused",)
    assert EveryOther().known_clients(torch.zeros(8), 8) is None


def test_cut_by_hand():
    # cumsum(p) = .1 .35 .4 1, times 17 = 1.7 5.95 6.8 17, floored: 1 5 6 17; rounded: 2 6 7 17
    shares = np.array([[0.1, 0.25, 0.05, 0.6]])
    assert cut(np.array([17]), shares).tolist() == [[1, 4, 1, 11]]
    assert cut(np.array([17]), shares, np.rint).tolist() == [[2, 4, 1, 10]]


def test_rounded_cuts_round_half_to_even():
    shares = np.array([[0.25, 0.5, 0.25]])  # times 2: .5 1.5 2; times 10: 2.5 7.5 10
    assert cut(np.array([2]), shares, np.rint).tolist() == [[0, 2, 0]]
    assert cut(np.array([10]), shares, np.rint).tolist() == [[2, 6, 2]]


def test_cut_gives_the_last_client_the_rest_whatever_cumsum_rounds_to():
    shares = np.array([[0.5, 0.25, 0.2], [0.6, 0.6, 0.0], [1.0, 0.0, 0.0]])  # sums .95, 1.2, 1
    assert cut(np.array([10, 5, 2]), shares).tolist() == [[5, 2, 3], [3, 2, 0], [2, 0, 0]]


@given(st.integers(0, 1000), st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(0, 9))
def test_largest_remainders_sum_up_and_stay_within_one(total, weights, bonus):
    shares = np.array([*weights, 0.1 + bonus])
    shares /= shares.sum()
    counts = largest_remainder(total, shares)
    assert counts.sum() == total
    assert (abs(counts - total * shares) < 1 + 1e-9).all()


@pytest.mark.parametrize(
    ("mu", "add", "clip", "mean"), [(4.0, 30, 500, 167.5), (2.0, 10, 50, 24.4)]
)
def test_lognormal_sizes_have_the_exact_mean(mu, add, clip, mean):
    # E min(floor(X) + add, clip) = add + P(X >= 1) + ... + P(X >= clip - add)
    tails = [math.erfc((math.log(k) - mu) / 2 / 2**0.5) / 2 for k in range(1, clip - add + 1)]
    assert add + sum(tails) == pytest.approx(mean, abs=0.5)
    sizes = lognormal_sizes(np.random.default_rng(0).standard_normal(200_000), mu, 2.0, add, clip)
    # five standard errors: a correct draw misses once in two million seeds
    assert abs(sizes.mean() - add - sum(tails)) < 5 * sizes.std() / 200_000**0.5


def test_lognormal_sizes_without_a_clip_do_not_overflow():
    assert lognormal_sizes(np.array([1e3]), 4.0, 2.0, 0, None)[0] == int(math.exp(30))


def test_owners_by_class_leave_over_what_no_count_asks_for():
    class_of = np.array([0, 1, 0, 1, 0])
    owner = owners_by_class(np.array([[1, 1], [0, 2]]), class_of, np.array([4, 3, 2, 1, 0]))
    # class 0, shuffled 4 2 0: client 0, client 1, nobody; class 1, shuffled 3 1: client 1 twice
    assert owner.tolist() == [-1, 1, 1, 1, 0]


def test_fill_moves_one_sample_at_a_time_from_the_largest_to_the_smallest():
    owner = np.array([0] * 6 + [1] * 5 + [2] * 1)
    before = owner.copy()
    assert fill(owner, 4, 2, np.arange(12)) == 3
    # sizes 6 5 1 0 -> 5 5 1 1 (0 to 3) -> 4 5 2 1 (0 to 2) -> 4 4 2 2 (1 to 3)
    assert np.bincount(owner).tolist() == [4, 4, 2, 2]
    moved = np.flatnonzero(owner != before)
    assert [(int(i), int(owner[i])) for i in moved] == [(4, 2), (5, 3), (10, 3)]


def test_fill_leaves_large_enough_clients_alone():
    owner = np.array([0, 1, 1, 0, 2, 2])
    before = owner.copy()
    assert fill(owner, 3, 2, np.arange(6)) == 0
    assert np.array_equal(owner, before)


def test_registered_names():
    assert {name: PARTITIONS.load(name) for name in PARTITIONS} == KINDS
    assert PARTITIONS.load("dirichlet") is DirichletClass
    assert PARTITIONS.load("by_writer") is Natural


@pytest.mark.parametrize(
    ("deal", "words"),
    [
        (
            lambda owner, n: owner,
            r"Deals\.draw must return an Assignment to 4 clients; found a nd",
        ),
        (lambda owner, n: Assignment.of_owners(owner % 3, 3), r"to 4 clients; found one to 3"),
        (
            lambda owner, n: Assignment.of_owners(owner, n),
            r"owned by client 9; the 4 clients",
        ),
        (lambda owner, n: Assignment.of_owners(owner / 9, n), r"float64; must be whole numbers"),
    ],
)
def test_what_a_partition_of_ones_own_deals_is_looked_at(deal, words):
    @dataclass(frozen=True)
    class Deals(Partition):
        def draw(self, labels, num_clients, rng, groups):
            return deal(np.arange(len(labels)), num_clients)

    with pytest.raises(DataError, match=words):
        Deals()(torch.zeros(10), num_clients=4, seed=0)
