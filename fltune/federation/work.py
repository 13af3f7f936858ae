"""How much local work a client does in a round: its epochs or steps."""

from __future__ import annotations

import torch
from torch import Tensor


class LocalWork:
    """The nominal amount for every client; subclass it where clients or rounds differ.

    Args:
        nominal: local epochs E or steps K, as ``client.epochs`` or ``client.steps`` says.
    """

    def __init__(self, nominal: int) -> None:
        self.nominal = nominal

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the epochs or steps of each client, int64 [C] >= 1, in 0-based round t."""
        return torch.full_like(clients, self.nominal)


class WorkPerClient(LocalWork):
    """A fixed amount for each client.

    Args:
        amounts: epochs or steps of each of the N clients.
    """

    def __init__(self, amounts: list[int]) -> None:
        super().__init__(max(amounts))
        self.amounts = torch.tensor(amounts)

    def amount(self, round: int, clients: Tensor) -> Tensor:
        """Return the clients' own amounts."""
        return self.amounts.to(clients.device)[clients]
