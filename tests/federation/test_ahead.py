"""Cohorts that are made some rounds in advance are those that each round would make alone."""

from types import SimpleNamespace

import pytest
import torch

from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, LocalSGD, datamodule
from fltune.federation.batches import Holdings, plan_batches, plan_cohorts
from fltune.federation.delays import UniformDelays
from fltune.federation.stragglers import Stragglers
from fltune.federation.work import LocalWork, UniformWork
from fltune.participation.asynchronous import Asynchronous
from fltune.participation.bernoulli import Bernoulli
from fltune.participation.cyclic import ReshuffledCyclic
from fltune.participation.groups import Groups
from fltune.participation.markov import Markov
from fltune.participation.trace import Trace
from fltune.participation.uniform import Uniform
from fltune.participation.with_replacement import WithReplacement
from fltune.randomness import client_keys

SIZES = [1, 2, 3, 5, 7, 11, 2, 4, 9, 30]
CLIENTS, ROUNDS = len(SIZES), 30

PATTERNS = {
    "uniform": lambda: Uniform(3),
    "bernoulli": lambda: Bernoulli(0.2),  # some rounds are empty
    "reshuffled": lambda: ReshuffledCyclic(4),
    "groups": lambda: Groups(groups=2, per_round=2),
    "merged repeats": lambda: WithReplacement(4, multiplicity=True),
    "repeats": lambda: WithReplacement(4),
    "trace": lambda: Trace([[0, 1], [], [9], [2, 3, 4]]),
    "markov": lambda: Markov(0.4, mean_spell=3),
    "asynchronous": lambda: Asynchronous(concurrency=4, buffer=2, max_delay=3),
}
WORK = {
    "nominal": LocalWork,
    "uniform": lambda: UniformWork(1, 4),
    "late and dropped": lambda: Stragglers(0.5, "drop"),
}
BATCHES = [
    {"batch_size": 4},
    {"batch_size": None},
    {"batch_size": 3, "batches": "fixed"},
]


def source(pattern, work=None, rounds=ROUNDS, **sgd):
    x = torch.arange(sum(SIZES), dtype=torch.float32).view(-1, 1)
    split = Split(x, x)
    data = FederatedData.from_clients(
        split, split, split, list(torch.arange(len(x)).split(SIZES)), None
    )
    bound = pattern.bind(CLIENTS, 5)
    if bound.asynchronous:
        bound.admit(3)
    made = FederatedDataModule(
        data, bound, LocalSGD(lr=0.1, epochs=2, **sgd), 5, work=work, delays=UniformDelays(2)
    )
    made.trainer = SimpleNamespace(max_epochs=rounds)
    return made


def cohorts(source, rounds):
    """The next rounds' cohorts as Lightning gets them: an epoch asks for one."""
    loader = source.train_dataloader()
    return [cohort for _ in range(rounds) for cohort in loader]


def said(cohort):
    """All that a cohort says, in plain numbers."""
    plan = cohort.plan
    tensors = (cohort.clients, cohort.sizes, cohort.keys, cohort.delays, cohort.shares)
    planned = () if plan is None else (plan.index, plan.count, plan.steps)
    held = () if cohort.held is None else (cohort.held.start, cohort.held.size)
    rest = (cohort.round, cohort.dropped, cohort.discarded, cohort.seconds)
    return [*rest, *(t.tolist() for t in (*tensors, *planned, *held))]


@pytest.mark.parametrize("sgd", BATCHES, ids=str)
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_they_are_those_of_their_own_rounds(pattern, work, sgd, monkeypatch):
    if pattern is PATTERNS["asynchronous"] and work is WORK["late and dropped"]:
        pytest.skip("asynchronous clients are never late")
    ahead = list(map(said, cohorts(source(pattern(), work(), **sgd), ROUNDS)))
    monkeypatch.setattr(datamodule, "TOGETHER", 1)
    alone = list(map(said, cohorts(source(pattern(), work(), **sgd), ROUNDS)))
    assert ahead == alone
    assert [row[0] for row in ahead] == list(range(ROUNDS))


def together(pattern, rounds=ROUNDS):
    """How many rounds were planned at once, each time."""
    made = source(pattern, rounds=rounds, batch_size=4)
    counts, plan = [], made.cohorts

    def counted(selected, arrivals=None):
        counts.append(len(selected))
        return plan(selected, arrivals)

    made.cohorts = counted
    cohorts(made, rounds)
    return counts


def test_rounds_are_planned_together_up_to_the_last():
    assert together(Uniform(3)) == [1, 8, 8, 8, 5]


def test_large_plans_are_made_one_by_one(monkeypatch):
    monkeypatch.setattr(datamodule, "PLACES", 10)
    assert together(Uniform(3), 4) == [1] * 4


@pytest.mark.parametrize("name", ["markov", "asynchronous"])
def test_a_pattern_with_a_state_is_asked_in_its_turn(name):
    assert together(PATTERNS[name](), 6) == [1] * 6


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("made", [1, 4, 12])
def test_a_run_goes_on_from_a_checkpoint_between_them(pattern, made):
    whole = source(pattern())
    expected = list(map(said, cohorts(whole, ROUNDS)))
    first, again = source(pattern()), source(pattern())
    cohorts(first, made)
    again.load_state_dict(first.state_dict())
    assert list(map(said, cohorts(again, ROUNDS - made))) == expected[made:]
    assert again.participation.report() == whole.participation.report()


def test_what_is_drawn_in_advance_counts_in_its_turn():
    pattern = Uniform(3).bind(CLIENTS, 1)
    upcoming = pattern.upcoming(4)
    assert (pattern.round, int(pattern.turns.counts.sum())) == (0, 0)
    assert [cohort for _ in range(4) for cohort in pattern] == upcoming
    assert (pattern.round, int(pattern.turns.counts.sum())) == (4, 12)


def test_a_plan_of_several_cohorts_has_the_shapes_that_each_has_alone():
    """Clients of 1 and 2 samples beside one of 30 would have wider batches and more steps."""
    size = torch.tensor(SIZES)
    start, order = size.cumsum(0) - size, torch.arange(sum(SIZES))
    keys = client_keys(0, 0, torch.arange(CLIENTS))
    amount = torch.full((CLIENTS,), 2)
    cut = [2, 1, 7]
    joint = plan_cohorts(Holdings(order, start, size), keys, amount, cut, "epochs", 8)
    parts = zip(joint, *(t.split(cut) for t in (start, size, keys, amount)), strict=True)
    for plan, *own in parts:
        own_start, own_size, own_keys, own_amount = own
        held = Holdings(order, own_start, own_size)
        alone = plan_batches(held, own_keys, own_amount, "epochs", 8)
        for name in ("index", "count", "steps"):
            assert torch.equal(getattr(plan, name), getattr(alone, name))
            assert getattr(plan, name).is_contiguous()
