"""FedGATE: local gradient tracking against client drift, without a server variate.

Paper: Haddadpour, Kamani, Mokhtari, Mahdavi (2021), Algorithm 3.

    send x to j in S;  w = x;  tau times  w <- w - eta (grad f_j(w) - delta_j);  u_j = x - w
    u = mean_S u_j;  send u to S
    delta_j <- delta_j + (u_j - u) / (eta tau);   x <- x - gamma u

gamma is the server's learning rate (1). The sum of delta_j over all clients stays 0, whoever takes
part: the divisor of u is |S|, not N as Algorithm 4 prints, and clients count alike (sample weights
would break the sum).

- Floats down: option II (default) sends x and u, 2d; option I sends u alone, d, to clients that
  keep x themselves, which needs all of them in every round. The numbers are the same. Floats up: d.
  Memory: server d, client d.
- Inactive clients keep delta_j; in an empty round nothing moves.
- Unequal steps tau_j: u_j counts as (tau / tau_j) u_j with tau = mean_S tau_j, above and in the
  server's step, or else the sum of delta_j would not stay 0. tau_j is a scalar beside the message.
- |S| = 1: u_j = u and delta_j never moves; the method is sequential FedAvg.
- Full participation and equal steps: SCAFFOLD II with delta_j = c_j - c.
- The run's compressor, if any, works on u_j; the server and delta_j then use Q(u_j). FedCOMGATE
  compresses u_j / eta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only, weighted_sum
from fltune.errors import ConfigError
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


def equalised(update: Tensor, message: State) -> Tensor:
    """Return (tau / tau_j) u_j [C, d]: exactly u_j where all clients made the same steps."""
    steps = message["steps"]
    return (steps.mean() / steps).unsqueeze(1) * update


@dataclass(frozen=True)
class FedGATE(Algorithm):
    """Local steps corrected by -delta_j. Client state: delta [d], a gradient difference."""

    weighting: str = uniform_only()
    option: str = parameter(
        "II",
        "I: clients keep the model and get the mean update (d down; all clients in every round); "
        "II: they get both (2d down)",
        choices=("I", "II"),
    )

    paper: ClassVar[str] = "Haddadpour et al. 2021, Algorithm 3"
    down: ClassVar[float] = 2.0
    memory: ClassVar[str] = "server d, client d"
    fewest_clients: ClassVar[int] = 2

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say what local momentum does to delta."""
        text = (
            f"client.momentum = {sgd.momentum:g}: {type(self).__name__} takes (x - w) / (eta tau) "
            "for a mean gradient, which momentum amplifies; it is defined for plain local SGD"
        )
        return [text] * (sgd.momentum > 0)

    def client_state(self, x: Tensor) -> State:
        """Return delta = 0."""
        return {"delta": torch.zeros_like(x)}

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Correct every gradient by -delta_j.

        Raises:
            ConfigError: option I in a round without some clients.
        """
        if self.option == "I" and len(info.clients) < info.num_clients:
            raise ConfigError(
                f"algorithm.option: found 'I', but {len(info.clients)} of {info.num_clients} "
                f"clients take part in round {info.round}; clients that keep the model must never "
                "miss a round, use II or participation: full"
            )
        return LocalProblem(start=x, correction=-client["delta"])

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return u_j and the steps made."""
        steps = result.steps.clamp(min=1).to(x.dtype)
        return {"update": x - result.end, "steps": steps}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return D = u."""
        return weighted_sum(info.weights, equalised(message["update"], message)), server

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Return the new delta."""
        return {"delta": self.tracked(client["delta"], message["update"], message, d, info)}

    def tracked(
        self, delta: Tensor, own: Tensor, message: State, d: Tensor | None, info: RoundInfo
    ) -> Tensor:
        """Return delta_j + (own_j - u) / (eta tau), where own_j and u are displacements."""
        assert d is not None
        tau = message["steps"].mean()
        return delta + (equalised(own, message) - d) / (info.client_lr * tau)

    def bits_down(self, dimension: int, compressor: Compressor) -> float:
        """Option I spares the model."""
        return BITS_PER_FLOAT * (self.down - (self.option == "I")) * dimension
