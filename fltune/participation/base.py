"""The contract of a participation pattern.

A pattern is a torch Sampler that yields one cohort per epoch, because an epoch is a round. It draws
from a stream of its own, (seed, "participation", t), so that every method of a comparison sees the
same cohorts, and it can say how long clients were away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from fltune.parameters import Checked
from fltune.randomness import generator


@dataclass(eq=False)
class Participation(Checked, Sampler[list[int]]):
    """Base of all patterns: a sampler of cohorts, resumable, with its delays.

    Subclasses are dataclasses of hyperparameters and implement :meth:`draw`. Empty cohorts are
    legal. Bind it to a population before use.

    Attributes:
        num_clients: N.
        seed: the run's seed.
        round: the next 0-based round t.
        tau_max: the longest absence over all rounds drawn: max over t of max_i (t - a_i), a_i the
            last round of client i (-1 before its first).
        tau_avg: the mean over rounds of max_i (t - a_i).
    """

    def bind(self, num_clients: int, seed: int) -> Participation:
        """Set the population; start at round 0. Returns self.

        Raises:
            ValueError: the pattern cannot be drawn from so many clients.
        """
        self.check(num_clients)
        self.num_clients = num_clients
        self.seed = seed
        self.round = 0
        self._last = torch.full((num_clients,), -1, dtype=torch.int64)
        self._delay_sum = 0
        self.tau_max = 0
        return self

    def check(self, num_clients: int) -> None:
        """Raise ValueError if this pattern does not fit so many clients."""

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the ids of the clients active in round t, int64, in any order."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the cohort of the next round, ascending ids, and move on by one round."""
        drawn = self.draw(self.round, generator(self.seed, "participation", self.round))
        cohort = drawn.sort().values
        self._last[cohort] = self.round
        delay = self.round - int(self._last.min())
        self.tau_max = max(self.tau_max, delay)
        self._delay_sum += delay
        self.round += 1
        yield cohort.tolist()

    def __len__(self) -> int:
        """One cohort per epoch."""
        return 1

    @property
    def tau_avg(self) -> float:
        """The mean over rounds of the longest absence."""
        return self._delay_sum / max(self.round, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs: plain numbers and tensors."""
        return {
            "round": self.round,
            "last": self._last,
            "delay_sum": self._delay_sum,
            "tau_max": self.tau_max,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken."""
        self.round = state["round"]
        self._last = state["last"].clone()
        self._delay_sum = state["delay_sum"]
        self.tau_max = state["tau_max"]
