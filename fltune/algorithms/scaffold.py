"""SCAFFOLD: control variates against client drift.

Paper: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh (2020), Algorithm 1.

    send x and c to i in S;   z = x;  K times  z <- z - eta_l (grad f_i(z) - c_i + c)
    option I    c_new = grad f_i(x), all samples at the received model: an extra pass over the data
    option II   c_new = mean of the K_i plain local gradients (c_i - c + (x - z) / (K_i eta_l))
    x <- x - eta_g mean_S (x - z_i);   c <- c + (1/N) sum_S (c_new - c_i);   c_i <- c_new

The divisor of c is N, not |S|, so that c = (1/N) sum of all c_i, always.

- 2d floats down, 2d up (with option II the server could recompute one of them from stored c_i).
  Memory: server 2d, client d.
- Inactive clients keep c_i; in an empty round nothing moves.
- Unequal steps: option II takes the mean over the client's own K_i.
- Option II accumulates plain gradients: inferred from x - z they would cancel in float32, and local
  momentum would amplify them.
- A compressor works on both vectors; c_i moves by what the server received, so that c stays the
  mean of c_i.
- Sample weights are not offered: c counts every client alike, and where c = 0 it is the gradient of
  the plain mean that vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import (
    Algorithm,
    RoundInfo,
    State,
    mean_gradient,
    uniform_only,
    weighted_sum,
)
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Local steps corrected by control variates.

    Server state: c [d]. Client state: c [d], its c_i.
    """

    weighting: str = uniform_only()
    option: str = parameter(
        "II",
        "new c_i: I, the full gradient at the received model (an extra pass); "
        "II, the mean of the local gradients",
        choices=("I", "II"),
    )

    paper: ClassVar[str] = "Karimireddy et al. 2020, Algorithm 1"
    down: ClassVar[float] = 2.0
    up: ClassVar[float] = 2.0
    compressed: ClassVar[tuple[str, ...]] = ("update", "control")
    memory: ClassVar[str] = "server 2d, client d"

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say what local momentum does to option II."""
        if self.option == "I" or not sgd.momentum:
            return []
        return [
            f"client.momentum = {sgd.momentum:g}: SCAFFOLD II is defined for plain local SGD; here "
            "c_i is the mean of plain gradients, where (x - z) / (K eta_l) would be amplified"
        ]

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return c = 0."""
        return {"c": torch.zeros_like(x)}

    def client_state(self, x: Tensor) -> State:
        """Return c_i = 0."""
        return {"c": torch.zeros_like(x)}

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return local steps with the correction c - c_i."""
        return LocalProblem(
            start=x,
            correction=server["c"] - client["c"],
            gradient_sum=self.option == "II",
            start_gradient=self.option == "I",
        )

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send x - z_i and c_new - c_i."""
        new = mean_gradient(result) if self.option == "II" else result.start_gradient
        assert new is not None
        return {"update": x - result.end, "control": new - client["c"]}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return the mean update; move c by the sum of the differences over N."""
        c = server["c"] + message["control"].sum(0) / info.num_clients
        return weighted_sum(info.weights, message["update"]), {"c": c}

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Move c_i by what the server received."""
        return {"c": client["c"] + message["control"]}
