"""Multistage FedGM: "constant and drop" server rates with the momentum that belongs to them.

Paper: Sun, Wu, Huang, Zhang (AAAI 2024), Algorithm 3 and the constraints (3):

    W1 = eta_s beta_s nu_s / (1 - beta_s)   the same in every stage: gives beta_s
    W2 = T_s eta_s                          the same in every stage: gives the lengths T_s

Multistage FedNAG has nu_s = beta_s, for which W1 gives

    beta_s = (-W1 + sqrt(W1^2 + 4 eta_s W1)) / (2 eta_s)

The momentum buffer d is carried over stage borders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fltune.parameters import parameter
from fltune.server.fedgm import QuasiHyperbolic


def solve_betas(etas: Sequence[float], beta: float, nus: Sequence[float]) -> list[float]:
    """Return beta_s = W1 / (W1 + eta_s nu_s), W1 from the first stage (constraint W1).

    Args:
        etas: server rate of each stage.
        beta: momentum of the first stage, in [0, 1).
        nus: instant discount of each stage, in [0, 1].

    Raises:
        ValueError: a stage without momentum (nu = 0) after one with it.
    """
    w1 = etas[0] * beta * nus[0] / (1.0 - beta)
    if w1 and 0.0 in nus:
        raise ValueError(f"nus = {list(nus)}: no beta < 1 keeps W1 = {w1:g} at nu = 0; give betas")
    return [w1 / (w1 + eta * nu) if w1 else 0.0 for eta, nu in zip(etas, nus, strict=True)]


def solve_nag_betas(etas: Sequence[float], beta: float) -> list[float]:
    """Return beta_s for nu_s = beta_s (Nesterov in every stage) under constraint W1."""
    w1 = etas[0] * beta**2 / (1.0 - beta)
    return [(-w1 + math.sqrt(w1 * w1 + 4.0 * eta * w1)) / (2.0 * eta) for eta in etas]


def solve_stage_ends(etas: Sequence[float], rounds: int) -> list[int]:
    """Return the round at which each stage ends: T_s = W2 / eta_s (constraint W2).

    The cumulative ends are rounded half up, not the lengths, so that the borders of 1000 and 2000
    rounds are the paper's (143, 429 and 286, 857). The last end is T. A stage that would be rounded
    away lasts one round, so that no rate goes unused.

    Raises:
        ValueError: more stages than rounds.
    """
    if len(etas) > rounds:
        raise ValueError(f"{len(etas)} stages need as many rounds; there are {rounds}")
    inverse = [1.0 / eta for eta in etas]
    w2 = rounds / sum(inverse)
    total, ends = 0.0, [0]
    for later, part in zip(reversed(range(len(etas))), inverse, strict=True):
        total += w2 * part
        ends.append(min(max(math.floor(total + 0.5), ends[-1] + 1), rounds - later))
    return ends[1:]


@dataclass(eq=False)
class MultistageFedGM(QuasiHyperbolic):
    """FedGM whose (eta, beta, nu) drop from stage to stage (Sun et al. 2024, Algorithm 3).

    Stage s has the rate lr * drop^s. Every list that is left out is solved from the constraints
    W1 (``betas``) and W2 (``stage_ends``).

    Raises:
        ValueError: lists of unequal length, rates that grow, stage ends that do not increase to
            the run's last round, more stages than rounds, or ``nesterov`` with ``betas`` or
            ``nus``.
    """

    lr: float = parameter(2.0, "server learning rate of the first stage", symbol="eta_1", gt=0)
    drop: float = parameter(0.5, "factor from one stage to the next", gt=0, le=1)
    stages: int = parameter(3, "number of stages", symbol="S", ge=1)
    beta: float = parameter(0.9, "momentum of the first stage", symbol="beta_1", ge=0, lt=1)
    nu: float = parameter(0.9, "weight of the momentum, every stage", symbol="nu", ge=0, le=1)
    lrs: list[float] | None = parameter(
        None, "rates of the stages, instead of lr, drop and stages", symbol="eta_s", gt=0
    )
    betas: list[float] | None = parameter(
        None, "momenta of the stages; null: by constraint W1", symbol="beta_s", ge=0, lt=1
    )
    nus: list[float] | None = parameter(
        None, "nu of the stages, instead of nu", symbol="nu_s", ge=0, le=1
    )
    stage_ends: list[int] | None = parameter(
        None, "first round after each stage; null: by constraint W2", symbol="T_s", ge=1
    )
    nesterov: bool = parameter(
        False, "nu_s = beta_s in every stage (multistage FedNAG); nu is not read"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lrs == []:
            raise ValueError("lrs is empty: a run needs at least one stage")
        self.etas = self.lrs or [self.lr * self.drop**s for s in range(self.stages)]
        count = len(self.etas)
        if any(b > a for a, b in pairwise(self.etas)):
            raise ValueError(f"lrs = {self.etas}: rates must not grow from stage to stage")
        for name in ("betas", "nus", "stage_ends"):
            given = getattr(self, name)
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} entries for {count} stages")
        ends = self.stage_ends
        if ends is not None and any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"stage_ends = {ends}: must increase")
        if self.nesterov:
            self.stage_betas = self.stage_nus = self._nesterov_betas()
        else:
            self.stage_nus = self.nus or [self.nu] * count
            self.stage_betas = self.betas or solve_betas(self.etas, self.beta, self.stage_nus)
        self.ends = self.stage_ends

    def _nesterov_betas(self) -> list[float]:
        for name in ("betas", "nus"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} and nesterov are both set: nesterov solves nu_s = beta_s from lr and "
                    f"beta; set {name} to null, or nesterov to false"
                )
        return solve_nag_betas(self.etas, self.beta)

    def prepare(self, rounds: int) -> None:
        """Solve the stage lengths, now that T is known."""
        super().prepare(rounds)
        if self.stage_ends is None:
            self.ends = solve_stage_ends(self.etas, rounds)
        elif self.stage_ends[-1] != rounds:
            raise ValueError(
                f"stage_ends ends at {self.stage_ends[-1]}, but the run has {rounds} rounds"
            )

    def stage(self, round: int) -> int:
        """Return the 0-based stage of round t."""
        return sum(round >= end for end in (self.ends or [])[:-1])

    def coefficients(self, round: int) -> tuple[float, float, float]:
        """Return (eta_s, beta_s, nu_s) of round t's stage."""
        s = self.stage(round)
        return self.etas[s], self.stage_betas[s], self.stage_nus[s]
