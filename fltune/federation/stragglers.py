"""Stragglers: selected clients that manage only part of their local work (FedCDR paper, F.3).

    k = round(fraction |S|) of the selected clients, chosen uniformly, are stragglers
    E_i uniform on {1..E} epochs (or steps); the program of FedProx draws from {1..E-1}
    keep: they contribute after E_i;  drop: they leave the round

The rounding is Python's, half to even: half of five clients are two stragglers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.federation.work import LocalWork
from fltune.parameters import parameter
from fltune.randomness import client_draws


@dataclass(eq=False)
class Stragglers(LocalWork):
    """A share of each round's cohort that is late: dropped, or kept with less work.

    A dropped client is as good as not selected: it sends nothing, costs no traffic and holds the
    round up no longer, and a round that loses all of its clients is empty. The statistics of
    participation (tau_max and the like) still count whom the pattern selected.

    Raises:
        ValueError: ``most`` above the nominal work.
    """

    fraction: float = parameter(0.5, "share of the selected clients", symbol="rho", ge=0, le=1)
    policy: str = parameter(
        "drop",
        "drop: stragglers leave the round, which may empty it; keep: they contribute E_i epochs",
        choices=("drop", "keep"),
    )
    most: int | None = parameter(
        None,
        "most epochs or steps of a straggler, which draws from 1..most; null: the nominal E, "
        "E - 1 is FedProx's program",
        ge=1,
    )

    def check(self, nominal: int, num_clients: int, asynchronous: bool = False) -> None:
        """Refuse stragglers that do more than everybody else."""
        super().check(nominal, num_clients, asynchronous)
        if self.most is not None and self.most > nominal:
            raise ValueError(f"most = {self.most} is above {nominal}, the nominal epochs or steps")

    @property
    def drops(self) -> bool:
        """Whether stragglers leave the round."""
        return self.policy == "drop"

    def count(self, selected: int) -> int:
        """Return how many of so many selected clients are stragglers."""
        return round(self.fraction * selected)

    def late(self, round: int, clients: Tensor) -> Tensor:
        """Return which clients are stragglers in round t, bool [C]."""
        count = self.count(len(clients)) if round >= 0 else 0
        # 53 bits: two clients share a number once in 10^16, and then stand by their order
        rank = client_draws(self.seed, "stragglers", round, clients, 2**53).argsort(stable=True)
        late = torch.zeros_like(clients, dtype=torch.bool)
        late[rank[:count]] = True
        return late

    def part(self, round: int, clients: Tensor) -> Tensor:
        """Return E_i of each client, if it is a straggler."""
        return 1 + client_draws(self.seed, "work", round, clients, self.most or self.nominal)

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return E_i of stragglers, the nominal amount of the others."""
        return torch.where(self.late(round, clients), self.part(round, clients), self.nominal)

    def in_time(self, round: int, clients: Tensor) -> Tensor:
        """Return who is no straggler; everybody if stragglers are kept."""
        return ~self.late(round, clients) if self.drops else super().in_time(round, clients)
