"""Autonomous FedGM: stale starts, own numbers of local steps, a buffer of m updates.

Paper: Sun, Wu, Huang, Zhang (AAAI 2024), Algorithm 4.

    client i: fetch x_mu, K_i own local steps;  send D_i = (x_mu - y_i) / K_i
    server, when m updates are in:  D = (1/m) sum D_i;  then the step of (Multistage) FedGM

This is the clients' side; the step is the server optimizer's (``fedgm``, ``multistage``). A cohort
is the m clients whose updates are in, ``delays`` is how old their models are, ``work`` how many
steps they make. The paper's simulation has both uniform: windows of 5 and 10 models, 1 to 6 epochs.

- d floats down, d up. Memory: server window d (and the optimizer's own), client 0.
- In an empty round nothing moves. Unequal steps are normalised by K_i.
- Because of the division by K_i, fresh models and equal K give FedGM with eta / K, not with eta as
  the paper has it: take server.lr = K eta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fltune.algorithms.base import RoundInfo, State
from fltune.algorithms.stale import Stale
from fltune.federation.local import LocalResult


@dataclass(frozen=True)
class Autonomous(Stale):
    """Average the clients' displacements per local step, from stale models."""

    any_server: ClassVar[bool] = True
    paper: ClassVar[str] = "Sun et al. 2024, Algorithm 4"

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Send (x_mu - y_i) / K_i."""
        moved = self.starts(x, server, info) - result.end
        return {"update": moved / result.steps.to(x).unsqueeze(1)}, client
