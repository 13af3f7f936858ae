"""How much local work a client does in a round: its epochs or steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import Checked, parameter
from fltune.randomness import client_draws
from fltune.registry import Registry

WORK = Registry(
    "local work",
    {
        "nominal": "fltune.federation.work:LocalWork",
        "uniform": "fltune.federation.work:UniformWork",
        "per_client": "fltune.federation.work:WorkPerClient",
    },
)


@dataclass(eq=False)
class LocalWork(Checked):
    """The nominal amount for every client; subclass it where clients or rounds differ.

    Attributes:
        nominal: local epochs E or steps K, as ``client.epochs`` or ``client.steps`` says.
    """

    def bind(self, nominal: int, seed: int) -> LocalWork:
        """Set the nominal amount and the run's seed. Returns self."""
        self.nominal = nominal
        self.seed = seed
        return self

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the epochs or steps of each client, int64 [C] >= 1, in 0-based round t."""
        return torch.full_like(clients, self.nominal)


@dataclass(eq=False)
class UniformWork(LocalWork):
    """Uniform on low..high, anew for every client and round (Sun et al. 2024, H.1: 1..6)."""

    low: int = parameter(1, "fewest epochs or steps", ge=1)
    high: int = parameter(6, "most epochs or steps", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return uniform amounts."""
        span = self.high - self.low + 1
        return self.low + client_draws(self.seed, "work", round, clients, span)


@dataclass(eq=False)
class WorkPerClient(LocalWork):
    """A fixed amount for each client."""

    amounts: list[int] = parameter(doc="epochs or steps of each of the N clients", ge=1)

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the clients' own amounts."""
        return torch.tensor(self.amounts, device=clients.device)[clients]
