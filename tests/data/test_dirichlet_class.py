import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partitions import ALPHAS, assert_disjoint_cover, counts_of, labels_of, problems, sizes_of

from fltune.data.dirichlet import dirichlet_shares, log_gamma_draws
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.partition import cut
from fltune.errors import DataError


@settings(max_examples=200)
@given(problems(), ALPHAS, st.booleans(), st.integers(1, 4), st.data())
def test_a_disjoint_cover_without_small_clients(problem, alpha, balance, tries, data):
    labels, num_clients, seed = problem
    min_size = data.draw(st.integers(1, len(labels) // num_clients))
    partition = DirichletClass(alpha, min_size=min_size, max_tries=tries, balance=balance)
    clients = partition(labels, num_clients, seed)
    assert len(clients) == num_clients
    assert_disjoint_cover(clients, len(labels))
    assert min(sizes_of(clients)) >= min_size


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


def test_exact_fit_gives_every_client_min_size():
    clients = DirichletClass(0.01, min_size=4, max_tries=1)(labels_of(80, 3), 20, seed=0)
    assert sizes_of(clients) == [4] * 20


BAD, GOOD, UNSEEN = [[6, 0, 0]], [[3, 2, 1]], [[2, 2, 2]]


@pytest.mark.parametrize(
    ("script", "used", "sizes", "notes"),
    [
        ([GOOD, UNSEEN, UNSEEN], 1, [3, 2, 1], 0),
        ([BAD, GOOD, UNSEEN], 2, [3, 2, 1], 0),
        ([BAD, BAD, BAD, UNSEEN], 3, [4, 1, 1], 1),  # the tries are over: repaired
    ],
)
def test_redraws_until_all_clients_hold_enough_or_the_tries_are_over(
    monkeypatch, script, used, sizes, notes
):
    draws = iter(script)
    monkeypatch.setattr(DirichletClass, "draw_counts", lambda *_: np.array(next(draws)))
    labels = torch.zeros(6, dtype=torch.int64)
    assignment = DirichletClass(max_tries=3).assign(labels, 3, seed=0)
    assert sizes_of(assignment.clients) == sizes
    assert len(list(draws)) == len(script) - used
    assert len(assignment.notes) == notes
    if notes:
        assert "repaired: after 3 draws, 2 samples were moved" in assignment.notes[0]


def test_large_alpha_is_close_to_iid():
    labels = labels_of(20_000, 10)
    clients = DirichletClass(1e3)(labels, 10, seed=0)
    for indices in clients:
        shares = labels[indices].bincount(minlength=10) / len(indices)
        assert (shares - 0.1).abs().max() < 0.03
        assert abs(len(indices) - 2000) < 200


def test_tiny_alpha_gives_each_class_one_owner():
    labels = labels_of(20_000, 10)
    counts = counts_of(DirichletClass(1e-3, max_tries=1)(labels, 100, seed=0), labels)
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


def test_a_client_that_holds_exactly_its_share_gets_no_more():
    """At a tiny alpha each class has one owner; two classes of five are two clients' shares."""
    labels = torch.arange(2).repeat_interleave(5)
    for seed in range(20):
        clients = DirichletClass(1e-4, max_tries=1, balance=True)(labels, 2, seed)
        assert sorted(indices.tolist() for indices in clients) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


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


def test_an_impossible_min_size_is_found_before_any_draw(monkeypatch):
    monkeypatch.setattr(DirichletClass, "draw_counts", lambda *_: pytest.fail("drew"))
    with pytest.raises(
        DataError, match=r"4 clients with at least 3 samples each need 12 .* are 11"
    ):
        DirichletClass(min_size=3)(labels_of(11, 2), 4, seed=0)


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
