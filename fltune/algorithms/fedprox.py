"""FedProx: local objectives with a pull toward the received model.

Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith (2020), Algorithm 2.

    send x to i in S;  y_i = (near) argmin_z f_i(z) + mu/2 |z - x|^2, by local SGD from x
    x <- x - eta_g sum_{i in S} p_i (x - y_i)

- d floats down, d up. Memory: server d, client 0.
- In an empty round nothing moves. Unequal steps (stragglers): y_i as it is, a less exact prox.
- Weights are uniform, as in the other methods here; the authors' program weights by n_i
  (``weighting: samples``), the paper samples clients by n_i and takes the plain mean.
- mu = 0 is FedAvg. With exact proxes and all clients the fixed point is
  x = mean_i prox_i(x), which is not the minimiser of f: the pull limits drift, it removes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State
from fltune.federation.local import LocalProblem, LocalSGD
from fltune.parameters import parameter


def overshoot(sgd: LocalSGD, pull: float) -> list[str]:
    """Return a warning if local SGD cannot follow a pull of this weight, whatever the losses."""
    bound = 2 * (1 + sgd.momentum)
    if sgd.lr * pull < bound:
        return []
    return [
        f"local steps overshoot: client.lr times the proximal weight is {sgd.lr * pull:g} and must "
        f"be below {bound:g} even where the losses are flat; lower client.lr"
    ]


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Local SGD on f_i plus a proximal term.

    Raises:
        ValueError: ``exact`` with mu = 0, whose argmin need not exist.
    """

    mu: float = parameter(
        0.01, "proximal weight; 0 is FedAvg, large holds clients at x", symbol="mu", ge=0
    )
    exact: bool = parameter(
        False, "the argmin itself instead of local SGD, where it has a closed form (least squares)"
    )

    paper: ClassVar[str] = "Li et al. 2020, Algorithm 2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and self.mu == 0:
            raise ValueError("exact = True needs mu > 0: without a pull the argmin may not exist")

    @property
    def solves_exactly(self) -> bool:
        """Whether ``exact`` is on."""
        return self.exact

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Say where the local steps cannot follow the pull."""
        return [] if self.exact else overshoot(sgd, self.mu)

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return f_i with the pull toward x."""
        return LocalProblem(start=x, mu=self.mu, anchor=x, exact=self.exact)
