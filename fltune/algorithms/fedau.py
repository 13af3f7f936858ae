"""FedAU: weight each update by the client's estimated interval between visits.

Paper: Wang and Ji (2023), Algorithms 1 and 2.

    x <- x - (eta_g / N) sum_{i in S} omega_i (x - y_i)          # divisor N
    then, for every client n:   S_n += 1
        if n in S or S_n = K_c:   omega_n <- mean of all intervals S_n recorded so far;   S_n <- 0

omega uses visits of earlier rounds only; it is 1 until an interval has been recorded. An interval
is cut at K_c rounds, so that a client never seen does not come back with a huge weight.

- d floats down, d up. Memory: server d + 3 N numbers (the counters), client 0. (The paper lets each
  client keep its own three and send omega.)
- The counters are the one thing that moves for inactive clients, and in empty rounds too; the model
  holds still in an empty round.
- Unequal steps: y_i as it is. Participation bias is removed on average, client drift is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, uniform_only, weighted_sum
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedAU(Algorithm):
    """Adaptive weights for unknown participation.

    Server state: waited, int64 [N], rounds since the last recorded interval (the paper's S_n);
    recorded, int64 [N], how many there are (M_n); omega [N], their mean.
    """

    weighting: str = uniform_only()
    cutoff: int = parameter(
        50,
        "rounds after which an interval is recorded anyway; very large: no cutoff",
        symbol="K_c",
        ge=1,
    )

    paper: ClassVar[str] = "Wang and Ji 2023, Algorithms 1 and 2"
    acts_on_empty_rounds: ClassVar[bool] = True
    memory: ClassVar[str] = "server d + 3N numbers, client 0"

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return no recorded intervals and omega = 1."""
        count = torch.zeros(num_clients, dtype=torch.int64, device=x.device)
        return {"waited": count, "recorded": count.clone(), "omega": x.new_ones(num_clients)}

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor | None, State]:
        """Return the weighted updates over N (None in an empty round); let all counters tick."""
        d = None
        if message:
            weights = server["omega"][info.clients] / info.num_clients
            d = weighted_sum(weights, message["update"])
        waited, recorded, omega = server["waited"] + 1, server["recorded"], server["omega"]
        ends = (waited == self.cutoff).index_fill(0, info.clients, True)
        # with recorded = 0 this is `waited`: the first interval replaces omega = 1
        mean = (recorded * omega + waited) / (recorded + 1)
        return d, {
            "waited": waited.masked_fill(ends, 0),
            "recorded": recorded + ends,
            "omega": torch.where(ends, mean, omega),
        }
