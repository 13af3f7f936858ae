"""The momentum family that FedGM reaches: known schemes by their own parameters.

Ma and Yarats, "Quasi-hyperbolic momentum and Adam for deep learning" (2019): each scheme is FedGM
with the (eta, beta, nu) below, the pseudo-gradient D in the place of the gradient. The model x is
the point where the next gradient is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fltune.parameters import parameter
from fltune.server.fedgm import QuasiHyperbolic

ROUNDING = 1e-6
"""By how much a rate may miss a bound that was computed, or copied from a message."""


@dataclass(eq=False)
class SHB(QuasiHyperbolic):
    """Stochastic heavy ball (Polyak 1964): x+ = x - a D + b (x - x_prev)."""

    lr: float = parameter(0.1, "step size", symbol="a", gt=0)
    beta: float = parameter(0.9, "momentum", symbol="b", ge=0, lt=1)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (a / (1 - b), b, 1)."""
        return self.lr / (1.0 - self.beta), self.beta, 1.0


@dataclass(eq=False)
class NAG(QuasiHyperbolic):
    """Nesterov (1983): w+ = x - a D; x+ = w+ + b (w+ - w)."""

    lr: float = parameter(0.1, "step size", symbol="a", gt=0)
    beta: float = parameter(0.9, "momentum", symbol="b", ge=0, lt=1)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (a / (1 - b), b, b)."""
        return self.lr / (1.0 - self.beta), self.beta, self.beta


def synthesized_nesterov(a: float, b1: float, b2: float) -> tuple[float, float, float]:
    """Return (eta, beta, nu) of SNV (Lessard, Recht, Packard 2016)."""
    return a / (1.0 - b1), b1, 1.0 - (1.0 - b1) * b2 / b1


@dataclass(eq=False)
class SNV(QuasiHyperbolic):
    """Synthesized Nesterov variants (Lessard, Recht, Packard 2016).

    xi+ = xi + b1 (xi - xi_prev) - a D(y);  y = xi + b2 (xi - xi_prev);  x is y.
    """

    lr: float = parameter(0.1, "step size", symbol="alpha", gt=0)
    beta1: float = parameter(0.9, "momentum of the iterate", symbol="beta_1", gt=0, lt=1)
    beta2: float = parameter(0.6, "momentum of the gradient's point", symbol="beta_2", ge=0)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return the map of :func:`synthesized_nesterov`."""
        return synthesized_nesterov(self.lr, self.beta1, self.beta2)


@dataclass(eq=False)
class PID(QuasiHyperbolic):
    """A PID controller of the error -D (An et al. 2018), its D term smoothed.

    beta = kd / (kd - kp), so kp and kd have opposite signs. From FedGM:
    kp = -eta beta nu / (1 - beta), ki = eta, kd = eta beta^2 nu / (1 - beta)^2.

    Raises:
        ValueError: kp and kd that give no momentum in [0, 1).
    """

    kp: float = parameter(-0.1, "proportional gain", symbol="k_P", lt=0)
    ki: float = parameter(1.0, "integral gain; the server rate", symbol="k_I", gt=0)
    kd: float = parameter(3.0, "derivative gain", symbol="k_D", gt=0)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (ki, kd / (kd - kp), kp^2 / (ki kd))."""
        return self.ki, self.kd / (self.kd - self.kp), self.kp**2 / (self.ki * self.kd)


@dataclass(eq=False)
class AccSGD(QuasiHyperbolic):
    """Accelerated SGD (Kidambi, Netrapalli, Jain, Kakade 2018).

    eps xi < 1 gives nu < 0: no average any more, but still exact.

    Raises:
        ValueError: kappa < eps^2 xi, which gives no momentum in [0, 1).
    """

    lr: float = parameter(0.1, "short step size", symbol="delta", gt=0)
    kappa: float = parameter(1000.0, "long step over short step", symbol="kappa", ge=1)
    xi: float = parameter(10.0, "statistical advantage", symbol="xi", gt=0)
    eps: float = parameter(0.7, "averaging constant", symbol="epsilon", gt=0, lt=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.eps**2 * self.xi
        if self.kappa < least:
            raise ValueError(f"kappa = {self.kappa:g}: must be at least eps^2 xi = {least:g}")

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (eta, beta, nu) by Ma and Yarats' map."""
        eps, xi, kappa = self.eps, self.xi, self.kappa
        eta = self.lr * eps * (1.0 + xi) / (1.0 + eps)
        beta = (kappa - eps**2 * xi) / (kappa + eps * xi)
        return eta, beta, (eps * xi - 1.0) / (eps * (1.0 + xi))


@dataclass(eq=False)
class TripleMomentum(QuasiHyperbolic):
    """Triple Momentum (Van Scoy, Freeman, Lynch 2018); x is the gradient's point."""

    smoothness: float = parameter(1.0, "smoothness of the objective", symbol="L", gt=0)
    kappa: float = parameter(10.0, "condition number", symbol="kappa", gt=1)

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return SNV's map of a = (1 + r) / L, b1, b2 with r = 1 - 1/sqrt(kappa)."""
        r = 1.0 - 1.0 / math.sqrt(self.kappa)
        b2 = r * r / ((1.0 + r) * (2.0 - r))
        return synthesized_nesterov((1.0 + r) / self.smoothness, r * r / (2.0 - r), b2)


@dataclass(eq=False)
class RobustMomentum(QuasiHyperbolic):
    """Robust Momentum (Cyrus, Hu, Van Scoy, Lessard 2018); x is the gradient's point.

    ``rate`` is the convergence rate r: 1 - 1/sqrt(kappa) is Triple Momentum, 1 - 1/kappa gradient
    descent's speed with the most robustness.

    Raises:
        ValueError: a rate outside of these two; far above, the model would climb.
    """

    smoothness: float = parameter(1.0, "smoothness of the objective", symbol="L", gt=0)
    kappa: float = parameter(10.0, "condition number", symbol="kappa", gt=1)
    rate: float = parameter(0.8, "convergence rate", symbol="r", gt=0, lt=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = 1.0 - 1.0 / math.sqrt(self.kappa), 1.0 - 1.0 / self.kappa
        if not low - ROUNDING <= self.rate <= high + ROUNDING:
            raise ValueError(
                f"rate = {self.rate:g}: with kappa = {self.kappa:g} it lies from "
                f"1 - 1/sqrt(kappa) = {low:.6g} to 1 - 1/kappa = {high:.6g}"
            )

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return SNV's map of the scheme's (a, b1, b2)."""
        r, kappa = self.rate, self.kappa
        a = kappa * (1.0 - r) ** 2 * (1.0 + r) / self.smoothness
        b1 = kappa * r**3 / (kappa - 1.0)
        b2 = r**3 / ((kappa - 1.0) * (1.0 - r) ** 2 * (1.0 + r))
        return synthesized_nesterov(a, b1, b2)
