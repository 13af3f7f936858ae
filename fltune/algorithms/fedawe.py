"""FedAWE: make up for missed rounds by stretching the update with the time of absence.

Paper: Xiang, Ioannidis, Yeh, Joe-Wong, Su (2024), Algorithm 1.

    client i in S:   y_i = local_solve(i, x_i)                   # starts at its OWN model x_i
                     m_i = x_i - eta_g (t - last_i) (x_i - y_i);   send m_i
    server:          x <- mean_S m_i;   send x to S, after the step
    client i in S:   x_i <- x;   last_i <- t

with x_i = x^0 and last_i = -1 at first.

- d floats down, d up. Memory: server d, client d + 1.
- Inactive clients keep their old x_i; in an empty round nothing moves.
- The method is the whole server step; eta_g reaches the clients. D = (x - mean_S m_i) / eta_g, so
  that plain averaging sets x to the mean; other server optimizers would break it.
- Unequal steps: y_i as it is. Participation bias is removed on average, client drift is not.
- ``clip_norm``: the authors' program clips the mean of (t - last_i)(x_i - y_i) over S to norm 0.5;
  the paper does not, nor does the default here. The server then needs x_i as well: 2d up.
- A compressor works on m_i (a model: an absolute grid suits it badly).
- Evaluated is the server's x; the program also looks at the mean of all x_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, weighted_sum
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.local import LocalProblem, LocalResult
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedAWE(Algorithm):
    """Echo the update of an absence, gossip through stale models.

    Client state: x [d], its model; last, the round of its last visit.
    """

    clip_norm: float | None = parameter(
        None, "largest norm of the mean stretched update; null: no clipping", gt=0
    )

    paper: ClassVar[str] = "Xiang et al. 2024, Algorithm 1"
    compressed: ClassVar[tuple[str, ...]] = ("model",)
    plain_server: ClassVar[bool] = True
    memory: ClassVar[str] = "server d, client d + 1"

    def client_state(self, x: Tensor) -> State:
        """Return x_i = x^0, last_i = -1."""
        return {"x": x, "last": torch.tensor(-1, device=x.device)}

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return plain local steps from the client's own model."""
        return LocalProblem(start=client["x"])

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send m_i (and x_i, where the update is to be clipped)."""
        start = client["x"]
        absent = (info.round - client["last"]).unsqueeze(1)
        # int64 times the vectors first: times a Python float it would be rounded to float32
        stretched = absent * (start - result.end)
        message = {"model": start - info.server_lr * stretched}
        if self.clip_norm is not None:
            message["start"] = start
        return message, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return the D that takes x to the mean of m_i."""
        mean = weighted_sum(info.weights, message["model"])
        if self.clip_norm is not None:
            start = weighted_sum(info.weights, message["start"])
            step = start - mean
            longest = self.clip_norm * info.server_lr
            mean = start - step * (longest / step.norm().clamp(min=longest))
        return (x - mean) / info.server_lr, server

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Take the new model; note the round."""
        now = torch.full_like(client["last"], info.round)
        return {"x": x.expand_as(client["x"]), "last": now}

    def bits_up(self, dimension: int, compressor: Compressor) -> float:
        """Bits sent by each active client: x_i too where updates are clipped."""
        extra = 0 if self.clip_norm is None else BITS_PER_FLOAT * dimension
        return super().bits_up(dimension, compressor) + extra
