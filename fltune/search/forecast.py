"""How long a search takes, from what its runs take: who waits for whom, and what is stopped early.

Nothing is run here. What a scheduler or a second seed will stop is worked out by letting the real
rules judge made-up scores, so it is what is to be expected and not what will be.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fltune.keyed import Keyed
from fltune.randomness import generator
from fltune.search.rungs import make_rungs
from fltune.search.settings import SearchSettings

LUCK = 0.3
"""What the seed adds to a made-up score, beside a standard deviation of 1 between configs."""
EVALUATIONS = 40
"""Evaluations of a made-up trial, at most."""
TRIALS = 200
"""Made-up trials, at most."""


@dataclass(frozen=True)
class Lane:
    """The jobs of one method: a job is what a worker does at once, a run or a pack of them.

    Attributes:
        trials: jobs of the search.
        trial_seconds: of each.
        finals: jobs of the confirmation, once all trials have ended.
        final_seconds: of each.
        after: the method whose winner it waits for; empty if there is none.
        batch: jobs after which it waits until all have ended; None if it never does.
    """

    trials: int
    trial_seconds: float
    finals: int
    final_seconds: float
    after: str = ""
    batch: int | None = None


def wall_seconds(lanes: Mapping[str, Lane], workers: int) -> float:
    """Return when the last job ends, if each worker takes the next one that can begin.

    Methods have their turn as in :class:`fltune.search.campaign.Campaign`: in the file's order,
    those that wait for another's winner last.
    """
    states = {name: _State(lane) for name, lane in lanes.items()}
    turns = sorted(states, key=lambda name: bool(lanes[name].after))
    running: list[tuple[float, int, str]] = []
    now, count = 0.0, itertools.count()
    while True:
        while len(running) < workers:
            found = _next(turns, states)
            if found is None:
                break
            name, seconds = found
            heapq.heappush(running, (now + seconds, next(count), name))
        if not running:
            return now
        now, _, name = heapq.heappop(running)
        states[name].out -= 1


def _next(turns: Sequence[str], states: Mapping[str, _State]) -> tuple[str, float] | None:
    """Return the method whose job begins now, and its seconds; None if all must wait."""
    for name in turns:
        source = states.get(states[name].lane.after)
        seconds = None if source is not None and not source.settled else states[name].begin()
        if seconds is not None:
            return name, seconds
    return None


class _State:
    """How far a lane has come."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.trials, self.finals = lane.trials, lane.finals
        self.out = 0
        self._begun = 0

    @property
    def settled(self) -> bool:
        """Whether all trials have ended."""
        return not self.trials and (not self.out or self.finals < self.lane.finals)

    def begin(self) -> float | None:
        """Begin a job and return its seconds; None if there is none now."""
        if self.trials:
            if self._begun == self.lane.batch:
                if self.out:
                    return None
                self._begun = 0
            self.trials -= 1
            self._begun += 1
            self.out += 1
            return self.lane.trial_seconds
        if not self.settled or not self.finals:
            return None
        self.finals -= 1
        self.out += 1
        return self.lane.final_seconds


def share_of_rounds(
    search: SearchSettings, rounds: int, eval_every: int, trials: int, at_once: int
) -> float:
    """Return which share of their rounds trials make with the scheduler, as is to be expected.

    Args:
        search: says which scheduler.
        rounds: T, of a trial.
        eval_every: rounds between two evaluations.
        trials: of the method.
        at_once: trials that go on at the same time.
    """
    if search.scheduler == "none" or not trials:
        return 1.0
    rules = Keyed(search.model_dump_json(), search)  # methods often share them
    return _share_of_rounds(rules, rounds, eval_every, trials, at_once)


@functools.lru_cache(maxsize=256)
def _share_of_rounds(
    rules: Keyed[SearchSettings], rounds: int, eval_every: int, trials: int, at_once: int
) -> float:
    search = rules.value
    rungs = make_rungs(search, rounds)
    assert rungs is not None
    count = min(trials, TRIALS)
    scores = torch.randn(count, generator=generator(0, "forecast")).tolist()
    first = math.ceil(search.grace / eval_every) * eval_every
    every = max(eval_every, math.ceil(rounds / EVALUATIONS))
    sign = 1.0 if search.maximize else -1.0
    made: dict[int, int] = {}
    left, active = iter(range(count)), dict[int, int]()
    while len(made) < count:
        for number in itertools.islice(left, at_once - len(active)):
            active[number] = 0
        for number in list(active):
            active[number] = min(active[number] + every if active[number] else first, rounds)
            stopped = rungs.stop(number, active[number], sign * scores[number])
            if stopped or active[number] == rounds:
                made[number] = active.pop(number)
    return sum(made.values()) / (count * rounds)


def share_on_all_seeds(search: SearchSettings, trials: int) -> float:
    """Return which share of the configs is run on every search seed, as is to be expected.

    The others are worse on their first seed than the best one so far is on its worst.
    """
    if search.seeds == 1 or len(search.goals) > 1 or not trials:
        return 1.0
    count = min(trials, TRIALS)
    drawn = torch.randn(count, 1 + search.seeds, generator=generator(0, "forecast"))
    best, worst, kept = -math.inf, -math.inf, 0
    for runs in (drawn[:, :1] + LUCK * drawn[:, 1:]).tolist():
        if runs[0] < worst:
            continue
        kept += 1
        if sum(runs) > best:
            best, worst = sum(runs), min(runs)
    return kept / count
