import itertools
import json
import math
import random
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from fltune.search.proposer import (
    ListProposer,
    OptunaProposer,
    Outcome,
    Proposal,
    content_key,
)


@dataclass
class FakeSpace:
    """Parameters by name; ``mu`` is active only where ``kind`` is its last choice."""

    parameters: dict

    def active(self, point):
        for name in self.parameters:
            if name != "mu" or point["kind"] == self.parameters["kind"].choices[-1]:
                yield name

    def propose(self, draw):
        point = {}
        for name in self.parameters:
            if name in self.active(point | {"kind": point.get("kind")}):
                point[name] = draw(name, self.parameters[name])
        return point

    def encode(self, point):
        for name in self.active(point):
            distribution = self.parameters[name]
            if not distribution._contains(distribution.to_internal_repr(point[name])):
                raise ValueError(f"{name} = {point[name]} is outside")
        return dict(point)

    def distributions(self, point):
        return {name: self.parameters[name] for name in self.active(point)}

    @property
    def cells(self):
        axes = [getattr(d, "choices", None) for d in self.parameters.values()]
        return None if None in axes else math.prod(map(len, axes))

    def grid(self):
        axes = [d.choices for d in self.parameters.values()]
        for values in itertools.product(*axes):
            yield dict(zip(self.parameters, values, strict=True))


@dataclass
class Warm:
    point: dict
    score: float | None = None


NUMBERS = FakeSpace(
    {
        "server.lr": FloatDistribution(0.01, 10.0, log=True),
        "server.beta": FloatDistribution(0.0, 0.99),
        "client.epochs": IntDistribution(1, 64, log=True),
    }
)
MIXED = FakeSpace(
    {
        "kind": CategoricalDistribution(["plain", "prox"]),
        "server.lr": FloatDistribution(0.01, 10.0, log=True),
        "mu": FloatDistribution(1e-3, 1.0, log=True),
    }
)
CELLS = FakeSpace(
    {"a": CategoricalDistribution([1, 2, 3]), "b": CategoricalDistribution(["x", "y"])}
)
DRAWING = ("tpe", "random", "qmc", "gp", "cmaes", "nsga2")
QUICK = {"gp": {"n_startup_trials": 3}, "nsga2": {"population_size": 4}, "cmaes": {"popsize": 4}}


def proposer(sampler="tpe", space=NUMBERS, budget=25, seed=3, directions=("maximize",), **more):
    options = more.pop("options", QUICK.get(sampler, {}))
    worst = tuple(0.0 if d == "maximize" else 1e4 for d in directions)
    return OptunaProposer(space, sampler, options, budget, seed, directions, worst, **more)


def quality(point):
    return 1 / (1 + abs(math.log(point["server.lr"] / 0.5)) + 0.1 * point.get("server.beta", 0.5))


def ended(point, number, objectives=1):
    """An end for each trial, of all kinds, as a function of the trial."""
    scores = (quality(point), 1e6 * point["server.lr"])[:objectives]
    if point["server.lr"] > 3:
        return Outcome("diverged", [math.nan] * objectives, round=number % 5 + 1)
    if number % 7 == 3:
        return Outcome("failed")
    if number % 5 == 2:
        steps = {2: scores[0] / 2, 4: scores[0]} if objectives == 1 else {}
        return Outcome("pruned", scores, round=4, violations=(0.3,), intermediate=steps)
    return Outcome("complete", scores, round=10, violations=(point["server.lr"] - 1,))


def schedule(asks, slots, seed):
    """Asks and tells, at most ``slots`` trials at once, ended in any order."""
    chance, running, events = random.Random(seed), [], []
    for number in range(asks):
        while len(running) >= slots or (running and chance.random() < 0.4):
            events.append(running.pop(chance.randrange(len(running))))
        events.append(None)
        running.append(number)
    return events


def play(it, events, objectives=1):
    """Ask (None) and tell (a number) as the schedule says."""
    for event in events:
        if event is None:
            it.propose()
        else:
            it.tell(event, ended(it._history[event][0].point, event, objectives))


def through_json(history):
    """What a file of records gives back."""
    restored = []
    for proposal, outcome in history.values():
        plain = json.loads(json.dumps(asdict(proposal), allow_nan=False))
        restored.append((Proposal(**plain), outcome))
    return restored


def proposals(it):
    return [it._history[n][0] for n in sorted(it._history)]


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


# what becomes of a trial


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


# finite spaces, budgets


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


# warm points


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


# lists


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


# what is refused


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
