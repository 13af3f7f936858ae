"""FedNova: normalised averaging, for clients that make unequal numbers of local steps.

Paper: Wang, Liu, Liang, Joshi, Poor (2020), equations (7) to (10).

    send x to i in S;  y_i = local_solve(i, x, eta_l, K_i)
    x <- x - eta_g tau_eff sum_{i in S} p_i (x - y_i) / a_i,   tau_eff = sum_{i in S} p_i a_i

a_i is how far K_i unit gradients move a model, in units of eta_l (:func:`effective_steps`):

    plain SGD       a_i = K_i
    momentum rho    a_i = sum_{k=1}^{K_i} (1 - rho^k) / (1 - rho)
    proximal mu     a_i = (1 - (1 - eta_l mu)^{K_i}) / (eta_l mu);  tau_eff = sum p_i K_i, as in the
                    authors' program

- d floats down, d + 1 up (K_i). Memory: server d, client 0. In an empty round nothing moves.
- Equal K_i: FedAvg. The bias toward clients with many steps is removed, client drift is not: the
  fixed point solves sum_i p_i (x - y_i(x)) / a_i = 0.
- The authors' server momentum (gmf) is the server optimizer ``fedavgm``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, weighted_sum
from fltune.algorithms.fedprox import overshoot
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


def effective_steps(steps: Tensor, momentum: float, pull: float = 0.0) -> Tensor:
    """Return a_i, [C] float64 on the host: how far K_i unit gradients move, in units of eta_l.

    Args:
        steps: int64 [C], K_i.
        momentum: heavy-ball momentum rho, not damped, reset every round.
        pull: eta_l mu, the share of the way back to x that a local step makes.
    """
    velocity = distance = 0.0
    after = [0.0]
    for _ in range(int(steps.max())):
        velocity = momentum * velocity + 1.0 - pull * distance
        distance += velocity
        after.append(distance)
    return torch.tensor(after, dtype=torch.float64)[steps.cpu()]


@dataclass(frozen=True)
class FedNova(Algorithm):
    """Average the clients' directions per step, not their displacements."""

    mu: float = parameter(0.0, "proximal weight; 0 is none", symbol="mu", ge=0)

    paper: ClassVar[str] = "Wang et al. 2020, equations (7) to (10)"

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say where the local steps cannot follow the pull."""
        return overshoot(sgd, self.mu)

    def bits_up(self, dimension: int, compressor: Compressor) -> float:
        """Bits of the update and of K_i."""
        return super().bits_up(dimension, compressor) + BITS_PER_FLOAT

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return f_i, with the pull toward x if there is one."""
        return LocalProblem(start=x, mu=self.mu, anchor=x if self.mu else None)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send (x - y_i) / a_i and K_i."""
        made = effective_steps(result.steps, info.sgd.momentum, info.client_lr * self.mu).to(x)
        return {"update": (x - result.end) / made.unsqueeze(1), "steps": result.steps}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return tau_eff times the mean direction per step."""
        made = message["steps"].to(x)
        if self.mu == 0:
            made = effective_steps(message["steps"], info.sgd.momentum).to(x)
        mean = weighted_sum(info.weights, message["update"])
        return (info.weights @ made) * mean, server
