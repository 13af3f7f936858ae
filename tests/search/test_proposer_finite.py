"""Finite spaces, budgets, warm points and lists."""

import itertools
import math

import pytest
from fake_spaces import (
    CELLS,
    DRAWING,
    NUMBERS,
    FakeSpace,
    Warm,
    ended,
    play,
    proposals,
    proposer,
    schedule,
    through_json,
)
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from fltune.search.proposer import (
    ListProposer,
    Outcome,
    Proposal,
    content_key,
)


@pytest.mark.parametrize("sampler", DRAWING)
def test_a_finite_space_is_exhausted_without_repeating_a_point(sampler):
    it = proposer(sampler, space=CELLS, budget=20, options={})
    points = []
    while (proposal := it.propose()) is not None:
        points.append(content_key(proposal.point))
        it.tell(proposal.number, Outcome("complete", [proposal.point["a"] / 3]))
    assert len(points) == len(set(points)) == 6
    assert it.propose() is None


def test_steps_are_kept():
    parameters = {"k": IntDistribution(2, 8, step=3), "x": FloatDistribution(0.0, 1.0, step=0.5)}
    it = proposer("random", space=FakeSpace(parameters), budget=20)
    drawn = set()
    while (proposal := it.propose()) is not None:
        drawn.add(tuple(proposal.point.values()))
    assert drawn == set(itertools.product((2, 5, 8), (0.0, 0.5, 1.0)))


def test_a_small_range_of_whole_numbers_is_exhausted():
    it = proposer(space=FakeSpace({"k": IntDistribution(1, 4)}), budget=20)
    drawn = []
    while (proposal := it.propose()) is not None:
        drawn.append(proposal.point["k"])
        it.tell(proposal.number, Outcome("complete", [1.0]))
    assert sorted(drawn) == [1, 2, 3, 4]


def test_the_cell_that_chance_misses_is_found():
    space = FakeSpace({"k": CategoricalDistribution(list(range(300)))})
    it = proposer("random", space=space, budget=300)
    history = [(Proposal(n, {"k": n}), Outcome("complete", [0.0])) for n in range(299)]
    it.restore(history)
    assert it.propose() == Proposal(299, {"k": 299})
    assert it.propose() is None


def test_the_budget_counts_the_trials_of_earlier_sessions():
    it = proposer(budget=3)
    it.restore([(Proposal(n, {"server.lr": 99.0}), None) for n in (0, 1)])  # outside by now
    assert it.asked == 2
    assert it.propose().number == 2
    assert it.propose() is None


def test_proposals_of_another_space_are_left_out_and_those_inside_count():
    narrow = FakeSpace(dict(NUMBERS.parameters, **{"server.lr": FloatDistribution(0.1, 1.0)}))
    first = proposer(space=NUMBERS)
    play(first, schedule(20, slots=1, seed=0))
    it = proposer(space=narrow, budget=30)
    it.restore(through_json(first._history))
    inside = [p.number for p in proposals(first) if 0.1 <= p.point["server.lr"] <= 1.0]
    assert 0 < len(inside) < 20
    assert [t.user_attrs["number"] for t in it.study().trials if t.user_attrs] == [
        n for n in inside if first._history[n][1] is not None
    ]
    proposal = it.propose()
    assert proposal.number == 20
    narrow.encode(proposal.point)
    it.tell(20, Outcome("complete", [0.5]))


@pytest.mark.parametrize("sampler", ["cmaes", "nsga2", "qmc"])
def test_samplers_with_a_memory_go_on_in_a_wider_space(sampler):
    first = proposer(sampler)
    play(first, schedule(20, slots=1, seed=0))
    wide = FakeSpace(dict(NUMBERS.parameters, **{"server.beta": FloatDistribution(-1.0, 0.99)}))
    it = proposer(sampler, space=wide, budget=40)
    it.restore(through_json(first._history))
    while (proposal := it.propose()) is not None:
        it.tell(proposal.number, ended(proposal.point, proposal.number))
    assert it.asked == 40


def test_a_trial_that_was_running_is_told_later():
    it = proposer()
    it.restore([(Proposal(0, {"server.lr": 1.0, "server.beta": 0.5, "client.epochs": 2}), None)])
    assert [t.state for t in it.study().trials] == [TrialState.RUNNING]
    it.tell(0, Outcome("complete", [0.5]))
    assert it.study().trials[0].values == [0.5]
    with pytest.raises(ValueError, match="trial 7 was never proposed; there are 1"):
        it.tell(7, Outcome("failed"))


def test_warm_points_come_first_and_known_ones_are_never_run():
    known = {"a": 3, "b": "y"}
    points = [Warm({"a": 2, "b": "x"}), Warm(known, 0.9), Warm({"a": 1, "b": "y"})]
    it = proposer(space=CELLS, budget=20, points=points)
    assert [it.propose().point, it.propose().point] == [points[0].point, points[2].point]
    assert it.asked == 2
    assert [t.values for t in it.study().trials] == [[0.9], None, None]
    rest = []
    while (proposal := it.propose()) is not None:
        rest.append(proposal.point)
    assert len(rest) == 3
    assert known not in rest


def test_warm_points_are_not_proposed_again_after_a_restore():
    points = [Warm({"a": 2, "b": "x"}), Warm({"a": 1, "b": "y"})]
    first = proposer(space=CELLS, points=points)
    first.propose()
    it = proposer(space=CELLS, points=points)
    it.restore(through_json(first._history))
    assert it.propose().point == points[1].point


def test_a_known_warm_point_teaches_the_sampler():
    def first_drawn(points):
        it = proposer("tpe", budget=25, options={"n_startup_trials": 1}, points=points)
        return it.propose().point

    good = {"server.lr": 0.5, "server.beta": 0.1, "client.epochs": 3}
    assert first_drawn([Warm(good, 0.9)]) != first_drawn([])


@pytest.mark.parametrize(
    ("warm", "directions", "message"),
    [
        (Warm({"a": 4, "b": "x"}), ("maximize",), "'4' not in"),
        (Warm({"a": 1, "b": "x"}, 0.5), ("maximize", "minimize"), "with 2 objectives"),
        (Warm({"a": 1, "b": "x"}, math.nan), ("maximize",), "found score nan"),
    ],
)
def test_a_warm_point_that_cannot_be_used_is_an_error(warm, directions, message):
    with pytest.raises(ValueError, match=message):
        proposer(space=CELLS, directions=directions, points=[warm])


GRID = [{"lr": lr, "k": k} for lr in (0.5, 1, 2) for k in ([1], [2, 3])]


def test_a_list_is_proposed_in_order_once():
    it = ListProposer(iter(GRID))
    drawn = []
    while (proposal := it.propose()) is not None:
        drawn.append(proposal.point)
        assert proposal.number == len(drawn) - 1
    assert drawn == GRID
    assert it.asked == 6


def test_a_wider_grid_runs_only_its_new_cells():
    first = ListProposer(GRID)
    for _ in range(4):
        first.propose()
    first.tell(1, Outcome("failed"))
    wider = [{"k": k, "lr": lr} for lr in (0.5, 1.0, 2.0, 4.0) for k in ([1], [2, 3])]
    it = ListProposer(wider)
    it.restore(through_json(first._history))
    left = []
    while (proposal := it.propose()) is not None:
        left.append((proposal.number, proposal.point["lr"], proposal.point["k"]))
    assert left == [(4, 2.0, [1]), (5, 2.0, [2, 3]), (6, 4.0, [1]), (7, 4.0, [2, 3])]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}, True),
        ({"a": [1, 2]}, {"a": (1.0, 2)}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 0.3}, {"a": 0.1 + 0.2}, False),
        ({"a": None}, {}, False),
    ],
)
def test_points_are_known_by_content(one, other, same):
    assert (content_key(one) == content_key(other)) == same
