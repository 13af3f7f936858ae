"""Spaces without a file, proposers over them, and ends for their trials."""

import itertools
import json
import math
import random
from dataclasses import asdict, dataclass

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fltune.search.proposer import (
    OptunaProposer,
    Outcome,
    Proposal,
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
