"""Delays: how old the model is that a client starts from.

Stale models come from asynchrony: a client fetches the model, works, and its update meets a server
that has moved on (Sun et al. 2024, Algorithm 4; FedBuff, Nguyen et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import Checked, parameter
from fltune.randomness import client_draws
from fltune.registry import Registry

DELAYS = Registry(
    "delay model",
    {
        "none": "fltune.federation.delays:Delays",
        "uniform": "fltune.federation.delays:UniformDelays",
        "trace": "fltune.federation.delays:RecordedDelays",
    },
    bases=("fltune.federation.delays:Delays",),
)


@dataclass(eq=False)
class Delays(Checked):
    """No delay: every client starts from the current model."""

    @property
    def longest(self) -> int:
        """The greatest age that may be drawn."""
        return 0

    def check(self, oldest: int, asynchronous: bool = False) -> None:
        """Raise ValueError if this does not go with the method or the pattern.

        Args:
            oldest: the age of the oldest model that the method keeps.
            asynchronous: whether the participation pattern says itself how old models are.
        """
        if asynchronous and type(self) is not Delays:
            raise ValueError("the participation pattern has delays of its own; leave these out")
        if self.longest > oldest:
            means = f"keeps models up to {oldest} rounds old" if oldest else "ignores delays"
            raise ValueError(f"starts from models up to {self.longest} rounds old; {means}")

    def bind(self, seed: int) -> Delays:
        """Set the run's seed. Returns self."""
        self.seed = seed
        return self

    def draw(self, round: int, clients: Tensor) -> Tensor:
        """Return the age in rounds of each client's model, int64 [C] in 0..t."""
        return torch.zeros_like(clients)


@dataclass(eq=False)
class UniformDelays(Delays):
    """Uniform over the last ``window`` models, the current one included (Sun et al. 2024, H.1)."""

    window: int = parameter(5, "models that a client may start from", ge=1)

    @property
    def longest(self) -> int:
        """The age of the oldest model."""
        return self.window - 1

    def draw(self, round: int, clients: Tensor) -> Tensor:
        """Return delays uniform on 0..min(t, window - 1)."""
        ages = min(round, self.window - 1) + 1
        return client_draws(self.seed, "delay", round, clients, ages)


@dataclass(eq=False)
class RecordedDelays(Delays):
    """Delays as they were recorded, for the clients of a recorded cohort in ascending order.

    After the last round they start again.

    Raises:
        ValueError: no round, or a delay below 0.
    """

    rounds: list[list[int]] = parameter(doc="delay of each client of each round", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rounds:
            raise ValueError("rounds is empty: a trace needs at least one round")

    @property
    def longest(self) -> int:
        """The greatest recorded delay."""
        return max((age for ages in self.rounds for age in ages), default=0)

    def draw(self, round: int, clients: Tensor) -> Tensor:
        """Return the recorded delays of round t.

        Raises:
            ValueError: there are more or fewer than clients.
        """
        recorded = self.rounds[round % len(self.rounds)]
        if len(recorded) != len(clients):
            raise ValueError(
                f"delays: {len(recorded)} are recorded for round {round}, in which "
                f"{len(clients)} clients are selected"
            )
        return torch.tensor(recorded, dtype=torch.int64, device=clients.device)
