"""Tables 5 and 6 of FedCDR: who is never drawn, and how many visits make counts even."""

import math

import pytest

from fltune import theory

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
