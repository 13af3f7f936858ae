"""FedCDR and FedDR: Douglas-Rachford splitting over clients.

Papers: FedCDR (anonymous submission), Algorithm 1, equations (14), (15); FedDR (Tran-Dinh, Pham,
Phan, Nguyen 2021), Algorithm 1.

    send x
    client i in S:  y_i <- y_i + alpha (x - x_i)                  # of the client's last visit
                    x_i <- argmin_z f_i(z) + |z - y_i|^2 / (2 eta)    exactly, or by local SGD
                    g_i  = change of xhat_i = 2 x_i - y_i;  send g_i
    server:         x <- x + (1/N) sum_{i in S} g_i               # N, all clients: x = mean xhat_i

The two are one recursion: FedCDR reshuffles the clients (a permutation of all, cut into blocks: the
participation pattern's business), FedDR samples them, and may have a regulariser r, whose
x = prox_{eta r}(mean xhat_i).

- d floats down, d up. Memory: server d (2d with a regulariser), client 2d (y_i, x_i).
- Inactive clients keep y_i and x_i; in an empty round nothing moves.
- Unequal steps (stragglers): a less exact prox, kept as it is.
- There is no eta_g: x is the method's own, whatever the server's rate. Weights are uniform.
- Start: everybody at x^0 (``consensus``, default). ``prox_mean`` lets all clients solve once and
  puts x at mean xhat_i. ``prox_server_x0`` is FedCDR's appendix A and FedDR's paper: x stays x^0
  although the clients have moved, and x - mean xhat_i is then constant for ever: a wrong limit.
- Inner solver's start: the received x (``server``, default), the client's last x_i (``local``,
  FedDR's program), or y_i (``center``), whose limit is wrong unless there are many steps.
- y_i + alpha (x - x_i), not x_i + alpha (x - x_i) as FedCDR's appendix A misprints.
- Theory needs eta below :func:`fltune.theory.fedcdr_max_eta`, 1/(2L) at alpha = 1; the paper's
  grid, 10 to 1e4, is far beyond it for most losses and leaves local training nearly free. L is not
  known here, so this is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only
from fltune.algorithms.fedprox import overshoot
from fltune.federation.compression import Compressor
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


def reflected(client: State) -> Tensor:
    """Return xhat_i = 2 x_i - y_i."""
    return 2 * client["x"] - client["y"]


@dataclass(frozen=True)
class FedCDR(Algorithm):
    """Douglas-Rachford with reshuffled clients. Client state: y [d], x [d]."""

    weighting: str = uniform_only()
    eta: float = parameter(10.0, "prox coefficient; small holds clients at y_i", symbol="eta", gt=0)
    alpha: float = parameter(1.0, "relaxation", symbol="alpha", gt=0, lt=2)
    prox: str = parameter(
        "inexact",
        "inexact: local SGD; exact: the argmin, where it has a closed form (least squares)",
        choices=("inexact", "exact"),
    )
    warm_start: str = parameter(
        "server",
        "where local SGD starts: the received x, the client's last x_i (local), or y_i (center)",
        choices=("server", "local", "center"),
    )
    init: str = parameter(
        "consensus",
        "consensus: all at x^0; prox_mean: a first visit by all; prox_server_x0: a wrong limit",
        choices=("consensus", "prox_mean", "prox_server_x0"),
    )

    paper: ClassVar[str] = "FedCDR (anonymous submission), Algorithm 1"
    plain_server: ClassVar[bool] = True
    memory: ClassVar[str] = "server d, client 2d"

    @property
    def solves_exactly(self) -> bool:
        """Whether ``prox`` is exact."""
        return self.prox == "exact"

    def check(self, compressor: Compressor) -> None:
        """Refuse compression: what is lost of a difference is never sent again."""
        if type(compressor) is not Compressor:
            raise ValueError("x = mean xhat_i needs exact differences; use compression: identity")

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say which choices are biased, and where local SGD cannot follow the pull."""
        found = []
        if self.prox == "inexact":
            found += overshoot(sgd, 1 / self.eta)
            if self.warm_start == "center":
                found.append("warm_start = center has a biased limit unless steps are many")
        if self.init == "prox_server_x0":
            found.append(
                "init = prox_server_x0 has a wrong limit: x stays off mean xhat_i for ever"
            )
        return found

    def client_state(self, x: Tensor) -> State:
        """Return y_i = x_i = x^0."""
        return {"y": x, "x": x}

    def pulled(self, start: Tensor, anchor: Tensor) -> LocalProblem:
        """Return the problem argmin_z f_i(z) + |z - anchor|^2 / (2 eta)."""
        return LocalProblem(start, mu=1 / self.eta, anchor=anchor, exact=self.solves_exactly)

    def initial_problem(self, x: Tensor) -> LocalProblem | None:
        """Return the prox of x^0, unless clients start at consensus."""
        return None if self.init == "consensus" else self.pulled(x, x)

    def initialise(
        self, x: Tensor, result: LocalResult, info: RoundInfo
    ) -> tuple[Tensor, State, State]:
        """Return mean xhat_i (or x^0), and y_i = x^0, x_i = prox(x^0)."""
        clients = {"y": x.expand_as(result.end), "x": result.end}
        return reflected(clients).mean(0) if self.init == "prox_mean" else x, {}, clients

    def center(self, x: Tensor, client: State) -> Tensor:
        """Return the new y_i."""
        return client["y"] + self.alpha * (x - client["x"])

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return the prox of y_i."""
        y = self.center(x, client)
        starts = {"server": x, "local": client["x"], "center": y}
        return self.pulled(starts[self.warm_start], y)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send -g_i = xhat_i - xhat_new; keep y_i and x_i."""
        new = {"y": self.center(x, client), "x": result.end}
        return {"update": reflected(client) - reflected(new)}, new

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return the D that moves x by the sum of g_i over N."""
        return message["update"].sum(0) / (info.num_clients * info.server_lr), server


@dataclass(frozen=True)
class FedDR(FedCDR):
    """Douglas-Rachford with sampled clients, and a regulariser r(x) = l1 |x|_1 + l2/2 |x|^2.

    Server state with a regulariser: mean [d], the mean of all xhat_i. Its prox is what clients
    receive, in round 0 too: the model itself stays x^0 until the first of them has answered.
    """

    alpha: float = parameter(1.9, "relaxation", symbol="alpha", gt=0, lt=2)
    l1: float = parameter(0.0, "weight of |x|_1 in the regulariser; 0 is none", ge=0)
    l2: float = parameter(0.0, "weight of |x|^2 / 2 in the regulariser; 0 is none", ge=0)

    paper: ClassVar[str] = "Tran-Dinh et al. 2021, Algorithm 1"
    memory: ClassVar[str] = "server d (2d with a regulariser), client 2d"

    @property
    def regularised(self) -> bool:
        """Whether there is an r."""
        return self.l1 > 0 or self.l2 > 0

    def shrunk(self, mean: Tensor) -> Tensor:
        """Return prox_{eta r}(mean)."""
        size = (mean.abs() - self.eta * self.l1).clamp(min=0)
        return torch.sign(mean) * size / (1 + self.eta * self.l2)

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return mean = x^0, if there is an r."""
        return {"mean": x} if self.regularised else {}

    def initialise(
        self, x: Tensor, result: LocalResult, info: RoundInfo
    ) -> tuple[Tensor, State, State]:
        """Return the prox of FedCDR's start."""
        mean, server, clients = super().initialise(x, result, info)
        return (
            (self.shrunk(mean), {"mean": mean}, clients)
            if self.regularised
            else (mean, server, clients)
        )

    def sent(self, x: Tensor, server: State) -> Tensor:
        """Return what the server sends: the mean's prox, or x where there is no r."""
        return self.shrunk(server["mean"]) if self.regularised else x

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return FedCDR's problem at what the server sends."""
        return super().local_problem(self.sent(x, server), server, client, info)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send FedCDR's message, made with what the server sent."""
        return super().uplink(self.sent(x, server), server, client, result, info)

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Move the mean as FedCDR moves x; return the D that leads to its prox."""
        d, server = super().aggregate(x, server, message, info)
        if not self.regularised:
            return d, server
        mean = server["mean"] - info.server_lr * d
        return (x - self.shrunk(mean)) / info.server_lr, {"mean": mean}
