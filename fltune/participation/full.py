"""Full participation: every client in every round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.participation.base import Participation


@dataclass(eq=False)
class Full(Participation):
    """Every client in every round; tau_max = 0."""

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return all ids."""
        return torch.arange(self.num_clients)
