import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.rungs import Asha, Hyperband, MedianStopping, make_rungs
from fltune.search.settings import SearchSettings

SCORES = st.floats(allow_nan=True, allow_infinity=True)


def settings(**own):
    return SearchSettings.model_validate(own)


def kinds(maximize=True, rounds=27):
    return [
        Asha(maximize, rounds, grace=1, reduction=3),
        Hyperband(maximize, rounds, grace=1, reduction=3),
        MedianStopping(maximize, rounds, grace=1, min_trials=2),
    ]


@pytest.mark.parametrize(
    ("scheduler", "kind"),
    [("none", type(None)), ("asha", Asha), ("hyperband", Hyperband), ("median", MedianStopping)],
)
def test_the_settings_name_the_scheduler(scheduler, kind):
    rungs = make_rungs(settings(scheduler=scheduler, grace=2, reduction=2, metric="val/loss"), 20)
    assert type(rungs) is kind
    if rungs is not None:
        assert (rungs.rounds, rungs.maximize) == (20, False)
    if kind is Asha:
        assert rungs.rungs == [2, 4, 8, 16]


def test_a_grace_longer_than_the_run_stops_nobody():
    rungs = make_rungs(settings(scheduler="asha", grace=50), 20)
    assert rungs.rungs == []
    assert not any(rungs.stop(n, round, -n) for n in range(9) for round in range(1, 21))


# asha


def test_asha_keeps_the_best_share_of_a_rung():
    rungs = Asha(True, rounds=100, grace=5, reduction=3)
    scores = [0.5, 0.6, 0.4, 0.7, 0.65, 0.1]
    # of n trials the best ceil(n / 3) go on, each judged among those that came before it
    assert [rungs.stop(n, 5, s) for n, s in enumerate(scores)] == [
        False,  # alone
        False,  # best of two
        True,
        False,  # best of four
        False,  # second of five
        True,
    ]
    assert rungs.cutoff(5) == 0.65


def test_asha_minimises():
    rungs = Asha(False, rounds=100, grace=5, reduction=2)
    assert [rungs.stop(n, 5, s) for n, s in enumerate([0.5, 0.4, 0.6, 0.1])] == [
        False,
        False,
        True,
        False,
    ]
    assert rungs.cutoff(5) == 0.4


def test_a_rung_is_judged_at_the_first_evaluation_at_or_after_it():
    rungs = Asha(True, rounds=100, grace=5, reduction=2)
    for round, score in ((4, 0.9), (8, 0.5), (12, 0.8)):  # rungs at 5, 10, 20
        assert not rungs.stop(0, round, score)
    assert not rungs.stop(1, 4, 0.0)  # still in its grace
    assert [rungs.cutoff(r) for r in rungs.rungs] == [0.5, 0.8, None, None, None]
    assert not rungs.stop(1, 8, 0.6)
    assert rungs.stop(1, 12, 0.7)


def test_the_first_bad_trial_at_a_rung_is_stopped_once_better_ones_have_come():
    rungs = Asha(True, rounds=100, grace=5, reduction=2)
    assert not rungs.stop(0, 5, 0.1)  # alone
    assert not rungs.stop(0, 6, 0.1)
    assert not rungs.stop(1, 5, 0.5)
    assert rungs.stop(0, 7, 0.9)  # by its score at the rung, not by one made with more rounds
    assert not rungs.stop(1, 9, 0.5)


def test_a_trial_that_has_come_to_the_next_rung_is_judged_there():
    rungs = Asha(True, rounds=100, grace=5, reduction=2)
    assert not rungs.stop(0, 5, 0.1)
    assert not rungs.stop(0, 10, 0.9)
    for n in (1, 2, 3):
        rungs.stop(n, 5, 0.5)
    assert not rungs.stop(0, 11, 0.9)


@pytest.mark.parametrize("rungs", kinds(), ids=lambda r: type(r).__name__)
def test_the_last_evaluation_stops_nobody(rungs):
    for n in range(20):
        assert not rungs.stop(n, 27, -float(n))
        assert not rungs.stop(n, 28, -float(n))


@given(scores=st.lists(SCORES, min_size=1, max_size=40), maximize=st.booleans())
def test_ashas_cutoffs_stay_finite(scores, maximize):
    rungs = Asha(maximize, rounds=100, grace=3, reduction=3)
    for n, score in enumerate(scores):
        rungs.stop(n, 3, score)
        assert math.isfinite(rungs.cutoff(3))


@given(
    bad=st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=20),
    maximize=st.booleans(),
    seed=st.integers(0, 99),
)
def test_asha_stops_bad_trials_when_some_are_not_finite(bad, maximize, seed):
    rungs = Asha(maximize, rounds=100, grace=3, reduction=3)
    good = [0.9, 0.8, 0.7, 0.2, 0.1, 0.05]
    entries = [s if maximize else -s for s in good] + bad
    random.Random(seed).shuffle(entries)
    for n, score in enumerate(entries):
        rungs.stop(n, 3, score)
    stopped = [rungs.stop(n, 4, score) for n, score in enumerate(entries)]
    kept = [abs(s) for s, stop in zip(entries, stopped, strict=True) if not stop]
    assert sorted(kept, reverse=True) == good[: math.ceil(len(entries) / 3)]


def test_a_trial_that_diverged_is_last_at_the_rungs_that_it_did_not_come_to():
    rungs = Asha(True, rounds=100, grace=5, reduction=2)
    rungs.stop(0, 5, 0.9)
    rungs.diverged(0)
    assert rungs.cutoff(5) == 0.9
    assert rungs.cutoff(10) < -1e200
    assert not rungs.stop(1, 5, 0.9)
    assert not rungs.stop(1, 10, 0.1)
    assert rungs.cutoff(10) == 0.1


# hyperband


def test_hyperbands_brackets_have_ever_longer_grace():
    rungs = Hyperband(True, rounds=81, grace=1, reduction=3)
    assert [b.rungs for b in rungs.brackets] == [
        [1, 3, 9, 27],
        [3, 9, 27],
        [9, 27],
        [27],
        [],
    ]
    assert [b.rungs for b in Hyperband(True, 81, 1, 3, brackets=2).brackets] == [
        [1, 3, 9, 27],
        [3, 9, 27],
    ]


def test_a_cycle_of_trials_has_hyperbands_proportions_and_is_mixed():
    rungs = Hyperband(True, rounds=81, grace=1, reduction=3)
    cycle = [rungs.bracket(n) for n in range(81 + 34 + 15 + 8 + 5)]
    assert [cycle.count(b) for b in range(5)] == [81, 34, 15, 8, 5]  # their Table 1, five brackets
    assert set(cycle[:15]) == {0, 1, 2, 3, 4}
    assert [Hyperband(True, 81, 1, 3).bracket(n) for n in (40, 7, 0)] == [
        cycle[n] for n in (40, 7, 0)
    ]


def test_a_bracket_ranks_its_own_trials_only():
    rungs = Hyperband(True, rounds=27, grace=1, reduction=3)
    numbers = {b: [n for n in range(60) if rungs.bracket(n) == b] for b in range(4)}
    first, second = numbers[0][:2]
    assert not rungs.stop(numbers[1][0], 3, 0.9)
    assert not rungs.stop(first, 3, 0.2)
    assert rungs.stop(second, 3, 0.1)
    late = numbers[3][0]  # the last bracket stops nobody
    assert not any(rungs.stop(late, round, -9.0) for round in range(1, 28))


# median


def test_median_stops_what_never_was_as_good_as_half_of_the_others_on_average():
    rungs = MedianStopping(True, rounds=30, grace=4, min_trials=3)
    rungs.replay(0, {2: 0.2, 4: 0.4, 6: 0.6})  # averages 0.2, 0.3, 0.4
    rungs.replay(1, {2: 0.4, 4: 0.6, 6: 0.8})  # 0.4, 0.5, 0.6
    assert not rungs.stop(3, 4, 0.0)  # two others only
    rungs.replay(2, {2: 0.1, 4: 0.1})  # 0.1, 0.1; it did not come to round 6
    assert not rungs.stop(4, 2, 0.0)  # grace
    assert rungs.stop(5, 4, 0.14)  # below the median of 0.3, 0.5, 0.1 and 0.0, which is 0.2
    assert not rungs.stop(6, 4, 0.2)
    assert not rungs.stop(7, 2, 0.5)
    assert not rungs.stop(7, 4, 0.1)  # its best counts, not its last


@given(
    histories=st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=6), max_size=6),
    own=st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    maximize=st.booleans(),
)
def test_median_is_the_rule_of_the_paper(histories, own, maximize):
    rungs = MedianStopping(maximize, rounds=99, grace=1, min_trials=2)
    for n, scores in enumerate(histories):
        rungs.replay(n, {2 * i + 2: s for i, s in enumerate(scores)})
    for i, score in enumerate(own):
        stopped = rungs.stop(50, 2 * i + 2, score)
        averages = [statistics.fmean(h[: i + 1]) for h in histories if len(h) > i]
        best = (max if maximize else min)(own[: i + 1])
        expected = len(averages) >= 2
        if expected:
            gap = (statistics.median(averages) - best) * (1 if maximize else -1)
            if abs(gap) < 1e-9:
                continue  # rounding decides
            expected = gap > 0
        assert stopped == expected


def test_median_counts_a_round_once_that_is_told_again():
    rungs = MedianStopping(True, rounds=30, grace=2, min_trials=1)
    for scores in ({2: 0.2, 4: 0.4, 6: 0.9}, {2: 0.2, 4: 0.4}):  # it began anew, as after a loss
        rungs.replay(0, scores)
    assert rungs.stop(1, 6, 0.49)  # below 0.5, the mean of the three
    assert not rungs.stop(2, 4, 0.31)
    assert rungs.stop(3, 4, 0.29)


def test_median_counts_diverged_trials_as_the_worst():
    rungs = MedianStopping(True, rounds=30, grace=2, min_trials=3)
    for n in range(3):
        rungs.stop(n, 2, 0.9)
        rungs.diverged(n)
    assert rungs.stop(3, 2, 0.5)
    assert not rungs.stop(4, 3, 0.0)


# resuming and freezing


def run(rungs, trials, seed):
    """Let trials report in a random interleaving; return who was stopped when."""
    chance, alive, stopped = random.Random(seed), dict.fromkeys(trials, 0), {}
    while alive:
        n = chance.choice(sorted(alive))
        round, score = trials[n][alive[n]]
        alive[n] += 1
        if rungs.stop(n, round, score):
            stopped[n] = round
            del alive[n]
        elif alive[n] == len(trials[n]):
            del alive[n]
    return stopped


def curves(count, seed, rounds=27):
    chance = random.Random(seed)
    return {
        n: [(r, chance.random() + 0.01 * r) for r in range(1, rounds + 1, 2)] for n in range(count)
    }


@pytest.mark.parametrize("kind", range(3), ids=["asha", "hyperband", "median"])
def test_frozen_decisions_do_not_depend_on_the_order_of_reports(kind):
    ends = []
    for order in range(4):
        rungs = kinds()[kind]
        rungs.freeze()
        stopped = {}
        for batch in range(6):
            own = {n + 10 * batch: c for n, c in curves(10, seed=batch).items()}
            stopped.update(run(rungs, own, seed=order))
            rungs.commit()
        ends.append(stopped)
    assert ends[0]
    assert all(stopped == ends[0] for stopped in ends)
    assert not any(n < 10 for n in ends[0])  # nothing was committed yet
    free = [run(kinds()[kind], curves(30, seed=0), seed=order) for order in range(4)]
    assert any(stopped != free[0] for stopped in free)  # which is why one freezes


@pytest.mark.parametrize("kind", range(3), ids=["asha", "hyperband", "median"])
@pytest.mark.parametrize("frozen", [False, True])
def test_replayed_rungs_decide_as_the_uninterrupted_ones(kind, frozen):
    rungs, again = kinds()[kind], kinds()[kind]
    told = {}
    trials = curves(20, seed=5)
    stopped = run(rungs, trials, seed=1)
    rungs.diverged(3)
    for n, curve in trials.items():
        told[n] = {r: s for r, s in curve if r <= stopped.get(n, 99)}
    for n in sorted(told, reverse=True):
        again.replay(n, told[n])
    again.diverged(3)
    if frozen:
        rungs.freeze()
        again.freeze()
    more = {n + 100: c for n, c in curves(20, seed=6).items()}
    after = run(rungs, more, seed=2)
    assert after == run(again, more, seed=2)
    assert after


def test_a_resumed_trial_may_report_rounds_again():
    for rungs in kinds():
        for n in range(8):
            rungs.replay(n, {1: 0.5, 3: 0.5, 9: 0.5})
        before = [rungs.stop(20, r, 0.4) for r in (1, 3)]
        assert [rungs.stop(20, r, 0.4) for r in (1, 3)] == before
