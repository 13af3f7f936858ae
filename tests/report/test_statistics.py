"""Paired tests over seeds, held to SciPy's, and Holm's correction."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fltune.report.statistics import compare_to, holm, lucky

SCORES = st.floats(-10, 10).map(lambda v: round(v, 4))
P = st.one_of(st.floats(0, 1), st.just(math.nan))


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=12))
def test_one_comparison_is_scipys_paired_test(pairs):
    own, best = map(list, zip(*pairs, strict=True))
    differences = np.subtract(own, best)
    assume(np.std(differences) > 1e-6)
    by_seed = {"best": dict(enumerate(best)), "own": dict(enumerate(own))}
    found = compare_to("best", by_seed)
    assert list(found) == ["own"]
    assert found["own"].p == pytest.approx(stats.ttest_rel(own, best).pvalue, rel=1e-6, abs=1e-12)
    assert found["own"].difference.mean == pytest.approx(differences.mean(), abs=1e-12)


def test_only_seeds_that_both_have_are_compared():
    by_seed = {"best": {1: 0.9, 2: 0.8, 3: 0.7}, "own": {2: 0.7, 3: 0.7, 4: 0.0}, "none": {9: 1.0}}
    found = compare_to("best", by_seed)
    assert set(found) == {"own"}
    assert (found["own"].difference.seeds, found["own"].difference.mean) == (
        2,
        pytest.approx(-0.05),
    )


def test_one_seed_proves_nothing_and_equal_scores_differ_in_nothing():
    found = compare_to("a", {"a": {1: 0.5, 2: 0.6}, "b": {1: 0.4}, "c": {1: 0.5, 2: 0.6}})
    assert math.isnan(found["b"].p)
    assert found["c"].p == 1.0


@pytest.mark.parametrize("kept_in", [float, np.float32])
@pytest.mark.parametrize("correct", [(342, 339), (342, 339, 345), (60, 101, 359)])
def test_differences_that_are_all_equal_prove_nothing(kept_in, correct):
    """One sample of 360 on every seed, with the rounding of the type that metrics are logged in."""
    best = {s: float(kept_in(n / 360)) for s, n in enumerate(correct)}
    own = {s: float(kept_in((n - 1) / 360)) for s, n in enumerate(correct)}
    found = compare_to("best", {"best": best, "own": own, "same": dict(best)})
    assert found["own"].all_equal
    assert math.isnan(found["own"].p)
    assert found["own"].difference.mean == pytest.approx(-1 / 360, rel=1e-4)
    assert math.isnan(found["own"].difference.low)
    assert math.isnan(found["own"].difference.high)
    assert (found["same"].p, found["same"].all_equal) == (1.0, False)  # and it is corrected for one
    one = compare_to("best", {"best": {1: 0.5}, "own": {1: 0.4}})["own"]
    assert math.isnan(one.p)
    assert not one.all_equal


def test_few_samples_and_few_seeds_do_not_make_a_difference_certain():
    """Of two methods that are alike, on two seeds and 360 samples, few have p < 0.001."""
    random = np.random.default_rng(0)
    certain = 0
    for _ in range(500):
        shared, steps = random.integers(320, 345, 2), np.rint(random.normal(0, 1, 2))
        by_seed = {"a": dict(enumerate(shared / 360)), "b": dict(enumerate((shared + steps) / 360))}
        certain += compare_to("a", by_seed)["b"].p < 1e-3
    assert certain == 0  # 2 seeds, differences of whole samples: the least p that can be is above


def test_a_score_that_is_no_number_counts_nowhere():
    found = compare_to("a", {"a": {1: 0.5, 2: 0.6, 3: math.nan}, "b": {1: 0.4, 2: 0.4, 3: 1.0}})
    assert found["b"].difference.seeds == 2
    assert math.isfinite(found["b"].p)


def test_comparisons_are_corrected_for_how_many_there_are():
    best = {1: 0.90, 2: 0.91, 3: 0.93}
    others = {"near": {1: 0.88, 2: 0.90, 3: 0.90}, "far": {1: 0.70, 2: 0.72, 3: 0.73}}
    raw = [
        stats.ttest_rel(list(own.values()), list(best.values())).pvalue for own in others.values()
    ]
    found = compare_to("best", {"best": best, **others})
    assert [found[name].p for name in others] == pytest.approx([raw[0], 2 * raw[1]])


def test_holms_correction_of_fixed_numbers():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01, math.nan, 0.04])[::2] == pytest.approx([0.02, 0.04])
    assert holm([]) == []


@given(st.lists(P, max_size=8))
def test_holm_keeps_the_order_and_makes_nothing_smaller(raw):
    corrected = holm(raw)
    assert [math.isnan(p) for p in corrected] == [math.isnan(p) for p in raw]
    known = sorted((p, c) for p, c in zip(raw, corrected, strict=True) if not math.isnan(p))
    assert all(p <= c <= 1 for p, c in known)
    assert [c for _, c in known] == sorted(c for _, c in known)
    if known:
        assert known[0][1] == pytest.approx(min(1.0, len(known) * known[0][0]))


def test_a_score_is_lucky_above_the_prediction_interval():
    fresh = [0.80, 0.82, 0.84]
    bound = 4.30265 * 0.02 * math.sqrt(1 + 1 / 3)
    assert lucky(1.01 * bound, 1, fresh)
    assert not lucky(0.99 * bound, 1, fresh)
    assert lucky(0.99 * bound, 3, fresh)  # a mean of three is less noisy
    assert not lucky(5.0, 1, [0.8])
    assert not lucky(-5.0, 1, fresh)
    assert not lucky(0.01, 1, [0.8, 0.8, 0.8])


def test_an_honest_score_is_seldom_called_lucky():
    random = np.random.default_rng(0)
    draws = random.normal(size=(2000, 6))
    called = sum(lucky(row[0] - row[1:].mean(), 1, list(row[1:])) for row in draws)
    # Binomial(2000, 0.025): mean 50, std 7; beyond 4 std in 1 of 10,000 seeds
    assert 22 <= called <= 78
