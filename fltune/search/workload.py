"""What a round of a config costs depends on: configs of equal work need be timed only once.

The rule, in one place. Two configs do equal work if

- they have the same model, loss, kind of samples, number of clients, compressor, local work,
  delays, clock, strategy and number format, down to every number in them: all that is not named
  below;
- algorithm, server and clients are the same but for rates (:data:`RATES`): of a rate it counts
  whether it is zero, for then a term or a buffer is left out; of a list, that it is one, for a
  round has one of its values. Words, switches and counts (epochs, steps, batch) count as they are;
- their rounds are of about the same size (:data:`TOLERANCE`): clients, local steps, samples, room
  for samples, and what is evaluated. These are counted in rounds that are drawn and planned, not
  trained. So the partition and the participation pattern count by what they make of a round,
  whatever their names and numbers; only where clients arrive when they are done, the pattern counts
  as it is.

Seeds, the number of rounds and how often they are evaluated (:data:`OF_A_RUN`) do not change what
one round costs.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from fltune.experiment import Experiment
from fltune.keyed import Keyed
from fltune.pieces import build_datamodule, load_data

OF_A_RUN = ("rounds", "eval_every", "seed", "max_loss")
SIZED = ("data", "participation")
"""Sections that count by the size of a round that comes of them."""
RATES = ("algorithm", "server", "client")
DEALT = (
    *("partition", "partition_seed", "split_seed", "resplit"),
    *("val_fraction", "val_from", "val_clients"),
)
"""Keys of the data section that say who has which samples; what counts of them is their number."""
DRAWN = ("data", "participation", "client", "work", "delays", "seed", "dtype")
"""Sections that decide how large rounds are."""
ROUNDS = 8
"""Rounds whose sizes are counted."""
TOLERANCE = 0.2
"""How much sizes may differ, as a share of the larger one: as much as they do by chance."""


@dataclass(frozen=True)
class Work:
    """What a round of a config costs depends on.

    Attributes:
        kind: a text; equal for configs that may differ in sizes and rates alone.
        clients: of a cohort, on average, as all numbers below.
        steps: local steps of all of them.
        samples: that they process.
        room: places for samples where all clients are padded to the longest.
        evaluated: validation samples.
        tested: test samples.
    """

    kind: str
    clients: float
    steps: float
    samples: float
    room: float
    evaluated: int
    tested: int

    @property
    def sizes(self) -> tuple[float, ...]:
        """The numbers that may differ a little."""
        return (
            *(self.clients, self.steps, self.samples, self.room),
            *(float(self.evaluated), float(self.tested)),
        )

    def equals(self, other: Work) -> bool:
        """Whether timing one of them says what the other takes."""
        pairs = zip(self.sizes, other.sizes, strict=True)
        return self.kind == other.kind and all(
            abs(a - b) <= TOLERANCE * max(a, b) for a, b in pairs
        )


def work_of(experiment: Experiment) -> Work:
    """Return what a round of a config does; loads its data, and trains nothing.

    Raises:
        ConfigError, DataError: data or participation that cannot be had.
    """
    raw = experiment.as_dict()
    drawn = json.dumps({key: raw[key] for key in DRAWN}, sort_keys=True)
    sizes = _sizes(Keyed(drawn, experiment))
    kind = {key: own for key, own in raw.items() if key not in (*OF_A_RUN, *SIZED)}
    kind |= {key: _without_rates(kind[key]) for key in RATES}
    kind["data"] = {k: v for k, v in raw["data"].items() if k not in DEALT}
    kind["data"]["asked one by one"] = sizes.owned
    if experiment.participation.build().asynchronous:
        kind["participation"] = raw["participation"]
    clients, steps, samples, room = sizes.of_a_round
    evaluated, tested = sizes.held_out
    text = json.dumps(kind, sort_keys=True)
    return Work(text, clients, steps, samples, room, evaluated, tested)


def _without_rates(value: Any) -> Any:
    if isinstance(value, float):
        return value != 0
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return {key: _without_rates(own) for key, own in value.items()}
    return value


@dataclass(frozen=True)
class _Sizes:
    """Means over some rounds, validation and test samples, and whether the former have owners."""

    of_a_round: tuple[float, ...]
    held_out: tuple[int, int]
    owned: bool


@functools.lru_cache(maxsize=256)
def _sizes(keyed: Keyed[Experiment]) -> _Sizes:
    experiment = keyed.value
    data = load_data(experiment.data, experiment.seed)
    source = build_datamodule(experiment, data)
    rounds = []
    for _ in range(min(ROUNDS, experiment.rounds)):
        (cohort,) = source.train_dataloader()
        plan = cohort.plan  # none in an empty round
        padded = (int(plan.steps.sum()), plan.samples, plan.index.numel()) if plan else (0, 0, 0)
        rounds.append((len(cohort.clients), *padded))
    means = tuple(sum(column) / len(rounds) for column in zip(*rounds, strict=True))
    return _Sizes(means, (len(data.val), len(data.test)), data.val_owner is not None)
