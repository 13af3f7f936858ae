"""FedCOMGATE: FedGATE with compressed messages.

Paper: Haddadpour, Kamani, Mokhtari, Mahdavi (2021), Algorithms 2 (all clients) and 4 (sampled).

    send x to j in S;  w as in FedGATE;  v_j = (x - w) / eta;  send Q(v_j)
    v = mean_S Q(v_j);  send v to S
    delta_j <- delta_j + (Q(v_j) - v) / tau;   x <- x - eta gamma v

Q is the run's compressor, gamma the server's learning rate (1).

- Readings: Algorithm 4 prints the divisor N over a sum of S; the default is |S| (``divide_by``).
  The own update in delta is the compressed one of Algorithm 4 and the proofs, which keeps the sum
  of delta_j at 0; the authors' program takes the uncompressed one (``tracker: own``). The signs are
  those of Algorithms 3-4, not of the proofs' properties 4 and 7.
- ``quantise_downlink`` (off): v is compressed again on its way down, as in the authors' program;
  server and clients then all use that, and the sum of delta_j stays 0 in expectation only.
- Floats down: 2d, or d with option I, as FedGATE; the compressor's bits in place of 32 d for v with
  ``quantise_downlink``. Up: one compressed message of d numbers. Memory: server d, client d.
- Inactive clients keep delta_j; in an empty round nothing moves. Unequal steps as in FedGATE, from
  Q(v_j) on. Needs |S| >= 2.
- Q = identity is FedGATE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import RoundInfo, State, weighted_sum
from fltune.algorithms.fedgate import FedGATE, equalised
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.local import LocalResult
from fltune.parameters import parameter


@dataclass(frozen=True)
class FedCOMGATE(FedGATE):
    """Gradient tracking from compressed updates. Client state: delta [d]."""

    divide_by: str = parameter(
        "active",
        "divisor of the mean update: active, |S|; all, N as printed, which breaks the zero sum",
        choices=("active", "all"),
    )
    tracker: str = parameter(
        "sent",
        "own update in delta: sent, as compressed (Algorithm 4); own, uncompressed (the program)",
        choices=("sent", "own"),
    )
    quantise_downlink: bool = parameter(False, "compress the mean update again on its way down")

    paper: ClassVar[str] = "Haddadpour et al. 2021, Algorithms 2 and 4"

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return v_j and the steps made; the client keeps v_j until the end of the round."""
        message, client = super().uplink(x, server, client, result, info)
        message["update"] = message["update"] / info.client_lr
        return message, {**client, "own": message["update"]}

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor, State]:
        """Return D = eta v."""
        v = weighted_sum(info.weights, equalised(message["update"], message))
        if self.divide_by == "all":
            v = v * (len(info.clients) / info.num_clients)
        if self.quantise_downlink:
            v = info.compressor(v.unsqueeze(0), info.key.unsqueeze(0)).squeeze(0)
        return info.client_lr * v, server

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Return the new delta."""
        own = client["own"] if self.tracker == "own" else message["update"]
        return {"delta": self.tracked(client["delta"], info.client_lr * own, message, d, info)}

    def bits_down(self, dimension: int, compressor: Compressor) -> float:
        """The mean update as compressed, where it is."""
        plain = super().bits_down(dimension, compressor)
        if not self.quantise_downlink:
            return plain
        return plain - BITS_PER_FLOAT * dimension + compressor.bits(dimension)
