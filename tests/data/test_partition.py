import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data import PARTITIONS
from fltune.data.partition import (
    DirichletClass,
    Iid,
    Partition,
    cut,
    dirichlet_shares,
    fill,
    log_gamma_draws,
)
from fltune.errors import DataError

ALPHAS = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


def labels_of(n, classes, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, classes, n))


def sizes_of(clients):
    return [len(indices) for indices in clients]


def assert_disjoint_cover(clients, n):
    assert torch.equal(torch.cat(clients).sort().values, torch.arange(n))
    for indices in clients:
        assert indices.dtype == torch.int64
        assert indices.device.type == "cpu"
        assert torch.equal(indices, indices.sort().values)


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@st.composite
def problems(draw):
    n = draw(st.integers(1, 300))
    clients = draw(st.integers(1, n))
    labels = labels_of(n, draw(st.integers(1, 20)), draw(st.integers(0, 5)))
    return labels, clients, draw(st.integers(0, 2**32))


@given(problems())
def test_iid_is_a_disjoint_cover_with_equal_sizes(problem):
    labels, num_clients, seed = problem
    clients = Iid()(labels, num_clients, seed)
    assert len(clients) == num_clients
    assert_disjoint_cover(clients, len(labels))
    assert max(sizes_of(clients)) - min(sizes_of(clients)) <= 1


@settings(max_examples=200)
@given(problems(), ALPHAS, st.booleans(), st.integers(1, 4), st.data())
def test_dirichlet_is_a_disjoint_cover_without_small_clients(problem, alpha, balance, tries, data):
    labels, num_clients, seed = problem
    min_size = data.draw(st.integers(1, len(labels) // num_clients))
    partition = DirichletClass(alpha, min_size=min_size, max_tries=tries, balance=balance)
    clients = partition(labels, num_clients, seed)
    assert len(clients) == num_clients
    assert_disjoint_cover(clients, len(labels))
    assert min(sizes_of(clients)) >= min_size


@pytest.mark.parametrize("partition", [Iid(), DirichletClass(0.3), DirichletClass(3, balance=True)])
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


def test_cut_by_hand():
    # cumsum(p) = .1 .35 .4 1, times 17 = 1.7 5.95 6.8 17, floored: 1 5 6 17
    shares = np.array([[0.1, 0.25, 0.05, 0.6]])
    assert cut(np.array([17]), shares).tolist() == [[1, 4, 1, 11]]


def test_cut_gives_the_last_client_the_rest_whatever_cumsum_rounds_to():
    shares = np.array([[0.5, 0.25, 0.2], [0.6, 0.6, 0.0], [1.0, 0.0, 0.0]])  # sums .95, 1.2, 1
    assert cut(np.array([10, 5, 2]), shares).tolist() == [[5, 2, 3], [3, 2, 0], [2, 0, 0]]


class FixedShares(DirichletClass):
    """Counts from given shares, so that the deal can be checked by hand."""

    def draw_counts(self, class_sizes, num_clients, rng):
        return cut(class_sizes, np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]))


def test_dealt_classes_are_those_of_the_cut():
    labels = torch.tensor([7, 3] * 8)  # eight of each; class ids may have gaps
    clients = FixedShares()(labels, 3, seed=0)
    held = [sorted(labels[indices].tolist()) for indices in clients]
    assert held == [[3] * 4, [3] * 4 + [7] * 2, [7] * 6]
    # shuffled within the class: a deal in file order would give client 0 the first four
    deals = {tuple(FixedShares()(labels, 3, seed=s)[0].tolist()) for s in range(5)}
    assert len(deals) > 1


def test_fill_moves_one_sample_at_a_time_from_the_largest_to_the_smallest():
    owner = np.array([0] * 6 + [1] * 5 + [2] * 1)
    before = owner.copy()
    fill(owner, 4, 2, np.arange(12))
    # sizes 6 5 1 0 -> 5 5 1 1 (0 to 3) -> 4 5 2 1 (0 to 2) -> 4 4 2 2 (1 to 3)
    assert np.bincount(owner).tolist() == [4, 4, 2, 2]
    moved = np.flatnonzero(owner != before)
    assert [(int(i), int(owner[i])) for i in moved] == [(4, 2), (5, 3), (10, 3)]


def test_fill_leaves_large_enough_clients_alone():
    owner = np.array([0, 1, 1, 0, 2, 2])
    before = owner.copy()
    fill(owner, 3, 2, np.arange(6))
    assert np.array_equal(owner, before)


def test_exact_fit_gives_every_client_min_size():
    clients = DirichletClass(0.01, min_size=4, max_tries=1)(labels_of(80, 3), 20, seed=0)
    assert sizes_of(clients) == [4] * 20


BAD, GOOD, UNSEEN = [[6, 0, 0]], [[3, 2, 1]], [[2, 2, 2]]


@pytest.mark.parametrize(
    ("script", "used", "sizes"),
    [
        ([GOOD, UNSEEN, UNSEEN], 1, [3, 2, 1]),
        ([BAD, GOOD, UNSEEN], 2, [3, 2, 1]),
        ([BAD, BAD, BAD, UNSEEN], 3, [4, 1, 1]),  # the tries are over: repaired
    ],
)
def test_redraws_until_all_clients_hold_enough_or_the_tries_are_over(
    monkeypatch, script, used, sizes
):
    draws = iter(script)
    monkeypatch.setattr(DirichletClass, "draw_counts", lambda *_: np.array(next(draws)))
    clients = DirichletClass(max_tries=3)(torch.zeros(6, dtype=torch.int64), 3, seed=0)
    assert sizes_of(clients) == sizes
    assert len(list(draws)) == len(script) - used


def test_large_alpha_is_close_to_iid():
    labels = labels_of(20_000, 10)
    clients = DirichletClass(1e3)(labels, 10, seed=0)
    for indices in clients:
        shares = labels[indices].bincount(minlength=10) / len(indices)
        assert (shares - 0.1).abs().max() < 0.03
        assert abs(len(indices) - 2000) < 200


def test_tiny_alpha_gives_each_class_one_owner():
    labels = labels_of(20_000, 10)
    clients = DirichletClass(1e-3, max_tries=1)(labels, 100, seed=0)
    counts = torch.stack([labels[indices].bincount(minlength=10) for indices in clients])
    largest = counts.max(0).values / counts.sum(0)
    assert largest.mean() > 0.9  # E[sum p^2] = (1 + alpha) / (1 + N alpha) = 0.91
    assert ((counts > 0).sum(1) == 1).float().mean() > 0.9


@pytest.mark.parametrize("alpha", [1e-320, 1e-300, 1e-3, 1.0, 1e3, 1e300])
def test_shares_are_finite_and_sum_to_one(alpha):
    logs = log_gamma_draws(alpha, (50, 30), np.random.default_rng(0))
    shares = dirichlet_shares(logs, alpha)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(1), 1)
    logs[:, np.arange(30) != 7] = -np.inf
    assert (dirichlet_shares(logs, alpha)[:, 7] == 1).all()


@pytest.mark.parametrize("alpha", [0.05, 0.5, 4.0])
def test_shares_have_the_moments_of_the_dirichlet(alpha):
    N, draws = 5, 40_000
    logs = log_gamma_draws(alpha, (draws, N), np.random.default_rng(0))
    shares = dirichlet_shares(logs, alpha)
    variance = (1 / N) * (1 - 1 / N) / (N * alpha + 1)
    np.testing.assert_allclose(shares.mean(0), 1 / N, atol=4 * (variance / draws) ** 0.5)
    np.testing.assert_allclose(shares.var(0), variance, rtol=0.05)


def test_balance_stops_giving_to_clients_that_hold_their_share():
    labels = labels_of(1000, 10)
    sizes = {
        balance: sizes_of(DirichletClass(0.5, balance=balance)(labels, 5, seed=0))
        for balance in (False, True)
    }
    # a client that is not full holds < n/N = 200 and gets at most one more class (about 100)
    largest_class = int(labels.bincount().max())
    assert max(sizes[True]) < 200 + largest_class
    assert max(sizes[True]) < max(sizes[False])


def test_ten_thousand_clients_all_hold_something():
    labels = labels_of(54_000, 10)
    clients = DirichletClass(0.1)(labels, 10_000, seed=0)
    assert len(clients) == 10_000
    assert min(sizes_of(clients)) == 1
    assert_disjoint_cover(clients, 54_000)


@pytest.mark.parametrize("partition", [Iid(), DirichletClass()])
def test_more_clients_than_samples_names_both(partition):
    with pytest.raises(DataError, match="11 clients cannot share 10 samples"):
        partition(labels_of(10, 2), 11, seed=0)
    with pytest.raises(DataError, match="0 clients are not allowed"):
        partition(labels_of(10, 2), 0, seed=0)


def test_an_impossible_min_size_is_found_before_any_draw(monkeypatch):
    monkeypatch.setattr(DirichletClass, "draw_counts", lambda *_: pytest.fail("drew"))
    with pytest.raises(
        DataError, match=r"4 clients with at least 3 samples each need 12 .* are 11"
    ):
        DirichletClass(min_size=3)(labels_of(11, 2), 4, seed=0)


def test_dirichlet_needs_class_ids_and_iid_does_not():
    targets = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(DataError, match="use iid for a regression"):
        DirichletClass()(targets, 2, seed=0)
    assert_disjoint_cover(Iid()(targets, 3, seed=0), 10)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 0.0}, r"alpha = 0.0 is not allowed; must be in \(0, inf\)"),
        ({"alpha": float("nan")}, "alpha = nan"),
        ({"alpha": float("inf")}, "alpha = inf"),
        ({"min_size": 0}, "min_size = 0 is not allowed; must be >= 1"),
        ({"max_tries": 0}, r"max_tries = 0 is not allowed; must be in \[1, 1000\]"),
        ({"max_tries": 1001}, "max_tries = 1001"),
    ],
)
def test_hyperparameters_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        DirichletClass(**values)


def test_samples_without_an_owner_are_left_out():
    class EveryOther(Partition):
        def owners(self, labels, num_clients, rng):
            owner = np.arange(len(labels)) // 2 % num_clients
            owner[1::2] = -1
            return owner

    clients = EveryOther()(labels_of(8, 2), 2, seed=0)
    assert [indices.tolist() for indices in clients] == [[0, 4], [2, 6]]


def test_registered_names():
    assert list(PARTITIONS) == ["iid", "dirichlet_class"]
    assert PARTITIONS.load("iid") is Iid
    assert PARTITIONS.load("dirichlet") is PARTITIONS.load("dirichlet_class") is DirichletClass
