"""FedDC: local drift variables, and corrected gradients.

Paper: Gao, Fu, Li, Chen, Xu, Xu (2022), Algorithm 1.

    send x, g to i in S
    z = x;  K_i times  z <- z - eta_l (grad f_i(z) + alpha (z + h_i - x) + c_i)
    h_i <- h_i + z - x

    variant code    c_i = g - g_i                  g_new = g_i - g + (x - z) / (eta_l K_i)
    variant paper   c_i = (g_i - g) / (eta_l K_i)  g_new = z - x

    g <- g + (1/N) sum_{i in S} (g_new - g_i);  g_i <- g_new
    drift_mean all      x <- mean_S z_i + (1/N) sum of all h_i
    drift_mean active   x <- mean_S (z_i + h_i)

- 2d floats down (x, g), 2d up (the model, g_new - g_i). Memory: server 3d (x, g and the running
  mean of h; 2d with ``active``), client 2d (h_i, g_i).
- Inactive clients keep h_i and g_i; in an empty round nothing moves.
- Unequal steps: the client's own K_i. With local momentum, K_i is the effective number of steps
  (:func:`fltune.algorithms.fednova.effective_steps`), because displacements grow with it.
- There is no eta_g: x is the method's own, whatever the server's rate.
- The defaults are the authors' program (``code``, ``all``), which reaches the minimiser of f. The
  paper's form is ``paper`` with ``active``; it diverges under partial participation, and ``active``
  can stop elsewhere. With all clients ``all`` and ``active`` agree. The program clips
  gradients, as ``client.clip_norm`` does; its scaling by sample counts is left out.
- A compressor works on both vectors; g_i and h_i move by what the server received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only, weighted_sum
from fltune.algorithms.fednova import effective_steps
from fltune.algorithms.fedprox import overshoot
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedDC(Algorithm):
    """Decoupled and corrected local drift.

    Server state: g [d], the mean of all g_i; with drift_mean all, h [d], the mean of all h_i.
    Client state: g [d], h [d].
    """

    weighting: str = uniform_only()
    alpha: float = parameter(
        0.1, "weight of the pull toward x - h_i, the client's own anchor", symbol="alpha", gt=0
    )
    variant: str = parameter(
        "code",
        "code, the authors' program: g_i is a mean gradient; paper: g_i is the last displacement",
        choices=("code", "paper"),
    )
    drift_mean: str = parameter(
        "all",
        "clients whose h_i the model adds: all, the authors' program; active, the paper",
        choices=("all", "active"),
    )

    paper: ClassVar[str] = "Gao et al. 2022, Algorithm 1"
    down: ClassVar[float] = 2.0
    up: ClassVar[float] = 2.0
    compressed: ClassVar[tuple[str, ...]] = ("update", "gradient")
    plain_server: ClassVar[bool] = True
    memory: ClassVar[str] = "server 3d (drift_mean active: 2d), client 2d"

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say what is known against the paper's drift mean."""
        found = overshoot(sgd, self.alpha)
        if self.drift_mean == "active":
            text = "drift_mean = active, as in the paper, diverges or stops at a wrong point"
            found.append(f"{text} where clients are sampled; all does not")
        return found

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return g = 0, and h = 0 where it is needed."""
        names = ("g", "h") if self.drift_mean == "all" else ("g",)
        return {name: torch.zeros_like(x) for name in names}

    def client_state(self, x: Tensor) -> State:
        """Return g_i = h_i = 0."""
        return {"g": torch.zeros_like(x), "h": torch.zeros_like(x)}

    def _unit(self, x: Tensor, info: RoundInfo) -> Tensor:
        """Return eta_l K_i, [C, 1]: how far a gradient of 1 moves a client."""
        made = effective_steps(info.steps, info.sgd.momentum).to(x)
        return info.client_lr * made.unsqueeze(1)

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return f_i with the pull toward x - h_i and the correction c_i."""
        correction = server["g"] - client["g"]
        if self.variant == "paper":
            correction = -correction / self._unit(x, info)
        return LocalProblem(start=x, correction=correction, mu=self.alpha, anchor=x - client["h"])

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send the model that the server will average, as a difference to x, and g_new - g_i."""
        moved = x - result.end
        if self.variant == "code":
            change = moved / self._unit(x, info) - server["g"]
        else:
            change = -moved - client["g"]
        if self.drift_mean == "active":
            moved = 2 * moved - client["h"]  # x - (z + h_new), where h_new = h - (x - z)
        return {"update": moved, "gradient": change}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Move g and h by the sum of the differences over N; D leads to the method's x."""
        state = {"g": server["g"] + message["gradient"].sum(0) / info.num_clients}
        step = weighted_sum(info.weights, message["update"])
        if self.drift_mean == "all":
            state["h"] = server["h"] - message["update"].sum(0) / info.num_clients
            step = step - state["h"]
        return step / info.server_lr, state

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Move g_i and h_i by what the server received."""
        h = client["h"] - message["update"]
        if self.drift_mean == "active":
            h = h / 2  # the update is 2 (x - z) - h, and h_new = h - (x - z)
        return {"g": client["g"] + message["gradient"], "h": h}
