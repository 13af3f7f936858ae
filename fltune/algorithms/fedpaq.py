"""FedPAQ: FedAvg whose clients send quantised differences of models.

Paper: Reisizadeh, Mokhtari, Hassani, Jadbabaie, Pedarsani (2020), Algorithm 1.

    send x to i in S;  y_i = local_solve(i, x);  send Q(y_i - x)
    x <- x + sum_{i in S} p_i Q(y_i - x)

Q is the run's compressor and should be unbiased (``qsgd``); the paper's server rate is 1.

- d floats down, one compressed message of d numbers up. Memory: server d, client 0.
- In an empty round nothing moves.
- Unequal steps are used as they are: the objective tilts toward clients with more steps.
- Q = identity is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, weighted_sum
from fltune.federation.local import LocalResult


@dataclass(frozen=True)
class FedPAQ(Algorithm):
    """Average compressed differences of models. No state."""

    paper: ClassVar[str] = "Reisizadeh et al. 2020, Algorithm 1"

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return y_i - x."""
        return {"update": result.end - x}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return D, the mean difference with its sign turned."""
        return -weighted_sum(info.weights, message["update"]), server
