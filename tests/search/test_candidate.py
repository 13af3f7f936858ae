import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.candidate import Candidate, by_promise, why_hopeless, winners
from fltune.search.record import TrialRecord

UP = ("maximize",)


def candidate(number, runs, seeds=(0,), rejected="", violations=()):
    """A config with runs of (status, scores); one per seed, in order."""
    made = Candidate(number, {"server.lr": number}, seeds, rejected=rejected)
    for seed, (status, *scores) in zip(seeds, runs, strict=False):
        record = TrialRecord("A", "trial", number, made.values, seed, status, scores)
        record.violations = list(violations)
        made.runs.append(record)
    return made


def complete(number, *scores, **more):
    return candidate(number, [("complete", *scores)], **more)


@pytest.mark.parametrize(
    ("runs", "rejected", "status"),
    [
        ([], "", "running"),
        ([("complete", 0.5)], "", "running"),
        ([("complete", 0.5)] * 3, "", "complete"),
        ([("complete", 0.9), ("diverged", 0.0)], "", "diverged"),
        ([("complete", 0.9), ("complete", 0.9), ("diverged", 0.0)], "", "diverged"),
        ([("pruned", 0.4)], "", "pruned"),
        ([("complete", 0.4)], "rejected after 1 of 3 seeds", "pruned"),
        ([("pruned", 0.4), ("diverged", 0.0)], "", "diverged"),
        ([("complete", 0.4), ("failed",)], "", "failed"),
        ([("diverged", 0.0), ("failed",)], "", "failed"),
    ],
)
def test_a_config_is_what_the_worst_of_its_runs_is(runs, rejected, status):
    assert candidate(0, runs, (0, 1, 2), rejected).status == status


@given(st.permutations([0.1, 0.2, 0.3, 1e16, -1e16]))
def test_a_score_is_the_mean_over_seeds_in_whatever_order_they_ended(scores):
    one = candidate(0, [("complete", score) for score in scores], range(5))
    assert one.scores == (0.12,)


def test_what_has_no_score_counts_in_no_mean():
    one = candidate(0, [("complete", 0.4), ("failed",)], (5, 6, 7))
    assert (one.scores, one.missing) == ((0.4,), [7])
    assert candidate(1, []).scores == ()


def test_a_config_has_come_as_far_as_its_longest_run():
    one = candidate(0, [("complete", 0.4), ("diverged", 0.0)], (5, 6))
    one.runs[0].rows, one.runs[1].rows = [{"round": 2}, {"round": 8}], [{"round": 2}]
    assert one.rounds == 8
    assert candidate(1, []).rounds == 0


def test_the_best_comes_first_ties_go_to_the_earlier_and_the_rest_never_wins():
    found = [
        complete(0, 0.5),
        candidate(1, [("diverged", 0.9)]),
        candidate(2, [("pruned", 0.9)]),
        candidate(3, [("failed",)]),
        complete(4, 0.7),
        complete(5, 0.7),
        candidate(6, [("complete", 0.9)], (0, 1)),
    ]
    assert [c.number for c in winners(found, UP, 9)] == [4, 5, 0]
    assert [c.number for c in winners(found, ("minimize",), 2)] == [0, 4]
    assert [c.number for c in winners(found, UP)] == [4]
    assert winners(found[1:4], UP) == []


def test_who_breaks_a_constraint_wins_only_where_all_do():
    kept, broken = complete(0, 0.5, violations=[0.0, -1.0]), complete(1, 0.9, violations=[0.1, -1])
    assert [c.number for c in winners([kept, broken], UP, 2)] == [0]
    assert [c.number for c in winners([broken], UP, 2)] == [1]


def test_with_several_objectives_the_winners_are_the_front():
    scores = [(0.9, 9.0), (0.8, 5.0), (0.7, 6.0), (0.5, 1.0), (0.8, 5.0)]
    found = [complete(n, *own) for n, own in enumerate(scores)]
    assert [c.number for c in winners(found, ("maximize", "minimize"), 9)] == [0, 1, 4, 3]


@pytest.mark.parametrize(
    ("score", "maximize", "hopeless"),
    [(0.39, True, True), (0.4, True, False), (0.61, False, True), (0.6, False, False)],
)
def test_racing_is_against_the_worst_seed_of_the_best(score, maximize, hopeless):
    best = candidate(0, [("complete", 0.4), ("complete", 0.6)], (0, 1))
    one = candidate(1, [("complete", score)], (0, 1))
    assert bool(why_hopeless(one, best, maximize)) is hopeless


def test_a_config_that_keeps_the_constraints_is_not_rejected_for_one_that_does_not():
    best = complete(0, 0.9, violations=[0.5])
    assert why_hopeless(complete(1, 0.1, violations=[0.5]), best, True)
    assert not why_hopeless(complete(1, 0.1, violations=[-0.5]), best, True)


def test_the_most_promising_come_first_and_those_not_yet_run_last():
    found = [candidate(0, []), complete(1, 0.3), complete(2, 0.6), complete(3, 0.6)]
    assert [c.number for c in by_promise(found, True)] == [2, 3, 1, 0]
    assert [c.number for c in by_promise(found, False)] == [1, 2, 3, 0]
