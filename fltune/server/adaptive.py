"""FedAdagrad, FedAdam and FedYogi: adaptive server optimizers.

Paper: Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan (2021), Algorithm 2. With the
ascent direction D+ = -D:

    m <- b1 m + (1 - b1) D+
    Adagrad: v <- v + D+^2
    Adam:    v <- b2 v + (1 - b2) D+^2
    Yogi:    v <- v - (1 - b2) D+^2 sign(v - D+^2)
    x <- x + eta m / (sqrt(v) + tau)

Three conventions are in use: the paper's (v starts at tau^2, no bias correction; the default),
library optimizers from zero (``v0: 0``), and library Adam (``v0: 0, bias_correction: true``).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import parameter
from fltune.server.base import ServerOptimizer, State


@dataclass(eq=False)
class Adaptive(ServerOptimizer):
    """The common step; subclasses say how the second moment v moves.

    State: m and v [d], and k, the server steps made so far (a scalar).

    Raises:
        ValueError: bias correction of a second moment that does not start at zero.
    """

    lr: float = parameter(0.1, "server learning rate", symbol="eta", gt=0)
    beta1: float = parameter(0.9, "momentum", symbol="beta_1", ge=0, lt=1)
    beta2: float = parameter(0.99, "decay of the second moment", symbol="beta_2", ge=0, lt=1)
    tau: float = parameter(1e-3, "adaptivity; large is SGD with momentum", symbol="tau", gt=0)
    v0: float | None = parameter(None, "start of v; null: tau^2", symbol="v_{-1}", ge=0)
    bias_correction: bool = parameter(False, "divide m and v by 1 - beta^k; needs v0 = 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_correction and self.v0 != 0:
            raise ValueError("bias_correction needs v0 = 0: it corrects a moment that starts at 0")

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the new v from the old one and D+^2."""

    def start(self, x: Tensor) -> State:
        """Return m = 0, v = v0 and k = 0."""
        v0 = self.tau**2 if self.v0 is None else self.v0
        return {"m": torch.zeros_like(x), "v": torch.full_like(x, v0), "k": x.new_zeros(())}

    def step(self, x: Tensor, d: Tensor, state: State, round: int) -> tuple[Tensor, State]:
        """Return the moved model and the new moments."""
        m = self.beta1 * state["m"] - (1.0 - self.beta1) * d
        v = self.second_moment(state["v"], d * d)
        k = state["k"] + 1
        direction, scale = m, v
        if self.bias_correction:
            direction = m / (1.0 - self.beta1**k)
            scale = v / (1.0 - self.beta2**k)
        x = x + self.lr * direction / (scale.sqrt() + self.tau)
        return x, {"m": m, "v": v, "k": k}


@dataclass(eq=False)
class FedAdagrad(Adaptive):
    """Sum of squares (Reddi et al. 2021, Algorithm 2); no momentum by default."""

    beta1: float = parameter(0.0, "momentum", symbol="beta_1", ge=0, lt=1)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return v + D+^2."""
        return v + square


@dataclass(eq=False)
class FedAdam(Adaptive):
    """Moving average of squares (Reddi et al. 2021, Algorithm 2)."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return b2 v + (1 - b2) D+^2."""
        return self.beta2 * v + (1.0 - self.beta2) * square


@dataclass(eq=False)
class FedYogi(Adaptive):
    """Additive, sign-controlled second moment (Reddi et al. 2021, Algorithm 2)."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return v - (1 - b2) D+^2 sign(v - D+^2)."""
        return v - (1.0 - self.beta2) * square * torch.sign(v - square)
