"""What samplers learn from how trials ended."""

import math

import pytest
from fake_spaces import DRAWING, FakeSpace, ended, proposals, proposer
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from fltune.search.proposer import (
    Outcome,
    content_key,
)


@pytest.mark.parametrize(
    ("outcome", "state", "steps"),
    [
        (Outcome("complete", [0.8], 8), TrialState.COMPLETE, {}),
        (Outcome("pruned", [0.4], 6), TrialState.PRUNED, {6: 0.4}),
        (
            Outcome("pruned", [0.4], 6, (), {3: math.nan, 6: 0.4}),
            TrialState.PRUNED,
            {3: 0.0, 6: 0.4},
        ),
        (Outcome("pruned", [], 6), TrialState.PRUNED, {6: 0.0}),
        (Outcome("diverged", [0.7], 3), TrialState.PRUNED, {3: 0.0}),
        (Outcome("diverged", [], 3), TrialState.PRUNED, {3: 0.0}),
        (Outcome("complete", [math.nan], 3), TrialState.PRUNED, {3: 0.0}),
        (Outcome("complete", [math.inf], 3), TrialState.PRUNED, {3: 0.0}),
        (Outcome("failed"), TrialState.FAIL, {}),
    ],
)
def test_a_trial_ends_as_what_it_was(outcome, state, steps):
    it = proposer()
    it.tell(it.propose().number, outcome)
    it.tell(0, Outcome("complete", [0.99], 9))  # told again
    (trial,) = it.study().trials
    assert (trial.state, trial.intermediate_values) == (state, steps)
    assert trial.value == (steps[max(steps)] if steps else next(iter(outcome.scores), None))
    assert trial.user_attrs["outcome"] == outcome.state
    it.propose()
    assert [t.state for t in it.study().trials] == [state, TrialState.RUNNING]


def test_with_several_objectives_what_did_not_complete_has_no_values():
    it = proposer(directions=("maximize", "minimize"), budget=30)
    for n in range(30):
        point = it.propose().point
        it.tell(n, ended(point, n, objectives=2))
    states = {t.user_attrs["number"]: t for t in it.study().trials}
    assert {t.state for t in states.values()} == {
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.FAIL,
    }
    for trial in states.values():
        assert (trial.values is not None) == (trial.state == TrialState.COMPLETE)
        assert not trial.intermediate_values


@pytest.mark.parametrize("sampler", DRAWING)
@pytest.mark.parametrize("directions", [("maximize",), ("maximize", "minimize")])
def test_a_proposer_goes_on_though_all_diverge(sampler, directions):
    if sampler == "cmaes" and len(directions) > 1:
        return
    it = proposer(sampler, directions=directions, budget=12)
    seen = set()
    for n in range(12):
        seen.add(content_key(it.propose().point))
        it.tell(n, Outcome("diverged", [math.nan] * len(directions), round=n % 3 + 1))
    assert len(seen) == 12


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "nsga2"])
def test_samplers_keep_away_from_where_runs_diverge(sampler):
    space = FakeSpace({"server.lr": FloatDistribution(0.01, 10.0, log=True)})
    options = {"gp": {}, "tpe": {}, "cmaes": {}, "nsga2": {"population_size": 10}}[sampler]
    budget = 24 if sampler == "gp" else 60
    it = proposer(sampler, space=space, budget=budget, options=options)
    diverged = []
    for n in range(budget):
        point = it.propose().point
        lr = point["server.lr"]
        diverged.append(lr > 1.0)  # the best place is just before it
        score = 1 / (1 + abs(math.log(lr / 0.9)))
        it.tell(n, Outcome("diverged" if lr > 1.0 else "complete", [score], round=10))
    late = diverged[-10:]
    assert any(diverged)
    # a third of the range diverges; blind chance has more than 6 of 10 in it with p < 0.02
    assert sum(late) <= 6
    assert max(t.values[0] for t in it.study().trials if t.state == TrialState.COMPLETE) > 0.75


def test_gp_learns_from_trials_that_did_not_complete():
    """Where all of a region diverges, Optuna's GP alone would ask there for ever."""
    space = FakeSpace({"server.lr": FloatDistribution(0.0, 1.0)})
    it = proposer("gp", space=space, budget=18, options={"n_startup_trials": 5})
    for n in range(18):
        lr = it.propose().point["server.lr"]
        it.tell(n, Outcome("diverged" if lr > 0.5 else "complete", [lr], round=10))
    late = [p.point["server.lr"] > 0.5 for p in proposals(it)[8:]]
    assert sum(late) <= 7


def test_tpe_ranks_stopped_trials_behind_complete_and_diverged_behind_all():
    it = proposer(budget=40)
    outcomes = [
        Outcome("diverged", [0.9], round=50),
        Outcome("pruned", [0.2], round=5),
        Outcome("complete", [0.1], round=100),
    ]
    for n, outcome in enumerate(outcomes):
        it.propose()
        it.tell(n, outcome)
    study, _ = it._maker.make(it._past(), {}, "tpe")
    diverged, stopped, _ = study.trials
    assert max(diverged.intermediate_values) < 0 < max(stopped.intermediate_values)


def test_blind_samplers_see_the_worst_complete_score_in_place_of_what_did_not_complete():
    it = proposer("nsga2", directions=("maximize", "minimize"))
    outcomes = [
        Outcome("complete", [0.4, 7.0]),
        Outcome("complete", [0.6, 9.0]),
        Outcome("diverged", [math.nan, math.nan]),
        Outcome("failed"),
    ]
    for n, outcome in enumerate(outcomes):
        it.propose()
        it.tell(n, outcome)
    study, _ = it._maker.make(it._past(), {}, "nsga2")
    assert [t.values for t in study.trials] == [[0.4, 7.0], [0.6, 9.0], [0.4, 9.0], None]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp"])
def test_constraints_reach_the_sampler(sampler):
    it = proposer(sampler, budget=8, constraints=True)
    for n in range(8):
        it.propose()
        end = Outcome("complete", [0.1 * n], violations=(n - 4.0, -1.0))
        it.tell(n, Outcome("diverged") if n == 2 else end)
    found = [t.constraints for t in it.study().trials]
    assert found[5] == {"0": 1.0, "1": -1.0}
    assert found[2] == {"0": 0.0, "1": 0.0}  # not known


def test_tpe_prefers_what_keeps_the_constraints():
    space = FakeSpace({"server.lr": FloatDistribution(0.0, 1.0)})

    def late_mean(constraints):
        it = proposer("tpe", space=space, budget=50, constraints=constraints)
        for n in range(50):
            lr = it.propose().point["server.lr"]
            it.tell(n, Outcome("complete", [lr], violations=(lr - 0.4,)))
        return sum(p.point["server.lr"] for p in proposals(it)[30:]) / 20

    assert late_mean(constraints=True) < 0.5 < 0.75 < late_mean(constraints=False)
