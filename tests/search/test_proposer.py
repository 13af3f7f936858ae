"""Proposals are a function of seed, number and history."""

import json
import random
from dataclasses import asdict

import pytest
from fake_spaces import DRAWING, MIXED, play, proposals, proposer, schedule, through_json
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.search.proposer import (
    Outcome,
)


@pytest.mark.parametrize(
    ("sampler", "more"),
    [
        ("tpe", {}),
        ("tpe", {"space": MIXED}),
        ("tpe", {"space": MIXED, "options": {"group": True}}),
        ("tpe", {"directions": ("maximize", "minimize"), "constraints": True}),
        ("random", {}),
        ("qmc", {}),
        ("qmc", {"space": MIXED}),
        ("gp", {"budget": 9}),
        ("gp", {"budget": 7, "directions": ("maximize", "minimize"), "constraints": True}),
        ("cmaes", {}),
        ("cmaes", {"directions": ("minimize",)}),
        ("cmaes", {"options": {"popsize": 4, "with_margin": True}}),
        ("cmaes", {"options": {"popsize": 4, "use_separable_cma": True}}),
        ("cmaes", {"options": {"popsize": 4, "lr_adapt": True}, "space": MIXED}),
        ("nsga2", {}),
        ("nsga2", {"directions": ("maximize", "minimize"), "constraints": True, "space": MIXED}),
    ],
)
def test_a_restored_proposer_goes_on_as_the_uninterrupted_one(sampler, more):
    make = lambda: proposer(sampler, **more)  # noqa: E731
    budget, objectives = make().budget, len(more.get("directions", ("",)))
    events = schedule(budget, slots=3, seed=1)
    whole = make()
    play(whole, events, objectives)
    cuts = (1, len(events) // 3, len(events) // 2, len(events) - 3)
    for cut in cuts[-2:] if sampler == "gp" else cuts:
        first, second = make(), make()
        play(first, events[:cut], objectives)
        history = through_json(first._history)
        random.Random(cut).shuffle(history)
        second.restore(history)
        assert second.asked == first.asked
        play(second, events[cut:], objectives)
        assert proposals(second) == proposals(whole)
    assert whole.asked == budget
    assert whole.propose() is None


def remembered(it, where, key):
    return [v for p in proposals(it) for k, v in p.attrs.get(where, {}).items() if key in k]


def test_samplers_do_remember():
    """Else a restored one would be like the uninterrupted one, and both no better than chance."""
    for sampler in ("cmaes", "nsga2", "qmc"):
        it = proposer(sampler)
        play(it, schedule(25, slots=3, seed=1))
        if sampler == "qmc":
            assert remembered(it, "study", "qmc:") == list(range(24))
        else:
            generations = remembered(it, "trial", ":generation")
            assert generations == sorted(generations)
            assert generations[-1] >= 3
            parents = [k for p in proposals(it) for k in p.attrs.get("study", {})]
            assert len(parents) == len(set(parents))  # chosen once for a generation
    it = proposer("cmaes")
    play(it, schedule(25, slots=3, seed=1))
    updates = remembered(it, "trial", "cma:optimizer")
    assert [u["state"]["_g"] for u in updates][-1] == remembered(it, "trial", ":generation")[-1]


@given(cuts=st.lists(st.integers(0, 60), min_size=1, max_size=3), slots=st.integers(1, 5))
@settings(max_examples=10)
def test_any_cuts_leave_no_trace(cuts, slots):
    events = schedule(14, slots, seed=slots)
    whole = proposer("tpe", budget=14, space=MIXED)
    play(whole, events)
    it, start = proposer("tpe", budget=14, space=MIXED), 0
    for cut in sorted(min(c, len(events)) for c in cuts):
        play(it, events[start:cut])
        history, start = through_json(it._history), cut
        it = proposer("tpe", budget=14, space=MIXED)
        it.restore(history)
    play(it, events[start:])
    assert proposals(it) == proposals(whole)


def test_the_order_of_ends_between_two_proposals_does_not_matter():
    first, second = proposer(), proposer()
    for it, order in ((first, (0, 1, 2)), (second, (2, 0, 1))):
        for _ in range(3):
            it.propose()
        play(it, order)
    assert first.propose() == second.propose()


@pytest.mark.parametrize("sampler", DRAWING)
def test_the_seed_decides(sampler):
    def run(seed):
        it = proposer(sampler, budget=7, seed=seed)
        play(it, schedule(7, slots=1, seed=0))
        return [p.point for p in proposals(it)]

    assert run(4) == run(4)
    assert run(4) != run(5)


@pytest.mark.parametrize("sampler", DRAWING)
def test_points_lie_in_the_space_and_attrs_are_plain(sampler):
    it = proposer(sampler, space=MIXED, budget=10)
    play(it, schedule(10, slots=2, seed=2))
    for proposal in proposals(it):
        MIXED.encode(proposal.point)
        assert ("mu" in proposal.point) == (proposal.point["kind"] == "prox")
        assert json.loads(json.dumps(asdict(proposal), allow_nan=False)) == asdict(proposal)
    assert [p.number for p in proposals(it)] == list(range(10))


def test_a_long_search_makes_all_its_trials():
    """More than a sampler is asked anew for a point: each number draws from a seed of its own."""
    it = proposer("random", budget=100)
    points = [it.propose() for _ in range(100)]
    assert None not in points
    assert it.propose() is None


def test_wrong_samplers_and_outcomes_are_refused():
    with pytest.raises(ValueError, match="cmaes knows one objective; there are 2"):
        proposer("cmaes", directions=("maximize", "minimize"))
    with pytest.raises(ValueError, match="propose its cells by a ListProposer"):
        proposer("grid")
    with pytest.raises(ValueError, match="found state 'done'; must be one of complete, pruned"):
        Outcome("done")
    with pytest.raises(ValueError, match="a complete trial has a score"):
        Outcome("complete")


def test_optuna_is_left_as_loud_as_it_was():
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        proposer().propose()
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)
