"""Tables 5 and 6 of FedCDR, and what the golden numbers of ``theory.json`` leave out.

Table 5 says who is never drawn, Table 6 how many visits make counts even.
"""

import math

import pytest

from fltune import theory
from fltune.participation.bernoulli import Bernoulli
from fltune.participation.cyclic import Cyclic, ReshuffledCyclic
from fltune.participation.trace import record
from fltune.participation.uniform import Uniform

CLIENTS = (50, 500, 50_000)
UNSEEN = {
    # (gamma, R): the share in per cent, and clients of 50, 500, 50,000
    (0.05, 20): ("36.79", (18, 184, 18_394)),
    (0.10, 20): ("13.53", (7, 68, 6_767)),
    (0.50, 20): ("0.00", (0, 0, 2)),
    (0.05, 50): ("8.21", (4, 41, 4_104)),
    (0.10, 50): ("0.67", (0, 3, 337)),
    (0.50, 50): ("0.00", (0, 0, 0)),
    (0.05, 200): ("0.00", (0, 0, 2)),
    (0.10, 200): ("0.00", (0, 0, 0)),
    (0.50, 200): ("0.00", (0, 0, 0)),
}
VISITS = {
    # e: gamma R for 95, 90, 75 and 50 per cent
    0.1: (1106.7, 898.7, 623.8, 415.9),
    0.2: (276.7, 224.7, 156.0, 104.0),
    0.3: (123.0, 99.9, 69.3, 46.2),
    0.5: (44.3, 35.9, 25.0, 16.6),
}


@pytest.mark.parametrize(("gamma", "rounds"), UNSEEN)
def test_table_5(gamma, rounds):
    """Counts are N e^(-gamma R) rounded to the nearest whole number."""
    percent, counts = UNSEEN[gamma, rounds]
    share = theory.unseen_share(gamma, rounds)
    assert f"{100 * share:.2f}" == percent
    assert tuple(round(n * share) for n in CLIENTS) == counts


@pytest.mark.parametrize("n", CLIENTS)
@pytest.mark.parametrize(("gamma", "rounds"), UNSEEN)
def test_the_share_is_just_above_the_exact_number(n, gamma, rounds):
    draws = round(gamma * n)
    exact = theory.expected_unseen(n, draws, rounds) / n
    near = theory.unseen_share(draws / n, rounds)
    assert 1 < near / exact < math.exp(draws / n * rounds / (2 * (n - 1)))


def test_a_client_of_one_is_always_seen():
    assert theory.expected_unseen(1, 1, 1) == 0
    assert theory.expected_unseen(7, 3, 0) == 7
    assert theory.visit_probability(0.2, 1) == pytest.approx(0.2)


@pytest.mark.parametrize("deviation", VISITS)
def test_table_6(deviation):
    found = [theory.visits_for_even_counts(deviation, p) for p in (0.95, 0.9, 0.75, 0.5)]
    assert [f"{v:.1f}" for v in found] == [f"{v:.1f}" for v in VISITS[deviation]]


@pytest.mark.parametrize(("deviation", "confidence"), [(0, 0.5), (1.5, 0.5), (0.1, 1), (0.1, -1)])
def test_visits_need_a_deviation_and_a_confidence(deviation, confidence):
    with pytest.raises(ValueError, match="is not allowed"):
        theory.visits_for_even_counts(deviation, confidence)


@pytest.mark.parametrize("budget", [0.01, 3.0])
def test_fedcdrs_accuracies_stay_within_the_budget(budget):
    """eps^2 = M / (2 k^2) with different whole k in all rounds: the sum is below M pi^2 / 12."""
    eps = [theory.fedcdr_accuracy(budget, 7, t, r) for t in range(500) for r in range(7)]
    assert eps[0] ** 2 == pytest.approx(budget / 2)
    assert sum(e * e for e in eps) < budget * math.pi**2 / 12 < budget


@pytest.mark.parametrize("budget", [0, -1.0, math.nan])
def test_a_budget_is_positive(budget):
    with pytest.raises(ValueError, match=f"budget = {budget} is not allowed; must be > 0"):
        theory.fedcdr_accuracy(budget, 4, 0, 0)


@pytest.mark.parametrize("case", ["gd", "ssgd", "sgd"])
def test_cyclic_groups_help_only_where_a_round_takes_a_whole_group(case):
    helps = [theory.cycp_groups_help(20, groups, 5, case) for groups in (1, 2, 3, 4)]
    assert helps == [False, False, False, True]
    assert not theory.cycp_groups_help(20, 1, 20, case)  # one group of all is none


def test_cyclic_groups_help_sgd_only_where_clients_differ_more_than_the_noise():
    """M sigma2 / (n tau) = 20 * 3 / (5 * 6) = 2."""
    found = [theory.cycp_groups_help(20, 4, 5, "sgd", 6, g**0.5, 3.0) for g in (1.99, 2.01)]
    assert found == [False, True]
    assert theory.cycp_groups_help(20, 4, 5, "gd", 6, 0.0, 3.0)
    with pytest.raises(ValueError, match="case = 'rr' is not allowed"):
        theory.cycp_groups_help(20, 4, 5, "rr")


def test_cyclic_ssgd_beats_local_rr_with_clients_enough():
    """n (1 + alpha / (gamma + nu / sqrt(B))) = 5 (1 + 6 / (1 + 4 / 2)) = 15."""
    assert [theory.cycp_beats_local_rr(m, 5, 4, 6.0, 1.0, 4.0) for m in (15, 16)] == [False, True]
    assert not theory.cycp_beats_local_rr(100, 5, 4, 6.0, 0.0, 0.0)


P = [0.1 + 0.02 * i for i in range(20)]
PATTERNS = {
    "uniform": (lambda: Uniform(5), 0.25),
    "bernoulli": (lambda: Bernoulli(each=P), 0.1),
    "cyclic": (lambda: Cyclic(5), 0.25),
    "reshuffled": (lambda: ReshuffledCyclic(5), 0.25),
}
BOUNDS = {
    "uniform": 16 * math.log(2000),
    "bernoulli": 40 * math.log(2000),
    "cyclic": 8,
    "reshuffled": 16,
}


@pytest.mark.parametrize("name", PATTERNS)
def test_the_longest_absence_is_within_fedsums_bound(name):
    make, share = PATTERNS[name]
    bound = theory.tau_max_bound(name, 20, share, 100)
    assert bound == pytest.approx(BOUNDS[name])
    longest = []
    for seed in range(20):
        pattern = make().bind(20, seed)
        record(pattern, 100)
        longest.append(pattern.turns.tau_max)
    assert 0 < sum(longest) / 20 <= bound


def test_a_rare_client_sets_the_bound_of_a_short_run():
    assert theory.tau_max_bound("bernoulli", 2, 0.01, 2) == pytest.approx(400 * math.log(100))
    with pytest.raises(ValueError, match="pattern = 'sine' is not allowed; must be one of"):
        theory.tau_max_bound("sine", 20, 0.25, 100)
