import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partitions import (
    ALPHAS,
    assert_clients,
    assert_disjoint,
    counts_of,
    labels_of,
    problems,
    sizes_of,
)

from fltune.data.dirichlet import log_gamma_draws
from fltune.data.dirichlet_client import (
    DirichletClientEqual,
    DirichletClientLognormal,
    DirichletClientNormalised,
    fitted,
    normalised_over_clients,
    serve,
    serve_all,
)
from fltune.data.partition import largest_remainder


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1.0, 1e3])
def test_normalised_shares_sum_to_one_at_any_alpha(alpha):
    logs = log_gamma_draws(alpha, (7, 4), np.random.default_rng(0))
    shares = normalised_over_clients(logs, alpha)
    assert shares.shape == (4, 7)
    np.testing.assert_allclose(shares.sum(1), 1)


def test_normalised_shares_are_each_clients_proportions_divided_by_their_sum():
    gammas = np.array([[7.0, 2, 1], [1, 1, 8], [6, 6, 8]])
    q = gammas / gammas.sum(1, keepdims=True)
    shares = normalised_over_clients(0.5 * np.log(gammas), 0.5)
    np.testing.assert_allclose(shares, (q / q.sum(0)).T)


def test_normalised_clients_hold_classes_in_proportion_to_their_draws():
    labels = labels_of(40_000, 5)
    counts = counts_of(DirichletClientNormalised(0.5)(labels, 200, seed=0), labels).double()
    # Over clients a class's share has mean 1/N exactly, and clients differ in size: sum_c q_ic = 1
    # makes sizes hug n/N = 200, far closer than those of dirichlet_class (sd about 90).
    assert abs(counts.sum(1).mean() - 200) < 1e-9
    assert 2 < counts.sum(1).std() < 40


@settings(max_examples=200)
@given(ALPHAS, st.lists(st.integers(0, 20), min_size=1, max_size=8), st.booleans(), st.data())
def test_serve_takes_what_is_wanted_and_no_more_than_there_is(alpha, left, drawn, data):
    left = np.array(left)
    wanted = data.draw(st.integers(0, int(left.sum())))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    logs = log_gamma_draws(alpha, (1, len(left)), rng)[0]
    split = rng.multinomial if drawn else largest_remainder
    counts, displaced = serve(wanted, logs, alpha, left, split)
    assert counts.sum() == wanted
    assert (counts >= 0).all()
    assert (counts <= left).all()
    assert 0 <= displaced <= wanted


def test_serve_splits_what_a_used_up_class_lacks_among_the_others():
    logs = np.log([0.5, 0.3, 0.2])
    # 10 q = 5 3 2, but only 1 of class 0: the 4 missing go 0.3 : 0.2, that is 2.4 : 1.6
    counts, displaced = serve(10, logs, 1.0, np.array([1, 9, 9]), largest_remainder)
    assert (counts.tolist(), displaced) == ([1, 5, 4], 4)
    counts, displaced = serve(10, logs, 1.0, np.array([9, 9, 9]), largest_remainder)
    assert (counts.tolist(), displaced) == ([5, 3, 2], 0)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_counts_of_an_equal_client_are_dirichlet_multinomial(alpha):
    C, m, clients = 5, 40, 20_000
    logs = log_gamma_draws(alpha, (clients, C), np.random.default_rng(0))
    plenty = np.full(C, m)
    rng = np.random.default_rng(1)
    counts = np.array([serve(m, row, alpha, plenty, rng.multinomial)[0] for row in logs])
    p = 1 / C
    variance = m * p * (1 - p) * (m + C * alpha) / (1 + C * alpha)
    # Five standard errors of each of five means and variances: one false alarm in 170,000 seeds.
    assert (abs(counts.mean(0) - m * p) < 5 * (variance / clients) ** 0.5).all()
    fourth = ((counts - m * p) ** 4).mean(0)
    error = ((fourth - variance**2) / clients) ** 0.5
    assert (abs(counts.var(0) - variance) < 5 * error).all()


def test_a_used_up_class_is_as_if_it_had_probability_zero():
    # One sample each of three classes: without replacement, the first two draws are classes (a, b)
    # with probability q_a q_b / (1 - q_a); so b and c are left out in these proportions.
    q, left = np.array([0.6, 0.3, 0.1]), np.ones(3, np.int64)
    rng = np.random.default_rng(0)
    missing = np.zeros(3)
    for _ in range(20_000):
        missing += 1 - serve(2, np.log(q), 1.0, left, rng.multinomial)[0]
    expected = [
        sum(q[a] * q[b] / (1 - q[a]) for a in others for b in others if a != b)
        for others in ([1, 2], [0, 2], [0, 1])
    ]
    # four standard errors, three classes: one false alarm in 5,000 seeds
    assert missing / 20_000 == pytest.approx(expected, abs=4 * 0.5 / 20_000**0.5)


@given(problems(), ALPHAS)
def test_equal_clients_hold_the_same_number(problem, alpha):
    labels, num_clients, seed = problem
    clients = DirichletClientEqual(alpha)(labels, num_clients, seed)
    assert_clients(clients, num_clients, len(labels))
    assert_disjoint(clients)
    assert set(sizes_of(clients)) == {len(labels) // num_clients}


def test_late_clients_of_a_deal_have_no_telling_ids():
    # Whoever is served last takes what is left, so its distance to iid is smaller; ids must not
    # tell. Class 0 is scarce: those served late have none of it.
    labels = torch.tensor([0] * 20 + [1] * 180)
    held = np.zeros(10)
    for seed in range(200):
        clients = DirichletClientEqual(100.0)(labels, 10, seed)
        held += counts_of(clients, labels)[:, 0].numpy()
    # 400 samples per client on average; in order of ids the last would have hardly any
    assert (abs(held - 400) < 100).all(), held


def test_displaced_samples_are_noted():
    labels = torch.tensor([0] * 30 + [1] * 30)
    notes = [DirichletClientEqual(1e-3).assign(labels, 3, seed).notes for seed in range(20)]
    # Three clients of one class each, 20 samples: where all draw the same class of 30, 30 are
    # missing, and where two do, 10.
    assert {int(note.split(" of 60 samples are of another")[0]) for (note,) in notes} == {10, 30}


@settings(max_examples=200)
@given(problems(), ALPHAS, st.integers(1, 400), st.integers(0, 40))
def test_reuse_gives_everybody_the_drawn_size_and_nobody_a_sample_twice(problem, alpha, clip, add):
    labels, num_clients, seed = problem
    partition = DirichletClientLognormal(alpha, clip=clip, add=add, allocation="reuse")
    assignment = partition.assign(labels, num_clients, seed)
    assert assignment.overlapping
    assert_clients(assignment.clients, num_clients, len(labels))
    assert max(sizes_of(assignment.clients)) <= max(clip, 1)
    if clip <= add:
        assert set(sizes_of(assignment.clients)) == {min(clip, len(labels))}


@settings(max_examples=200)
@given(problems(), ALPHAS, st.integers(1, 400), st.integers(0, 40))
def test_scaled_clients_are_disjoint_and_use_all_samples_if_they_ask_for_more(
    problem, alpha, clip, add
):
    labels, num_clients, seed = problem
    assignment = DirichletClientLognormal(alpha, clip=clip, add=add).assign(
        labels, num_clients, seed
    )
    assert not assignment.overlapping
    assert_clients(assignment.clients, num_clients, len(labels))
    assert_disjoint(assignment.clients)
    if "scaled by" in assignment.notes[0]:
        assert sum(sizes_of(assignment.clients)) == len(labels)


def test_both_allocations_draw_the_same_sizes():
    labels = labels_of(54_000, 10)
    sizes = {
        allocation: np.array(
            sizes_of(DirichletClientLognormal(0.1, allocation=allocation)(labels, 500, seed=0))
        )
        for allocation in ("scale", "reuse")
    }
    assert abs(sizes["scale"] - sizes["reuse"] * 54_000 / sizes["reuse"].sum()).max() < 1
    assert sizes["scale"].sum() == 54_000  # FedCDR on MNIST: 108 on average after the hold-out
    assert 30 == sizes["reuse"].min() <= sizes["reuse"].max() == 500
    # 168 on average, sd 180: within four standard errors of 500 draws
    assert abs(sizes["reuse"].mean() - 168) < 4 * 180 / 500**0.5


def test_the_allocation_is_named():
    labels = labels_of(1000, 10)
    scaled = DirichletClientLognormal().assign(labels, 100, seed=0).notes
    assert scaled[0].startswith("allocation scale: clients ask for ")
    assert "sizes scaled by 0.0" in scaled[0]
    fits = DirichletClientLognormal(clip=5).assign(labels, 100, seed=0).notes
    assert fits[0] == "allocation scale: clients ask for 500 samples of 1000, as drawn"
    reused = DirichletClientLognormal(allocation="reuse", clip=50).assign(labels, 100, seed=0).notes
    assert reused[0].startswith("allocation reuse: clients hold ")


def test_class_counts_are_largest_remainders_of_size_times_proportions():
    labels = torch.arange(10).repeat_interleave(1000)
    clients = DirichletClientLognormal(1.0, sigma=0.0, mu=4.0, add=0)(labels, 10, seed=3)
    counts = counts_of(clients, labels)
    rng = np.random.default_rng(3)
    rng.standard_normal(10)
    g = np.exp(log_gamma_draws(1.0, (10, 10), rng))
    q = g / g.sum(1, keepdims=True)
    assert counts.sum(1).tolist() == [54] * 10  # floor(e^4)
    assert (abs(counts.numpy() - 54 * q) < 1).all()


def test_fitted_sizes_are_proportional_and_not_below_min_size():
    drawn = np.array([500, 300, 100, 100])
    assert fitted(drawn, 1000, 1).tolist() == drawn.tolist()
    assert fitted(drawn, 100, 1).tolist() == [50, 30, 10, 10]
    assert fitted(drawn, 20, 4).tolist() == [6, 6, 4, 4]  # 10 6 2 2, then one at a time


def test_served_clients_share_what_there_is():
    rng = np.random.default_rng(0)
    logs = log_gamma_draws(0.1, (6, 3), rng)
    sizes = np.array([5, 0, 9, 1, 3, 2])
    counts, _ = serve_all(sizes, logs, 0.1, np.array([4, 6, 10]), rng, rng.multinomial)
    assert counts.sum(0).tolist() == sizes.tolist()
    assert counts.sum(1).tolist() == [4, 6, 10]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"allocation": "overlap"}, "allocation = 'overlap' .* one of scale, reuse"),
        ({"sigma": -1.0}, "sigma = -1.0"),
        ({"mu": float("inf")}, "mu = inf"),
        ({"clip": 0}, "clip = 0"),
        ({"add": -1}, "add = -1"),
    ],
)
def test_hyperparameters_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        DirichletClientLognormal(**values)
