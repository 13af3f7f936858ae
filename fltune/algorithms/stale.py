"""Methods whose clients may start from models of past rounds.

The server keeps the last models in a ring; ``delays`` says which of them each client starts from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import Algorithm, RoundInfo, State, weighted_sum
from fltune.federation.local import LocalProblem
from fltune.parameters import parameter


@dataclass(frozen=True)
class Stale(Algorithm):
    """FedAvg from stale models: D = sum of p_i (x_{t - delay_i} - y_i); base of the others.

    A round is one server step. An empty round is none, but it is a round: the ring moves on.

    Server state: past [max(window - 1, 1), d], the model before round s in row s mod its length.
    """

    window: int = parameter(
        5, "models that a client may start from, the current one included", symbol="max_delay", ge=1
    )

    acts_on_empty_rounds: ClassVar[bool] = True
    memory: ClassVar[str] = "server window d, client 0"

    def oldest_start(self) -> int:
        """Return window - 1."""
        return self.window - 1

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return a ring of x^0."""
        return {"past": x.expand(max(self.window - 1, 1), -1).clone()}

    def starts(self, x: Tensor, server: State, info: RoundInfo) -> Tensor:
        """Return the models that the clients start from, [C, d]."""
        past = server["past"]
        chosen = past[(info.round - info.delays) % len(past)]
        return torch.where((info.delays == 0).unsqueeze(1), x, chosen)

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return f_i from the client's own, stale model."""
        return LocalProblem(start=self.starts(x, server, info))

    def client_weights(self, x: Tensor, info: RoundInfo) -> Tensor:
        """Return the factor of each client's update in D, [C]."""
        return info.weights

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor | None, State]:
        """Return D, None in an empty round; put x into the ring."""
        past = server["past"].clone()
        past[info.round % len(past)] = x
        d = weighted_sum(self.client_weights(x, info), message["update"]) if message else None
        return d, {"past": past}
