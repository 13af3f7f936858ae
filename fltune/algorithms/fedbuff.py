"""FedBuff: buffered asynchronous aggregation.

Paper: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba (2022), Algorithm 1.

    client i: fetch x_v;  y_i = local_solve(i, x_v, eta_l, K_i);  send D_i = x_v - y_i
    server, when Z updates are in:  x <- x - (eta_g / Z) sum of s(t - v) D_i
    s(tau) = (1 + tau)^(-1/2)

A round is one server step: its cohort is the Z arrivals that fill the buffer (Z clients per round),
its ``delays`` are their staleness in server steps; ``participation: asynchronous`` simulates both.
A client may arrive twice in one buffer and then draws its batches anew.

The paper takes an update however old it is. Here one that is older than the ``window`` - 1 past
models that the simulation keeps is discarded, which leaves out slow clients more often than fast
ones; what is discarded is counted, and ``participation: asynchronous`` warns where it is much.

- d floats down, d up, per arrival. Memory: server window d, 20 d by default, client 0 (a real
  server keeps no past models: the clients hold what they fetched).
- The sum is divided by Z, not by the sum of s: stale buffers make shorter steps.
- In an empty round nothing moves. Unequal steps: y_i as it is.
- Z = N and fresh models: FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import RoundInfo, State
from fltune.algorithms.stale import Stale
from fltune.federation.local import LocalResult
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedBuff(Stale):
    """Average the displacements in the buffer, old ones scaled down.

    An update from a model older than ``window`` - 1 rounds is discarded.
    """

    window: int = parameter(
        20,
        "models that a client may start from, the current one included; older updates are "
        "discarded, and each takes the server's memory of a model",
        symbol="max_delay",
        ge=1,
    )
    staleness_exponent: float = parameter(
        0.5, "s(tau) = (1 + tau)^-exponent; 0 counts stale updates in full", symbol="s", ge=0
    )

    paper: ClassVar[str] = "Nguyen et al. 2022, Algorithm 1"
    memory: ClassVar[str] = "server window d (20 d by default), client 0"

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send x_v - y_i."""
        return {"update": self.starts(x, server, info) - result.end}, client

    def client_weights(self, x: Tensor, info: RoundInfo) -> Tensor:
        """Return p_i s(tau_i), p_i = 1/Z unless weighted by samples."""
        return info.weights * (1 + info.delays).to(x) ** -self.staleness_exponent
