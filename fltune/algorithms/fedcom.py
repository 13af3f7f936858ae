"""FedCOM: local SGD with compressed gradient sums and two learning rates.

Paper: Haddadpour, Kamani, Mokhtari, Mahdavi (2021), Algorithm 1.

    send x to i in S;  y_i = local_solve(i, x, eta)
    u_i = (x - y_i) / eta;  send Q(u_i)            # u_i is the sum of the local gradients
    x <- x - eta gamma sum_{i in S} p_i Q(u_i)

Q is the run's compressor, gamma the server's learning rate (1; the theory asks for gamma >= |S|).

- d floats down, one compressed message of d numbers up. Memory: server d, client 0.
- In an empty round nothing moves. The paper's proofs are for full participation.
- Unequal steps are used as they are: the objective tilts toward clients with more steps.
- Q = identity is FedAvg with server rate gamma. With gamma = 1 and Q(c v) = c Q(v) (``qsgd``,
  ``topk``; not ``grid``) it is FedPAQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, weighted_sum
from fltune.federation.local import LocalResult


@dataclass(frozen=True)
class FedCOM(Algorithm):
    """Average compressed gradient sums. No state."""

    paper: ClassVar[str] = "Haddadpour et al. 2021, Algorithm 1"

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return u_i = (x - y_i) / eta."""
        return {"update": (x - result.end) / info.client_lr}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return D = eta times the mean of Q(u_i)."""
        return info.client_lr * weighted_sum(info.weights, message["update"]), server
