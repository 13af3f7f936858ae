"""Cyclic participation: every client once per cycle, in a fixed order or a new one each epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import parameter
from fltune.participation.uniform import Uniform
from fltune.randomness import generator


@dataclass(eq=False)
class Cyclic(Uniform):
    """Deterministic cyclic (FedSUM's Case 3): S_t = {(t S + j) mod N, j < S}.

    Wraps around the last client without a restart, so tau_max = N / S - 1 where S divides N.
    """

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the next S ids."""
        first = round * self.per_round
        return (first + torch.arange(self.per_round)) % self.num_clients


@dataclass(eq=False)
class ReshuffledCyclic(Uniform):
    """A new permutation of all clients every epoch, cut into blocks of S.

    The client reshuffling of FedCDR (Algorithm 1) and FedSUM's Case 4. An epoch has ceil(N / S)
    rounds; where S does not divide N its last block is smaller.
    """

    last_block: str = parameter(
        "smaller",
        "a block that is not full: smaller; dropped; or wrapped (filled from the epoch's start)",
        choices=("smaller", "dropped", "wrapped"),
    )

    @property
    def rounds_per_epoch(self) -> int:
        """R, the rounds in which every client has its turn."""
        if self.last_block == "dropped":
            return self.num_clients // self.per_round
        return -(self.num_clients // -self.per_round)

    def permutation(self, epoch: int) -> Tensor:
        """Return the order of the clients in one epoch, int64 [N]."""
        random = generator(self.seed, "participation epoch", epoch)
        return torch.randperm(self.num_clients, generator=random)

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the block of round t."""
        epoch, block = divmod(round, self.rounds_per_epoch)
        order = self.permutation(epoch)
        if self.last_block == "wrapped":
            order = torch.cat([order, order[: self.per_round]])
        return order[block * self.per_round : (block + 1) * self.per_round]
