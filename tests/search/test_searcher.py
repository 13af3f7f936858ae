import math

import pytest
from optuna.trial import TrialState

from fltune.search.searcher import ListSearcher, OptunaSearcher
from fltune.search.space import Dimension, Space
from fltune.search.trainable import Objective, healthy, worst_score

SPACE = Space(
    {
        "server.lr": Dimension.parse({"loguniform": [0.01, 10.0]}),
        "server.betas": Dimension.parse({"choice": [[0.5], [0.9, 0.99]]}),
    }
)
SMALL = Space(
    {"a": Dimension.parse({"grid": [1, 2, 3]}), "b": Dimension.parse({"choice": ["x", "y"]})}
)


def searcher(space=SPACE, budget=50, sampler="tpe", seed=0, maximize=True, worst=0.0):
    return OptunaSearcher(space, sampler, budget, seed, maximize, worst)


def finished(score, round=8):
    return {"objective": score, "round": round, "finished": True, "diverged": False}


def score_of(values):
    return 1 / (1 + abs(math.log(values["server.lr"] / 0.5)))


def drive(it, first, count):
    """Run trials one after the other, each told before the next is asked."""
    proposed = []
    for n in range(first, first + count):
        values = it.suggest(f"t{n}")["values"]
        it.on_trial_complete(f"t{n}", finished(score_of(values)))
        proposed.append(values)
    return proposed


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"objective": 0.7, "round": 3, "finished": True, "diverged": True}, 0.0),
        ({"objective": math.nan, "round": 3, "finished": True}, 0.0),
        ({"objective": math.inf, "round": 3, "finished": True, "diverged": False}, 0.0),
        ({"objective": -math.inf, "round": 3}, 0.0),
    ],
)
def test_what_diverged_is_pruned_with_the_finite_worst_score(result, value):
    it = searcher()
    it.suggest("t")
    it.on_trial_complete("t", result)
    (trial,) = it.study.trials
    assert trial.state == TrialState.PRUNED
    assert trial.intermediate_values == {3: value}
    assert trial.user_attrs["diverged"] is True


def test_what_a_scheduler_stopped_is_pruned_with_its_value():
    it = searcher()
    it.suggest("t")
    it.on_trial_complete("t", {"objective": 0.4, "round": 6})
    (trial,) = it.study.trials
    assert trial.state == TrialState.PRUNED
    assert trial.intermediate_values == {6: 0.4}
    assert "diverged" not in trial.user_attrs


def test_what_finished_is_complete():
    it = searcher()
    it.suggest("t")
    it.on_trial_complete("t", finished(0.8))
    (trial,) = it.study.trials
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.8)


@pytest.mark.parametrize(
    ("result", "error"), [(None, True), (None, False), ({"round": 1}, False), (finished(0.5), True)]
)
def test_an_error_or_no_score_fails(result, error):
    it = searcher()
    it.suggest("t")
    it.on_trial_complete("t", result, error)
    assert [t.state for t in it.study.trials] == [TrialState.FAIL]
    it.on_trial_complete("t", finished(0.1))  # told once
    it.on_trial_complete("never asked", finished(0.1))
    assert [t.state for t in it.study.trials] == [TrialState.FAIL]


def test_nothing_stays_running_and_the_budget_ends():
    it = searcher(SMALL, budget=5)
    ends = [
        finished(0.5),
        {"objective": math.nan, "round": 1},
        None,
        {"objective": 0.1, "round": 2},
    ]
    for n, end in enumerate([*ends, finished(0.9)]):
        it.suggest(f"t{n}")
        it.on_trial_complete(f"t{n}", end)
    assert it.suggest("t5") == ListSearcher.FINISHED
    assert all(t.state.is_finished() for t in it.study.trials)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_seed_and_order_propose_the_same(sampler):
    first, again = (drive(searcher(sampler=sampler, seed=4), 0, 15) for _ in range(2))
    assert first == again
    assert first != drive(searcher(sampler=sampler, seed=5), 0, 15)


def test_a_point_that_was_tried_is_not_run_again():
    it = searcher(SMALL, budget=6)
    proposed = []
    for n in range(6):
        values = it.suggest(f"t{n}")["values"]
        proposed.append(tuple(values.values()))
        it.on_trial_complete(f"t{n}", finished(values["a"] / 3))
    assert len(set(proposed)) == 6  # all cells, though TPE likes a = 3


def test_a_point_that_is_running_is_not_run_beside_itself():
    it = searcher(SMALL, budget=6)
    running = [tuple(it.suggest(f"t{n}")["values"].values()) for n in range(6)]
    assert len(set(running)) == 6
    for n in range(6):
        it.on_trial_complete(f"t{n}", finished(0.5))
    assert all(t.state.is_finished() for t in it.study.trials)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_restored_searcher_goes_on_identically(sampler, tmp_path):
    path = str(tmp_path / "state.pkl")
    it = searcher(sampler=sampler)
    drive(it, 0, 12)
    it.suggest("open")
    it.save(path)
    other = searcher(sampler=sampler, seed=99)
    other.restore(path)
    for one in (it, other):
        one.on_trial_complete("open", finished(0.2))
    assert drive(it, 13, 8) == drive(other, 13, 8)
    assert other.asked == it.asked == 21


def test_tpe_keeps_away_from_where_runs_diverge():
    it = searcher(budget=60)
    late = []
    for n in range(60):
        values = it.suggest(f"t{n}")["values"]
        diverges = values["server.lr"] > 1.0
        end = {**finished(score_of(values)), "diverged": diverges}
        it.on_trial_complete(f"t{n}", end)
        late.append(diverges)
    assert sum(late[:20]) > 3  # the range is a third divergence
    assert sum(late[40:]) <= 4
    assert all(t.state.is_finished() for t in it.study.trials)
    assert it.study.best_value > 0.8


def test_tpe_proposes_though_all_diverged():
    it = searcher(budget=30)
    proposed = set()
    for n in range(30):
        proposed.add(it.suggest(f"t{n}")["values"]["server.lr"])
        it.on_trial_complete(f"t{n}", {"objective": math.nan, "round": 1, "finished": True})
    assert len(proposed) == 30


def test_minimising_looks_for_small_values():
    it = searcher(budget=40, maximize=False, worst=1e4)
    lrs = []
    for n in range(40):
        values = it.suggest(f"t{n}")["values"]
        lrs.append(values["server.lr"])
        it.on_trial_complete(f"t{n}", finished(1 - score_of(values)))
    assert it.study.best_value < 0.2
    assert sum(0.1 < lr < 2.5 for lr in lrs[20:]) >= 14


def test_a_list_runs_each_once_in_order_and_goes_on_where_it_was(tmp_path):
    configs = [{"values": {"a": n}} for n in range(4)]
    it = ListSearcher(iter(configs))
    assert [it.suggest("t0"), it.suggest("t1")] == configs[:2]
    it.on_trial_complete("t0", None, error=True)
    path = str(tmp_path / "list.pkl")
    it.save(path)
    other = ListSearcher(configs)
    other.restore(path)
    assert [other.suggest("t2"), other.suggest("t3")] == configs[2:]
    assert other.suggest("t4") == ListSearcher.FINISHED
    assert it.next == 2


def test_the_objective_is_the_mean_of_the_last_evaluations():
    objective = Objective("val/accuracy", True, 3, max_loss=1e4)
    scores = [objective.add({"val/accuracy": v}) for v in (0.1, 0.3, 0.5, 0.9)]
    assert scores == pytest.approx([0.1, 0.2, 0.3, 1.7 / 3])


@pytest.mark.parametrize("bad", [{"val/loss": math.nan}, {"val/loss": math.inf}, {"round": 3}])
def test_the_objective_is_always_finite(bad):
    objective = Objective("val/loss", False, 2, max_loss=50.0)
    assert objective.add(bad) == 50.0
    assert objective.add({"val/loss": 1.0}) == 25.5
    assert objective.add({"val/loss": 1.0}) == 1.0


@pytest.mark.parametrize(
    ("metric", "maximize", "worst"),
    [
        ("val/accuracy", True, 0.0),
        ("val/accuracy", False, 1.0),
        ("val/loss", False, 1e4),
        ("val/loss", True, -1e4),
        ("train/loss", False, 1e4),
    ],
)
def test_the_worst_score_is_finite_and_on_the_wrong_side(metric, maximize, worst):
    assert worst_score(metric, maximize, 1e4) == worst


def test_a_row_of_a_run_that_diverges_is_seen():
    assert healthy({"round": 1.0, "train/loss": 2.0}, 10.0)
    assert not healthy({"round": 1.0, "train/loss": 11.0}, 10.0)
    assert not healthy({"round": 1.0, "train/loss": math.nan}, 10.0)
    assert not healthy({"round": 1.0, "train/loss": 1.0, "val/loss": math.inf}, 10.0)
