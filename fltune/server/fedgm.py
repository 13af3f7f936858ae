"""FedGM: general server momentum, with FedAvg, FedAvgM and FedNAG as its presets.

Paper: Sun, Wu, Huang, Zhang, "On the Role of Server Momentum in Federated Learning" (AAAI 2024),
Algorithm 1; the quasi-hyperbolic step is Ma and Yarats (2019).

    d <- (1 - beta) D + beta d
    h  = (1 - nu) D + nu d            # the new d
    x <- x - eta h

nu = 0 or beta = 0 is FedAvg with server rate eta; nu = 1 is FedAvgM; nu = beta is FedNAG.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import parameter
from fltune.server.base import ServerOptimizer, State


@dataclass(eq=False)
class QuasiHyperbolic(ServerOptimizer):
    """The step above for coefficients that a subclass gives, round by round.

    State: the momentum buffer d [d], zero at first and carried over every change of coefficients.
    """

    @abstractmethod
    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (eta, beta, nu) of round t."""

    def learning_rate(self, round: int) -> float:
        """Return eta of round t."""
        return self.coefficients(round)[0]

    def start(self, x: Tensor) -> State:
        """Return d = 0."""
        return {"d": torch.zeros_like(x)}

    def step(self, x: Tensor, d: Tensor, state: State, round: int) -> tuple[Tensor, State]:
        """Return x - eta h and the new d."""
        eta, beta, nu = self.coefficients(round)
        # lerp(a, b, w) = (1 - w) a + w b, exact at w = 0, at w = 1 and where a = b: FedAvg, FedAvgM
        # and beta = 0 come out to the last bit
        momentum = torch.lerp(d, state["d"], beta)
        h = torch.lerp(d, momentum, nu)
        return x - eta * h, {"d": momentum}


@dataclass(eq=False)
class FedGM(QuasiHyperbolic):
    """General server momentum (Sun et al. 2024, Algorithm 1)."""

    lr: float = parameter(1.0, "server learning rate", symbol="eta", gt=0)
    beta: float = parameter(0.9, "momentum; 0 is FedAvg", symbol="beta", ge=0, lt=1)
    nu: float = parameter(
        0.9, "weight of the momentum against the fresh D; 0 is FedAvg", symbol="nu", ge=0, le=1
    )

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return the constants (lr, beta, nu)."""
        return self.lr, self.beta, self.nu


@dataclass(eq=False)
class FedSGD(QuasiHyperbolic):
    """Plain averaging with a server learning rate: x <- x - eta D. FedAvg is eta = 1."""

    lr: float = parameter(1.0, "server learning rate; 1 is plain averaging", symbol="eta", gt=0)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (lr, 0, 0)."""
        return self.lr, 0.0, 0.0


@dataclass(eq=False)
class Undamped(QuasiHyperbolic):
    """FedGM in deep learning's own form, whose buffer is a sum: its rate is eta (1 - beta)."""

    lr: float = parameter(1.0, "server learning rate", symbol="eta", gt=0)
    beta: float = parameter(0.9, "momentum; 0 is FedAvg", symbol="beta", ge=0, lt=1)
    dampening: bool = parameter(False, "scale D by 1 - beta before it enters the buffer")

    @property
    def eta(self) -> float:
        """The rate of FedGM."""
        return self.lr if self.dampening else self.lr / (1.0 - self.beta)


@dataclass(eq=False)
class FedAvgM(Undamped):
    """Heavy-ball server momentum (Hsu, Qi, Brown 2019): v <- beta v + D; x <- x - eta' v.

    This is FedGM with nu = 1 and eta' = eta (1 - beta). With ``dampening`` the buffer is the moving
    average of Sun et al. and ``lr`` is their eta.
    """

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (eta, beta, 1)."""
        return self.eta, self.beta, 1.0


@dataclass(eq=False)
class FedNAG(Undamped):
    """Nesterov server momentum: buf <- beta buf + D; x <- x - eta' (D + beta buf).

    This is FedGM with nu = beta and eta' = eta (1 - beta). With ``dampening`` the buffer is the
    moving average of Sun et al. and ``lr`` is their eta. (Not the client-side FedNAG of Yang et al.
    2022, which averages the clients' own momenta.)
    """

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (eta, beta, beta)."""
        return self.eta, self.beta, self.beta
