import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.participation import PARTICIPATION
from fltune.participation.bernoulli import Biased, Sine
from fltune.participation.cyclic import ReshuffledCyclic
from fltune.participation.full import Full
from fltune.participation.trace import Trace, record
from fltune.participation.uniform import Uniform

quick = settings(deadline=None, max_examples=40)


@st.composite
def patterns(draw):
    """(a fresh pattern on each call, number of clients, seed): extend it for every new pattern."""
    n = draw(st.integers(1, 30))
    ids = st.lists(st.integers(0, n - 1), unique=True, max_size=n)
    kind = draw(st.sampled_from(sorted(PARTICIPATION)))
    size = {"per_round": draw(st.integers(1, n))}
    groups = draw(st.integers(1, n))
    there = {
        "probability": draw(st.floats(0.01, 0.9)),
        "at_most": draw(st.none() | st.integers(1, n)),
    }
    last = draw(st.sampled_from(["smaller", "dropped", "wrapped"]))
    options = {
        "full": {},
        "uniform": size,
        "cyclic": size,
        "reshuffled": {**size, "last_block": last},
        "bernoulli": {"probability": draw(st.floats(0.01, 1))},
        "sine": {
            **size,
            "swing": draw(st.floats(0, 0.5)),
            "each": draw(st.none() | st.lists(st.floats(0, 1), min_size=n, max_size=n)),
        },
        "biased": {"block": draw(st.integers(1, 10))},
        "groups": {
            "groups": groups,
            "per_round": draw(st.integers(1, n // groups)),
            "formation": draw(st.sampled_from(["shuffled", "sorted_by_label", "contiguous"])),
        },
        "with_replacement": {
            **size,
            "multiplicity": draw(st.booleans()),
            "by_samples": draw(st.booleans()),
        },
        "markov": {**there, "mean_spell": draw(st.floats(9, 50))},
        "blocks": {**there, "cycle": draw(st.integers(1, 12))},
        "asynchronous": {
            "concurrency": draw(st.integers(1, n)),
            "buffer": draw(st.integers(1, n)),
        },
        "trace": {"rounds": draw(st.lists(ids, min_size=1, max_size=5))},
    }[kind]
    seed = draw(st.integers(0, 99))
    held = torch.tensor(
        draw(st.lists(st.lists(st.integers(1, 9), min_size=3, max_size=3), min_size=n, max_size=n))
    )
    return lambda: PARTICIPATION.load(kind)(**options).bind(n, seed, held), n


cohorts = record


@quick
@given(patterns())
def test_cohorts_are_sorted_ids_and_the_same_for_the_same_seed(drawn):
    make, n = drawn
    torch.manual_seed(0)
    first = cohorts(make(), 8)
    torch.manual_seed(1)  # not the global generator's business
    assert cohorts(make(), 8) == first
    pattern = make()
    twice = pattern.merges_repeats or pattern.asynchronous
    for cohort in first:
        assert cohort == sorted(cohort if twice else set(cohort))
        assert all(type(i) is int and 0 <= i < n for i in cohort)


@quick
@given(patterns(), st.integers(0, 8))
def test_resumes_in_the_middle(drawn, cut):
    make, _ = drawn
    whole, stopped, resumed = make(), make(), make()
    expected = cohorts(whole, 8)
    start = cohorts(stopped, cut)
    resumed.load_state_dict(stopped.state_dict())
    assert start + cohorts(resumed, 8 - cut) == expected
    assert (resumed.round, resumed.report()) == (8, whole.report())
    assert str(resumed.state_dict()) == str(whole.state_dict())


@quick
@given(patterns())
def test_one_epoch_is_one_cohort(drawn):
    pattern = drawn[0]()
    assert len(list(pattern)) == len(pattern) == 1
    assert pattern.round == 1


def test_uniform_draws_every_client_equally_often():
    """Counts are binomial: 2000 rounds of 5 in 20; five standard deviations are 97."""
    pattern = Uniform(5).bind(20, 0)
    drawn = cohorts(pattern, 2000)
    assert {len(c) for c in drawn} == {5}
    counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=20)
    assert float((counts - 500).abs().max()) < 97
    together = sum({0, 1} <= set(c) for c in drawn)  # 5 * 4 / (20 * 19) of the rounds
    assert together == pytest.approx(2000 / 19, abs=5 * (2000 / 19) ** 0.5)


def test_uniform_rounds_and_seeds_differ():
    one, other = cohorts(Uniform(5).bind(20, 0), 20), cohorts(Uniform(5).bind(20, 1), 20)
    assert len({tuple(c) for c in one}) > 15
    assert sum(a == b for a, b in zip(one, other, strict=True)) <= 1


def test_delays_by_hand():
    """Three clients; a_i starts at -1, and tau_t is the longest absence t - a_i."""
    pattern = Trace([[0, 1], [], [2], [0, 1, 2]]).bind(3, 0)
    taus = []
    for _ in range(4):
        before = pattern.turns.tau_avg * pattern.round
        next(iter(pattern))
        taus.append(round(pattern.turns.tau_avg * pattern.round - before))
    # round 0: client 2 was never seen: 0 - -1; round 1: 1 - -1; round 2: 2 - 0; round 3: all here
    assert taus == [1, 2, 2, 0]
    assert pattern.turns.tau_max == 2
    assert pattern.turns.tau_avg == 5 / 4


def test_counts_by_hand():
    """n = (3, 1, 0, 0), mean 1: client 0 is off by 2, and the variance is 6/4."""
    pattern = Trace([[0], [], [0, 1], [0]]).bind(4, 0)
    none = {"tau_max": 0, "tau_avg": 0.0, "coverage": 0.0, "fairness": 0.0, "count_cv": 0.0}
    assert pattern.report() == none
    cohorts(pattern, 4)
    assert pattern.turns.counts.tolist() == [3, 1, 0, 0]
    assert (pattern.turns.coverage, pattern.turns.fairness) == (0.5, 2.0)
    assert pattern.turns.count_cv == pytest.approx(1.5**0.5)


def test_a_client_that_stands_twice_counts_twice():
    pattern = Trace([[1, 1, 0]], repeats=True).bind(3, 0)
    cohorts(pattern, 1)
    assert pattern.turns.counts.tolist() == [1, 2, 0]


def test_only_empty_rounds_are_even():
    pattern = Trace([[]]).bind(3, 0)
    cohorts(pattern, 4)
    turns = pattern.turns
    assert (turns.coverage, turns.fairness, turns.count_cv, turns.tau_max) == (0, 0, 0, 4)


def test_a_whole_epoch_of_reshuffling_is_even():
    pattern = ReshuffledCyclic(4).bind(12, 0)
    cohorts(pattern, 6)
    assert (pattern.turns.coverage, pattern.turns.fairness, pattern.turns.count_cv) == (1, 0, 0)


def test_reshuffling_puts_every_client_into_every_block():
    """Binomial(600, 1/2) for each of 10 clients; five standard deviations are 61."""
    drawn = cohorts(ReshuffledCyclic(5).bind(10, 0), 1200)
    first = torch.bincount(torch.tensor(drawn[::2]).flatten(), minlength=10)
    assert float((first - 300).abs().max()) < 61


def test_sine_swings_as_it_says():
    """400 rounds of 40 coins at each of 10 phases; five standard deviations are below 0.02."""
    pattern = Sine(per_round=16).bind(40, 0)
    sizes = torch.tensor([len(c) for c in cohorts(pattern, 4000)]).view(400, 10)
    expected = torch.stack([pattern.probabilities(t)[0] for t in range(10)])
    assert float((sizes.double().mean(0) / 40 - expected).abs().max()) < 0.02


def test_sine_swings_each_client_around_its_own_probability():
    """FedAWE's program: sin(2 pi t / 20), p_i of the clients; 0.7, 1 and 0.4 of them here."""
    each = [0.0, 0.2, 1.0]
    pattern = Sine(each=each, period=20).bind(3, 0)  # per_round = 10 is not read
    for t, level in ((0, 0.7), (5, 1.0), (15, 0.4), (20, 0.7)):
        assert pattern.probabilities(t).tolist() == pytest.approx([p * level for p in each])
    cohorts(pattern, 4000)
    assert (pattern.turns.counts / 4000).tolist() == pytest.approx([0, 0.14, 0.7], abs=0.04)
    deepest = Sine(each=[1.0] * 3, swing=0.5, period=8).bind(3, 0)
    assert all(0 <= p <= 1 for t in range(80) for p in deepest.probabilities(t).tolist())


def test_biased_takes_each_block_as_often_as_it_says():
    """3000 coins for each of 24 clients; five standard deviations are below 0.046."""
    pattern = Biased(block=4).bind(24, 0)
    cohorts(pattern, 3000)
    assert float((pattern.turns.counts / 3000 - pattern.probabilities(0)).abs().max()) < 0.046


def test_full_participation_has_no_delay():
    pattern = Full().bind(4, 0)
    assert cohorts(pattern, 3) == [[0, 1, 2, 3]] * 3
    assert (pattern.turns.tau_max, pattern.turns.tau_avg) == (0, 0.0)


def test_a_trace_starts_again_after_its_last_round():
    assert cohorts(Trace([[1], []]).bind(2, 0), 5) == [[1], [], [1], [], [1]]


def test_binding_starts_anew():
    pattern = Uniform(2).bind(9, 0)
    first = cohorts(pattern, 3)
    assert cohorts(pattern.bind(9, 0), 3) == first


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(6), "per_round = 6 is more than the 5 clients there are"),
        (lambda: Uniform(0), r"Uniform: per_round = 0 is not allowed; must be >= 1"),
        (lambda: Sine(per_round=6), "per_round = 6 is more than the 5 clients there are"),
        (lambda: Sine(each=[0.5] * 4), "each has 4 probabilities for 5 clients"),
        (lambda: Sine(each=[1.5] * 5), r"must be in \[0, 1\]"),
        (lambda: Trace([]), "rounds is empty"),
        (lambda: Trace([[0], [1, 5]]), r"rounds\[1\] names client 5; ids are 0\.\.4"),
        (lambda: Trace([[-1]]), r"rounds\[0\] names client -1"),
        (lambda: Trace([[2, 2]]), r"rounds\[0\] names a client twice: \[2, 2\]"),
    ],
)
def test_patterns_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make().bind(5, 0)
