"""Which jobs run as one computation: configs of a method that differ in numbers alone.

A worker that trains several models at once (:mod:`fltune.packing`) is quicker than one that trains
them in turn, but only where models are small, and what runs together was proposed together: a
sampler that learns would have learned nothing in between.
"""

from __future__ import annotations

import math
from typing import Any

from fltune.errors import FltuneError
from fltune.packing import pack_key, worth_packing
from fltune.search.jobs import Job, experiment_of
from fltune.search.lane import Lane
from fltune.search.method import Method
from fltune.search.record import TRIAL
from fltune.search.samplers import LEARNING
from fltune.search.settings import SearchSettings

PACKS_PER_WORKER = 2
"""Packs that a worker gets at least: with one, the quicker worker would wait for the other."""
BLIND_SHARE = 0.2
"""Share of its trials that a sampler that learns may have in flight, proposed without an answer."""
AHEAD = 8
"""Packs' worth of configs that are proposed in search of fellows for one."""


class Packer:
    """Finds fellows for a job: others of its lane that can run as one computation with it.

    Nothing is ever waited for: what is there goes together, the rest stays in the lane. In a
    deterministic search a pack is a block of consecutive numbers of a batch, whoever is quicker.

    Args:
        search: says how many may go together.
        workers: packs at once.
    """

    def __init__(self, search: SearchSettings, workers: int) -> None:
        self.search = search
        self.workers = workers
        self._kinds: dict[tuple[Any, ...], tuple[str, int] | None] = {}
        self._left: dict[tuple[str, str], int] = {}
        self._alone: set[tuple[Any, ...]] = set()

    def part(self, job: Job) -> None:
        """Let a job run alone from now on: its pack has lost its worker again and again."""
        self._alone.add(_identity(job))

    def fellows(self, lane: Lane, job: Job) -> list[Job]:
        """Take from a lane what goes with a job that it has just handed out.

        Args:
            lane: the job's.
            job: the first of the pack.

        Raises:
            DiskFullError: a proposal could not be kept.
        """
        size = self._size(lane, job)
        if size == 1:
            return []
        block = self._block(lane, job, size)
        found: list[Job] = []
        others: list[Job] = []
        try:
            while len(found) + 1 < size and self._may_ask(lane, len(others), size):
                more = lane.next()
                if not isinstance(more, dict):
                    break
                together = self._kind(lane, more) and self._block(lane, more, size) == block
                (found if together else others).append(more)
        finally:
            lane.put_back(others)
        return found

    def _may_ask(self, lane: Lane, others: int, size: int) -> bool:
        """Whether a lane may be asked for more: what it has proposed already, or something new."""
        if lane.queued:
            return True
        blind = math.inf
        if _learns(lane.method, self.search):
            blind = max(size * self.workers, BLIND_SHARE * lane.planned)
        return lane.in_flight < blind and others < AHEAD * size

    def _size(self, lane: Lane, job: Job) -> int:
        if self.search.pack == 1:
            return 1
        kind = self._kind(lane, job)
        if kind is None:
            return 1
        which = lane.method.name, job["kind"]
        if which not in self._left:  # fixed at the first look, so that packs are even
            trials = lane.planned - lane.done
            self._left[which] = trials if job["kind"] == TRIAL else lane.planned_confirmations
        return pack_size(lane.method, self.search, self.workers, kind[1], self._left[which])

    def _kind(self, lane: Lane, job: Job) -> tuple[str, int] | None:
        """Return a job's pack key and how many such are worth packing; None if it runs alone."""
        run = _identity(job)
        if run in self._alone:
            return None
        if run not in self._kinds:
            self._kinds[run] = _examine(job, lane.method.seed)
        return self._kinds[run]

    def _block(self, lane: Lane, job: Job, size: int) -> tuple[Any, ...]:
        """Return what the jobs of one pack have in common."""
        fixed = self.search.deterministic and job["kind"] == TRIAL
        return self._kind(lane, job), job["kind"], job["number"] // size if fixed else 0


def pack_size(
    method: Method, search: SearchSettings, workers: int, worth: int, runs: int | None = None
) -> int:
    """Return how many runs of a method go together at most.

    Args:
        method: whose runs.
        search: says ``pack``: so many, or by the rule of its description.
        workers: packs at once. A deterministic search does not look at them.
        worth: as many as are worth it on this model (:func:`fltune.packing.worth_packing`).
        runs: how many there are; None: all trials of the method.
    """
    if search.pack != "auto":
        return search.pack
    if search.deterministic:
        return max(1, min(worth, math.ceil(search.batch / 2)))
    count = method.trials(search) if runs is None else runs
    most = worth
    if _learns(method, search):
        most = min(worth, int(BLIND_SHARE * method.trials(search) / workers))
    if most <= 1 or count < 1:
        return 1
    rounds = max(PACKS_PER_WORKER, math.ceil(count / most / workers))
    return math.ceil(count / (rounds * workers))


def usual_size(method: Method, search: SearchSettings, workers: int) -> int:
    """Return how many trials of a method go together where all are like its first values."""
    if search.pack == 1:
        return 1
    worth = worth_packing(method.first_experiment())
    return min(pack_size(method, search, workers, worth), method.trials(search))


def _learns(method: Method, search: SearchSettings) -> bool:
    """Whether what has ended changes what is proposed next."""
    return search.sampler in LEARNING and not method.exact(search) and not search.deterministic


def _identity(job: Job) -> tuple[Any, ...]:
    return job["method"], job["kind"], job["number"], job["seed"]


def _examine(job: Job, seed: int) -> tuple[str, int] | None:
    """Return a job's pack key and how many such are worth packing; None if it cannot be run.

    On how many pays the job's own seed has no say: asking with it would divide the data anew.
    """
    try:
        experiment = experiment_of(job)
        return pack_key(experiment), worth_packing(experiment.with_values({"seed": seed}))
    except (FltuneError, ValueError):
        return None  # its worker will say what is wrong with it
