"""What a round of a config takes here: a few are run, and timed.

On a CPU by the processor's clock where that is shorter, so that other programs do not matter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import lightning as L

from fltune.experiment import Experiment
from fltune.federation.quiet import quiet
from fltune.packing import run_pack
from fltune.runner import build

ROUNDS = 5
"""Rounds that are run; the first is a warm-up."""
SECONDS = 3.0
"""Time after which two rounds are enough: a search has many methods and cells to time."""


@dataclass(frozen=True)
class Probe:
    """A round of one run, on average.

    Attributes:
        seconds: with its share of the evaluation, which is made every ``eval_every`` rounds.
        evaluation: seconds of that share.
        client_samples: that clients process.
    """

    seconds: float
    evaluation: float
    client_samples: float


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

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.evaluations: list[float] = []
        self._began = time.perf_counter()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._watch = Stopwatch(pl_module.device.type == "cpu")
        self._round = 0.0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._round += self._watch.lap()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.evaluations.append(self._watch.lap())

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.rounds.append(self._round + self._watch.lap())
        self._round = 0.0
        trainer.should_stop = trainer.should_stop or enough(self.rounds, self._began)


def enough(rounds: list[float], began: float) -> bool:
    """Whether so many timed rounds say what one takes; the first says nothing."""
    long = time.perf_counter() - began > SECONDS
    return len(rounds) >= ROUNDS or (len(rounds) > 1 and long)


def probe(experiment: Experiment) -> Probe:
    """Run a few rounds of a config, each with an evaluation.

    Raises:
        ConfigError, DataError: as the run itself would.
    """
    laps = _Laps()
    built = build(experiment.with_values({"eval_every": 1}), callbacks=[laps])
    with quiet():
        built.trainer.fit(built.module, built.datamodule)
    made = len(laps.rounds)
    share = median(laps.evaluations[1:] or laps.evaluations) / experiment.eval_every
    return Probe(
        seconds=median(laps.rounds[1:] or laps.rounds) + share,
        evaluation=share,
        client_samples=built.module.client_samples / made,
    )


def probe_pack(experiment: Experiment, alone: Probe, pack: int) -> float:
    """Return the seconds of a round of one of so many runs that go as one computation.

    Args:
        experiment: the config of all of them.
        alone: a round of it by itself; each run of a pack is evaluated as it is alone.
        pack: runs.
    """
    rounds: list[float] = []
    began = time.perf_counter()
    watch = Stopwatch(experiment.device == "cpu")

    def on_round() -> Any:
        rounds.append(watch.lap())
        return range(pack if enough(rounds, began) else 0)

    run_pack([experiment.with_values({"eval_every": experiment.rounds})] * pack, on_round=on_round)
    return median(rounds[1:] or rounds) / pack + alone.evaluation
