"""What a search orders: the runs of each method, sorted by kinds of work, and what is to be timed.

A space may hold what changes the work of a round (steps, batch, cohort, model). So the trials are
judged by some points of the space: all cells of a small grid, else points at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.packing import worth_packing
from fltune.randomness import generator
from fltune.search.bequest import heirs_of
from fltune.search.config import SearchConfig
from fltune.search.dimension import Dimension
from fltune.search.method import Method
from fltune.search.packer import pack_size
from fltune.search.settings import SearchSettings
from fltune.search.space import Point, Space
from fltune.search.timing import Question
from fltune.search.workload import Work, work_of

POINTS = 20
"""Points by which the trials of a method are judged, where they are drawn."""
KINDS = 3
"""Kinds of work that are timed for one method at most; each stands for those of about its size."""


@dataclass(frozen=True)
class Part:
    """Trials of a method that are priced together.

    Attributes:
        share: of all its trials.
        rounds: of a trial.
        whole: rounds of its confirmation.
        eval_every: rounds between two evaluations.
        client_samples: that clients process in a round.
        pack: trials that run as one computation.
        alone: which question asks for one run by itself.
        together: which one asks for a run of a pack.
    """

    share: float
    rounds: int
    whole: int
    eval_every: int
    client_samples: float
    pack: int
    alone: int
    together: int


@dataclass(frozen=True)
class Order:
    """The runs of one method.

    Attributes:
        trials: configs.
        exact: whether every cell of the space is run once.
        seeds: search seeds, on each of which a config is run.
        finals: runs of the confirmation.
        inherits: the method whose winner some values come from; empty if there is none.
        parts: kinds of trials.
        search: how trials are stopped.
        at_once: packs that go on at the same time.
    """

    trials: int
    exact: bool
    seeds: int
    finals: int
    inherits: str
    parts: tuple[Part, ...]
    search: SearchSettings
    at_once: int

    @property
    def pack(self) -> int:
        """Trials in the largest packs."""
        return max(part.pack for part in self.parts)


class Book:
    """Questions about what runs take; equal work is asked for once.

    Attributes:
        questions: so far.
    """

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self._works: list[Work] = []

    def place(self, experiment: Experiment, work: Work, pack: int = 1) -> int:
        """Return which question asks what runs of a config take, so many together."""
        for place, (known, question) in enumerate(zip(self._works, self.questions, strict=True)):
            if question.pack == pack and known.equals(work):
                return place
        self.questions.append(Question(experiment, pack))
        self._works.append(work)
        return len(self.questions) - 1


def order_of(method: Method, config: SearchConfig, workers: int, book: Book) -> Order:
    """Return the runs of a method, and enter into the book what must be timed for them.

    Args:
        method: with what it inherits set.
        config: the search.
        workers: packs at once.
        book: of all methods.

    Raises:
        ConfigError, DataError: as the runs would.
    """
    search = config.settings.search
    inherit = config.methods[method.name].inherit
    trials = method.trials(search)
    return Order(
        trials=trials,
        exact=method.exact(search),
        seeds=search.seeds,
        finals=search.confirm_seeds * min(search.confirm_top, max(1, trials)),
        inherits=inherit.source if inherit else "",
        parts=tuple(_parts(method, config, workers, book)),
        search=search,
        at_once=workers,
    )


def _parts(method: Method, config: SearchConfig, workers: int, book: Book) -> list[Part]:
    search = config.settings.search
    inherit = config.methods[method.name].inherit
    source = None if inherit is None else config.methods[inherit.source]
    found = [_as_in_a_worker(e, config) for e in _experiments(config.methods[method.name], source)]
    works = [work_of(experiment) for experiment in found]
    timed = stand_ins(works)
    keys = [(place, e.rounds, e.eval_every) for place, e in zip(timed, found, strict=True)]
    parts = []
    for (place, whole, eval_every), count in Counter(keys).items():
        experiment, work, share = found[place], works[place], count / len(found)
        own = [w.samples for key, w in zip(keys, works, strict=True) if key[0] == place]
        pack = 1
        if search.pack != 1:
            size = pack_size(method, search, workers, worth_packing(experiment))
            pack = max(1, min(size, round(share * method.trials(search))))
        alone = book.place(experiment, work)
        parts.append(
            Part(
                share=share,
                rounds=min(whole, search.rounds or whole),
                whole=whole,
                eval_every=eval_every,
                client_samples=sum(own) / len(own),
                pack=pack,
                alone=alone,
                together=alone if pack == 1 else book.place(experiment, work, pack),
            )
        )
    return parts


def stand_ins(works: Sequence[Work]) -> list[int]:
    """Return for each work the place of one that is timed for it: its equal, or one of its size."""
    first: list[int] = []
    equal = []
    for place, work in enumerate(works):
        known = next((other for other in first if works[other].equals(work)), place)
        first += [place] if known == place else []
        equal.append(known)
    by_size = sorted(first, key=lambda place: (works[place].room, works[place].kind))
    count = min(KINDS, len(by_size))
    chosen: dict[int, int] = {}
    for group in range(count):
        low, high = (len(by_size) * (group + i) // count for i in (0, 1))
        chosen |= dict.fromkeys(by_size[low:high], by_size[(low + high) // 2])
    return [chosen[place] for place in equal]


def _experiments(method: Method, source: Method | None) -> list[Experiment]:
    """Return configs at points of the space; those that would fail cost nothing.

    What is taken over from another method's winner is spread over what that one may find.
    """
    methods = [method]
    if source is not None:
        methods = list(heirs_of(method, source, _points(source.space))) or methods
    points = [_points(own.space) for own in methods]
    found = []
    for turn in range(max(len(methods), *map(len, points))):
        own, place = methods[turn % len(methods)], turn % len(methods)
        try:
            found.append(own.experiment(points[place][turn % len(points[place])]))
        except ConfigError:
            continue
    return found or [method.first_experiment()]


def _points(space: Space) -> list[Point]:
    cells = space.cells
    if cells is not None and cells <= POINTS:
        return list(space.grid())
    drawn = generator(0, "points")

    def take(name: str, dimension: Dimension) -> object:
        return dimension.at(torch.rand((), dtype=torch.float64, generator=drawn).item())

    return [space.draws(take) for _ in range(POINTS)]


def _as_in_a_worker(experiment: Experiment, config: SearchConfig) -> Experiment:
    """Return a config on the device on which its trials run (:mod:`fltune.search.trainable`)."""
    if config.settings.resources.device(experiment.device) == "cpu":
        return experiment.with_values({"device": "cpu"})
    return experiment
