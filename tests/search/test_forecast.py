"""When a search ends, and what is stopped early: worked out, not run."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.forecast import Lane, share_of_rounds, share_on_all_seeds, wall_seconds
from fltune.search.settings import SearchSettings


def test_workers_share_the_jobs_and_a_winner_is_confirmed_after_its_trials():
    assert wall_seconds({"A": Lane(4, 10.0, 0, 0.0)}, workers=2) == 20
    assert wall_seconds({"A": Lane(3, 10.0, 0, 0.0)}, workers=2) == 20  # one is idle at the end
    assert wall_seconds({"A": Lane(1, 10.0, 3, 5.0)}, workers=2) == 10 + 2 * 5


def test_no_worker_waits_for_one_method_while_another_has_work():
    """A's confirmation waits for its trial of 30 seconds; B's trials are done beside it."""
    lanes = {"A": Lane(1, 30.0, 1, 10.0), "B": Lane(3, 10.0, 0, 0.0)}
    assert wall_seconds(lanes, workers=2) == 40


def test_an_heir_begins_when_its_source_is_settled():
    lanes = {"Heir": Lane(2, 5.0, 0, 0.0, after="Source"), "Source": Lane(1, 30.0, 0, 0.0)}
    assert wall_seconds(lanes, workers=2) == 35


def test_an_heir_without_its_source_begins_at_once():
    assert wall_seconds({"Heir": Lane(2, 5.0, 0, 0.0, after="Gone")}, workers=2) == 5


def test_a_deterministic_search_waits_for_its_batches():
    assert wall_seconds({"A": Lane(6, 10.0, 0, 0.0, batch=3)}, workers=2) == 40
    assert wall_seconds({"A": Lane(6, 10.0, 0, 0.0)}, workers=2) == 30


LANES = st.builds(Lane, st.integers(1, 9), st.floats(0.1, 9), st.integers(0, 4), st.floats(0.1, 9))


@given(lanes=st.lists(LANES, min_size=1, max_size=4), workers=st.integers(1, 5))
def test_it_lasts_at_least_as_long_as_the_work_and_no_longer_than_one_worker_needs(lanes, workers):
    work = sum(one.trials * one.trial_seconds + one.finals * one.final_seconds for one in lanes)
    longest = max(one.trial_seconds + bool(one.finals) * one.final_seconds for one in lanes)
    found = wall_seconds(named(lanes), workers)
    assert max(work / workers, longest) - 1e-6 <= found <= work + 1e-6
    assert wall_seconds(named(lanes), 1) == pytest.approx(work)


def named(lanes):
    return {str(place): lane for place, lane in enumerate(lanes)}


def stopped(trials=27, rounds=90, eval_every=1, at_once=1, **search):
    return share_of_rounds(SearchSettings(**search), rounds, eval_every, trials, at_once)


def test_without_a_scheduler_all_rounds_are_made():
    assert stopped() == 1


def test_a_lone_trial_is_not_stopped():
    assert stopped(trials=1, scheduler="asha", grace=10) == 1


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median"])
@pytest.mark.parametrize("metric", ["val/accuracy", "val/loss"])
def test_a_scheduler_spares_some_rounds_whatever_is_better(scheduler, metric):
    share = stopped(scheduler=scheduler, grace=10, metric=metric)
    assert 10 / 90 < share < 0.9


def test_successive_halving_spares_more_with_a_shorter_grace():
    shares = [stopped(scheduler="asha", grace=grace, trials=81) for grace in (1, 10, 30)]
    assert shares == sorted(shares)
    # two thirds end at round 30 of 90, but for those that came while few others had
    assert 1 / 9 + 0.5 < stopped(scheduler="asha", grace=30, trials=200) + 0.3 < 1


def test_trials_of_a_grace_longer_than_they_are_run_to_their_end():
    assert stopped(scheduler="asha", grace=100) == 1


def seeds(count, trials, **search):
    return share_on_all_seeds(SearchSettings(seeds=count, **search), trials)


def test_few_configs_are_run_on_every_seed():
    assert seeds(1, 50) == 1
    assert seeds(3, 1) == 1
    assert math.log(50) / 50 < seeds(3, 50) < 0.5  # as many as are the best so far, and some luck
    goals = [{"metric": "val/accuracy"}, {"metric": "comm/up_bits"}]
    assert seeds(3, 50, objectives=goals) == 1  # no one is hopeless
