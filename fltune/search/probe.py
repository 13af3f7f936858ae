"""What a run of a config takes here: a few of its rounds are run, and timed.

On a CPU by the processor's clock where that is shorter, so that other programs do not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import lightning as L
import torch

from fltune.experiment import Experiment
from fltune.federation.precision import products
from fltune.federation.quiet import quiet
from fltune.packing import run_pack
from fltune.runner import Run, build

ROUNDS = 5
"""Rounds that are run at least, if they are not long; the first is no measure."""
SHORT = 0.5
"""Seconds for which short rounds are run: cohorts and local work differ from round to round."""
LONG = 3.0
"""Seconds after which two rounds are enough, or one that took as long; fewer of many configs."""


@dataclass(frozen=True)
class Probe:
    """What one run takes, in seconds.

    Attributes:
        setup: to build it and to end it; its data are there.
        round: a round, without evaluation.
        evaluation: one validation.
        test: the evaluation on the test split; 0 where it was not timed.
    """

    setup: float
    round: float
    evaluation: float
    test: float = 0.0

    def run(self, rounds: float, eval_every: int, test: bool = False) -> float:
        """Return the seconds of a run of so many rounds; the last one is always evaluated."""
        evaluations = -(rounds // -eval_every)
        seconds = self.setup + rounds * self.round + evaluations * self.evaluation
        return seconds + (self.test if test else 0.0)


class Stopwatch:
    """Times what lies between two moments.

    Args:
        processor: take the processor's time where it is shorter than the wall clock's. With several
            threads it is longer, and on an accelerator it says nothing.
    """

    def __init__(self, processor: bool) -> None:
        self._processor = processor
        self._last = self._now()

    def lap(self) -> float:
        """Return the seconds since the last call, or since the watch was made."""
        before, self._last = self._last, self._now()
        return min(now - then for now, then in zip(self._last, before, strict=True))

    def _now(self) -> tuple[float, ...]:
        wall = time.perf_counter()
        return (wall, time.process_time()) if self._processor else (wall,)


class _Laps(L.Callback):
    """Times rounds and evaluations apart, and ends the run when that is enough.

    Must be the last callback, so that those before it are timed.
    """

    def __init__(self, watch: Stopwatch, enough: Callable[[list[float]], bool]) -> None:
        self.building = 0.0
        self.rounds: list[float] = []
        self.evaluations: list[float] = []
        self._watch = watch
        self._enough = enough
        self._round = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.building += self._watch.lap() if not self.rounds else 0.0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._round += self._watch.lap()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.evaluations.append(self._watch.lap())

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.rounds.append(self._round + self._watch.lap())
        self._round = 0.0
        trainer.should_stop = trainer.should_stop or self._enough(self.rounds)


def enough(rounds: list[float], long: float = LONG) -> bool:
    """Whether so many timed rounds say what one takes; the first does only if it is long."""
    spent = sum(rounds)
    return spent > long or (len(rounds) >= ROUNDS and spent > SHORT)


def probe(experiment: Experiment, long: float = LONG) -> Probe:
    """Run a few rounds of a config, each with an evaluation.

    A first run of one round warms up: what a worker does once, such as to load the data, its other
    runs do not pay. Where that round was long, it is the measure too.

    Args:
        experiment: the config.
        long: seconds after which it is enough.

    Raises:
        ConfigError, DataError: as the run itself would.
    """
    every = experiment.with_values({"eval_every": 1})
    laps, test = _timed(every, lambda rounds: True)
    if laps.rounds[0] <= long and experiment.rounds > 1:
        laps, test = _timed(every, partial(enough, long=long))
    later = fmean(laps.rounds[1:] or laps.rounds)
    return Probe(
        setup=laps.building + max(0.0, laps.rounds[0] - later),
        round=later,
        evaluation=fmean(laps.evaluations[1:] or laps.evaluations),
        test=test,
    )


def _timed(experiment: Experiment, enough: Callable[[list[float]], bool]) -> tuple[_Laps, float]:
    """Run a config until it is enough; return what was timed, and the seconds of its test."""
    watch = _watch(experiment)
    laps = _Laps(watch, enough)
    built: Run = build(experiment, callbacks=[laps])
    with quiet(), products(experiment.precision):
        built.trainer.fit(built.module, built.datamodule)
        laps.building += watch.lap()
        built.trainer.test(built.module, built.datamodule, verbose=False)
    return laps, watch.lap()


def _watch(experiment: Experiment) -> Stopwatch:
    return Stopwatch(experiment.device == "cpu" or not torch.cuda.is_available())


def probe_pack(experiment: Experiment, pack: int, long: float = LONG) -> Probe:
    """Return what one of so many runs takes that go as one computation; without its evaluation.

    Args:
        experiment: the config of all of them.
        pack: runs.
        long: seconds after which it is enough.
    """
    members = [experiment.with_values({"eval_every": experiment.rounds})] * pack
    rounds = _timed_pack(members, lambda rounds: True)
    if rounds[0] <= long and experiment.rounds > 1:
        rounds = _timed_pack(members, partial(enough, long=long))
    later = fmean(rounds[1:] or rounds)
    first = max(0.0, rounds[0] - later)
    return Probe(setup=first / pack, round=later / pack, evaluation=0.0)


def _timed_pack(members: list[Experiment], enough: Callable[[list[float]], bool]) -> list[float]:
    """Run a pack until it is enough; return what each round took, the first with all before it."""
    watch, rounds = _watch(members[0]), list[float]()

    def on_round() -> Iterable[int]:
        rounds.append(watch.lap())
        return range(len(members) if enough(rounds) else 0)

    run_pack(members, on_round=on_round)
    return rounds
