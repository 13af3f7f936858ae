"""MIFA: the server steps along the latest update of every client, seen this round or not.

Paper: Gu, Huang, Zhang, Huang (2021), Algorithm 1.

    send x to i in S;  y_i = local_solve(i, x);   G_i <- (x - y_i) / eta_l
    x <- x - eta_g (eta_l / N) sum over all clients of G_i        # with this round's eta_l

- d floats down, d up. Memory: the client keeps G_i and sends its change, the server keeps the sum:
  server 2d, client d (the paper's server keeps all G_i: (N + 1) d and 0).
- Inactive clients keep G_i and count with it. In an empty round x still moves along the memory.
- Start: the paper lets the model wait until every client has been seen once; ``wait_for_all`` does
  so, and all first G_i are then taken at x^0. The default does not wait: G_i = 0 until seen.
- Unequal steps: G_i as it is; the objective then tilts toward clients with more steps. (Storing
  G_i / K and stepping K times as far is the same method.)
- G_i is the displacement over eta_l, not a sum of gradients as they come, so that MIFA with full
  participation is FedAvg for every local optimizer.
- A compressor works on the change of G_i; the client's G_i moves by what the server received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only
from fltune.federation.local import LocalResult
from fltune.parameters import parameter


@dataclass(frozen=True)
class MIFA(Algorithm):
    """Memory-augmented impatient federated averaging.

    Server state: sum [d] of all G_i; with ``wait_for_all`` also seen, bool [N].
    Client state: G [d].
    """

    weighting: str = uniform_only()
    wait_for_all: bool = parameter(
        False, "hold the model until every client has taken part once, as the paper does"
    )

    paper: ClassVar[str] = "Gu et al. 2021, Algorithm 1"
    acts_on_empty_rounds: ClassVar[bool] = True
    compressed: ClassVar[tuple[str, ...]] = ("change",)
    memory: ClassVar[str] = "server 2d, client d"

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return an empty memory."""
        state = {"sum": torch.zeros_like(x)}
        if self.wait_for_all:
            state["seen"] = torch.zeros(num_clients, dtype=torch.bool, device=x.device)
        return state

    def client_state(self, x: Tensor) -> State:
        """Return G_i = 0."""
        return {"G": torch.zeros_like(x)}

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send how G_i changes."""
        return {"change": (x - result.end) / info.client_lr - client["G"]}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor | None, State]:
        """Return D = (eta_l / N) sum of all G_i; None while waiting."""
        total = server["sum"] + message["change"].sum(0) if message else server["sum"]
        state = {"sum": total}
        if self.wait_for_all:
            state["seen"] = server["seen"].index_fill(0, info.clients, True)
            if not state["seen"].all():
                return None, state
        return info.client_lr / info.num_clients * total, state

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Move G_i by what the server received."""
        return {"G": client["G"] + message["change"]}
