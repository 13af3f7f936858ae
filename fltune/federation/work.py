"""How much local work a client does in a round: its epochs or steps, and whether it is in time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import Checked, check_one_each, parameter
from fltune.randomness import client_draws
from fltune.registry import Registry

WORK = Registry(
    "local work",
    {
        "nominal": "fltune.federation.work:LocalWork",
        "uniform": "fltune.federation.work:UniformWork",
        "per_client": "fltune.federation.work:WorkPerClient",
        "stragglers": "fltune.federation.stragglers:Stragglers",
    },
    bases=("fltune.federation.work:LocalWork",),
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

    def check(self, nominal: int, num_clients: int, asynchronous: bool = False) -> None:
        """Raise ValueError if this does not fit the nominal amount, the clients or the pattern.

        Args:
            nominal: local epochs E or steps K.
            num_clients: N.
            asynchronous: whether clients arrive when they are done, so that none can be late.
        """
        if asynchronous and self.drops:
            raise ValueError("asynchronous clients are never late: none can be dropped")

    @property
    def drops(self) -> bool:
        """Whether :meth:`in_time` may say no."""
        return False

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the epochs or steps of each client, int64 [C] >= 1, in 0-based round t."""
        return torch.full_like(clients, self.nominal)

    def in_time(self, round: int, clients: Tensor) -> Tensor:
        """Return which of the selected clients contribute to round t, bool [C].

        The others leave the round's cohort as if they had not been selected. Round -1 is a method's
        initial visit by all, which nobody misses.
        """
        return torch.ones_like(clients, dtype=torch.bool)


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

    def check(self, nominal: int, num_clients: int, asynchronous: bool = False) -> None:
        """Refuse a list that does not fit the population."""
        check_one_each("amounts", self.amounts, num_clients)

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the clients' own amounts."""
        return torch.tensor(self.amounts, device=clients.device)[clients]
