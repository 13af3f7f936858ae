"""FedVARP: the latest updates of absent clients as a control variate for the server.

Paper: Jhunjhunwala, Sharma, Nagarkatti, Joshi (2022), algorithm FedVARP.

    send x to i in S;  D_i = x - local_solve(i, x)
    v = mean_S (D_i - Y_i) + (1/N) sum over all clients of Y_j;   Y_i <- D_i for i in S
    x <- x - eta_g v

- d floats down, d up. Memory: the client keeps Y_i and sends its change, the server keeps the sum:
  server 2d, client d (the paper's server keeps all Y_i: (N + 1) d and 0).
- Inactive clients keep Y_i (0 until seen); in an empty round nothing moves.
- Stored is D_i itself. Some texts divide it by eta_l or eta_l K: with a constant eta_l that only
  rescales eta_g.
- Unequal steps: D_i as it is; the objective then tilts toward clients with more steps.
- A compressor works on the change of Y_i; the client's Y_i moves by what the server received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only, weighted_sum
from fltune.federation.local import LocalResult


@dataclass(frozen=True)
class FedVARP(Algorithm):
    """Variance reduction of partial participation.

    Server state: sum [d] of all Y_i. Client state: Y [d].
    """

    weighting: str = uniform_only()

    paper: ClassVar[str] = "Jhunjhunwala et al. 2022, FedVARP"
    compressed: ClassVar[tuple[str, ...]] = ("change",)
    memory: ClassVar[str] = "server 2d, client d"

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return an empty memory."""
        return {"sum": torch.zeros_like(x)}

    def client_state(self, x: Tensor) -> State:
        """Return Y_i = 0."""
        return {"Y": torch.zeros_like(x)}

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send how Y_i changes."""
        return {"change": (x - result.end) - client["Y"]}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return v, with the memory as it was before this round."""
        change, total = message["change"], server["sum"]
        v = weighted_sum(info.weights, change) + total / info.num_clients
        return v, {"sum": total + change.sum(0)}

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Move Y_i by what the server received."""
        return {"Y": client["Y"] + message["change"]}
