"""FedSUM-B, FedSUM and FedSUM-CR: sums of the clients' latest gradients, for any participation.

Paper: the FedSUM family (anonymous submission), Algorithms 1 (FedSUM-B), 2 (FedSUM), 3 (FedSUM-CR).
The server keeps y, the sum of the clients' latest mean gradients h_i, and moves along it:

    q_i = mean plain gradient of client i's K_i local steps;  delta_i = q_i - h_i;  h_i <- q_i
    y <- y + sum_{i in S} delta_i;   x <- x - eta_g (eta_l K / N) y

    FedSUM-B    all K gradients are taken at the received x
    FedSUM      z = x;  K times  z <- z - (eta_l / N)(grad f_i(z) + c_i),   c_i = y - h_i
    FedSUM-CR   as FedSUM, with c_i = N / (eta_g eta_l K) (z_i - x) / (t - a_i) - h_i

where z_i is the model that the client received last (x^0 at first), in round a_i (-1 at first). The
local rate is eta_l / N because c_i has the scale of a sum over clients.

=========  ==========  ========  ======  =====
method     server      client    down    up
=========  ==========  ========  ======  =====
FedSUM-B   2d          d         d       d
FedSUM     2d          d         2d      d
FedSUM-CR  2d          2d + 1    d       d
=========  ==========  ========  ======  =====

- Inactive clients keep h_i (z_i, a_i). In an empty round x still moves along y.
- Unequal steps: q_i is a mean over the client's own K_i; the server's factor K stays nominal. In
  epochs mode, which the paper does not have, nominal K is the mean of E ceil(n_i / B) over all
  clients: a constant, so it scales eta_g and no fixed point depends on it.
- q_i is accumulated as gradients come. The paper infers it, (x - z) N / (eta_l K) - c_i: equal for
  plain SGD, but it cancels in float32 and local momentum would amplify it.
- A compressor works on delta_i; h_i then moves by what the server received, so that y = sum h_i.
- eta_l is this round's everywhere. In FedSUM-CR a decaying eta_l then makes c_i too large, by up to
  eta_l(a_i) / eta_l(t): literal by default, mended with ``exact_rate``. The divisor t + 1 for a
  client never seen, although only t directions are summed, is literal too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, mean_gradient, uniform_only
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedSUMB(Algorithm):
    """K mini-batch gradients at the received model. With full participation: gradient descent.

    Server state: y [d]. Client state: h [d].
    """

    weighting: str = uniform_only()

    paper: ClassVar[str] = "FedSUM family (anonymous submission), Algorithm 1"
    acts_on_empty_rounds: ClassVar[bool] = True
    compressed: ClassVar[tuple[str, ...]] = ("delta",)
    memory: ClassVar[str] = "server 2d, client d"

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say that local momentum has nothing to act on."""
        if not sgd.momentum:
            return []
        return ["client.momentum has no effect: FedSUM-B makes no local step"]

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return y = 0."""
        return {"y": torch.zeros_like(x)}

    def client_state(self, x: Tensor) -> State:
        """Return h = 0."""
        return {"h": torch.zeros_like(x)}

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return K gradients at x."""
        return LocalProblem(start=x, frozen=True, gradient_sum=True)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send delta_i = q_i - h_i."""
        return {"delta": mean_gradient(result) - client["h"]}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Add the differences to y; D = (eta_l K / N) y."""
        y = server["y"] + message["delta"].sum(0) if message else server["y"]
        return info.client_lr * info.nominal_steps / info.num_clients * y, {"y": y}

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Move h_i by what the server received."""
        return {**client, "h": client["h"] + message["delta"]}


@dataclass(frozen=True)
class FedSUM(FedSUMB):
    """FedSUM-B with corrected local steps; y travels down with x. Same state."""

    paper: ClassVar[str] = "FedSUM family (anonymous submission), Algorithm 2"
    down: ClassVar[float] = 2.0

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say what local momentum does and does not change."""
        if not sgd.momentum:
            return []
        return [
            f"client.momentum = {sgd.momentum:g} lengthens the local steps only: FedSUM's h_i are "
            "means of plain gradients and its server step does not grow with it; the paper has none"
        ]

    def direction(self, x: Tensor, server: State, client: State, info: RoundInfo) -> Tensor:
        """Return the server's direction as the client knows it, [d] or [C, d]."""
        return server["y"]

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return local steps with rate eta_l / N and correction direction - h_i."""
        return LocalProblem(
            start=x,
            correction=self.direction(x, server, client, info) - client["h"],
            lr_scale=1 / info.num_clients,
            gradient_sum=True,
        )


@dataclass(frozen=True)
class FedSUMCR(FedSUM):
    """FedSUM with x alone sent down: clients infer y from how far the model has moved.

    Under full participation, and in round 0, it is FedSUM. The inference needs x to move along y
    alone: any other server optimizer than plain averaging would break it.

    Client state: h [d], z [d], a (a round).
    """

    exact_rate: bool = parameter(
        False,
        "divide by the sum of the rates eta_l of rounds a_i..t-1 (round -1 counted as round 0) "
        "instead of by eta_l (t - a_i); the same where eta_l is constant",
    )

    paper: ClassVar[str] = "FedSUM family (anonymous submission), Algorithm 3"
    down: ClassVar[float] = 1.0
    plain_server: ClassVar[bool] = True
    memory: ClassVar[str] = "server 2d, client 2d + 1"

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Add what is known against FedSUM-CR."""
        found = super().warnings(sgd)
        if sgd.schedule is not None and not self.exact_rate:
            text = (
                "eta_l has a schedule: c_i is off by up to eta_l(a_i) / eta_l(t), as in the paper"
            )
            found.append(f"{text}; algorithm.exact_rate = true mends it")
        text = "FedSUM-CR did not converge on a large pretrained model (BERT on SST-2, H.7)"
        return [*found, f"{text}; take fedsum for such"]

    def client_state(self, x: Tensor) -> State:
        """Return h = 0, z = x^0, a = -1."""
        return {"h": torch.zeros_like(x), "z": x, "a": torch.tensor(-1, device=x.device)}

    def direction(self, x: Tensor, server: State, client: State, info: RoundInfo) -> Tensor:
        """Return the mean of y since the client's last visit, from the model's displacement."""
        gaps = info.round - client["a"]  # >= 1
        if self.exact_rate:
            rates = (info.sgd.rate(max(p, 0), info.rounds) for p in range(info.round - 1, -2, -1))
            duration = x.new_tensor([0.0, *accumulate(rates)])[gaps]
        else:
            duration = info.client_lr * gaps.to(x.dtype)
        scale = info.num_clients / (info.server_lr * info.nominal_steps * duration)
        return scale.unsqueeze(1) * (client["z"] - x)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send delta_i; remember the model received, and when."""
        message, client = super().uplink(x, server, client, result, info)
        now = torch.full_like(client["a"], info.round)
        return message, {**client, "z": x.expand_as(client["z"]), "a": now}
