"""FedCOMGATE with sparsified messages and memory.

Paper: Haddadpour, Kamani, Mokhtari, Mahdavi (2021), equations (8)-(9).

    send x to j in S;  w as in FedGATE;  u_j = x - w;  s_j = Q(u_j + m_j);  send s_j
    u = mean_S s_j;  send u to S;   x <- x - gamma u
    feedback ef        m_j <- m_j + u_j - s_j            (default)
    feedback mean      m_j <- m_j + u_j - u              (the authors' program)
    feedback literal   m_j <- m_j + u_j / N - u          (equation (9) as printed)
    delta_j <- delta_j + (v_j - u) / (eta tau);   v_j = u_j (tracker own, default) or s_j (sent)

Q is the run's compressor, ``topk``: per tensor, as in the authors' program, with ``granularity:
tensor``. gamma is the server's learning rate (1).

- Readings: the 1/N in (9) is a misprint, the program divides it out. On quadratics ef + own reaches
  the optimum; mean + own stops at a residual error, as the paper's Figure 8 shows; literal ends far
  away; sent keeps the sum of delta_j at 0 but may diverge.
- Floats down: 2d, or d with option I, as FedGATE. Up: k values and k indices. Memory: server d,
  client 2d.
- Inactive clients keep delta_j and m_j; in an empty round nothing moves. Unequal steps as in
  FedGATE, from s_j on. Needs |S| >= 2.
- k = d is FedGATE: the memory ef stays 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.algorithms.base import RoundInfo, State
from fltune.algorithms.fedgate import FedGATE
from fltune.federation.compression import Compressor
from fltune.federation.local import LocalResult
from fltune.parameters import parameter


@dataclass(frozen=True)
class SparseFedCOMGATE(FedGATE):
    """Gradient tracking with sparse messages.

    Client state: delta [d]; memory [d], the displacement m_j that is still to be sent.
    """

    feedback: str = parameter(
        "ef",
        "memory of what was not sent: ef, error feedback; mean, the authors' program; literal, (9)",
        choices=("ef", "mean", "literal"),
    )
    tracker: str = parameter(
        "own", "own update in delta: own, before compression; sent", choices=("own", "sent")
    )

    paper: ClassVar[str] = "Haddadpour et al. 2021, equations (8)-(9)"
    memory: ClassVar[str] = "server d, client 2d"

    def check(self, compressor: Compressor) -> None:
        """Refuse a second memory.

        Raises:
            ValueError: the compressor has error feedback of its own.
        """
        if compressor.error_feedback:
            raise ValueError(
                "fedcomgate_sparse has a memory of its own; set compression.error_feedback to false"
            )

    def client_state(self, x: Tensor) -> State:
        """Return delta = 0 and m_j = 0."""
        return {**super().client_state(x), "memory": torch.zeros_like(x)}

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return u_j + m_j and the steps made; the client keeps u_j until the end of the round."""
        message, client = super().uplink(x, server, client, result, info)
        own = message["update"]
        return {**message, "update": own + client["memory"]}, {**client, "own": own}

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Return the new delta and memory."""
        assert d is not None
        own, sent, memory = client["own"], message["update"], client["memory"]
        if self.feedback == "ef":
            memory = memory + own - sent
        elif self.feedback == "mean":
            memory = memory + own - d
        else:
            memory = memory + own / info.num_clients - d
        tracked = own if self.tracker == "own" else sent
        delta = self.tracked(client["delta"], tracked, message, d, info)
        return {"delta": delta, "memory": memory}
