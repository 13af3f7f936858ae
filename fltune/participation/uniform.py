"""Uniform sampling without replacement, rounds independent (FedSUM's Case 1, P1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import check_at_most, parameter
from fltune.participation.base import Participation


@dataclass(eq=False)
class Uniform(Participation):
    """A fixed number of clients, uniform without replacement, in every round.

    Raises:
        ValueError: more clients per round than there are.
    """

    per_round: int = parameter(10, "clients per round", symbol="S", ge=1)

    def check(self, num_clients: int) -> None:
        """Refuse more clients per round than there are."""
        check_at_most("per_round", self.per_round, num_clients)

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return S ids out of N."""
        return torch.randperm(self.num_clients, generator=random)[: self.per_round]
