"""Independent participation: each client tosses a coin of its own in every round.

Rounds may be empty; the model then stays where it is, unless the method says otherwise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import check_at_most, check_one_each, parameter
from fltune.participation.base import Participation, one_each


class IndependentClients(Participation):
    """Base: subclasses say how likely each client is to take part in a round."""

    @abstractmethod
    def probabilities(self, round: int) -> Tensor:
        """Return p_i of round t, float64 [N] in [0, 1]."""

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the clients whose coin says yes."""
        coins = torch.rand(self.num_clients, generator=random, dtype=torch.float64)
        return (coins < self.probabilities(round)).nonzero().squeeze(1)


@dataclass(eq=False)
class Bernoulli(IndependentClients):
    """A constant probability, for all clients or for each (FedSUM's Case 2, P2).

    Raises:
        ValueError: probabilities that are not one per client.
    """

    probability: float = parameter(0.1, "of taking part, every client", symbol="p", gt=0, le=1)
    each: list[float] | None = parameter(
        None, "one probability per client, instead", symbol="p_i", ge=0, le=1
    )
    retry_if_empty: bool = parameter(False, "toss again where nobody takes part (FedDC's program)")

    def check(self, num_clients: int) -> None:
        """Refuse a list that does not fit the population, or that nobody could retry for."""
        check_one_each("each", self.each, num_clients, "probabilities")
        if self.retry_if_empty and self.each is not None and not any(self.each):
            raise ValueError("retry_if_empty never ends where every probability is 0")

    def probabilities(self, round: int) -> Tensor:
        """Return the constants."""
        return one_each(self.each, self.probability, self.num_clients)

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the clients whose coin says yes; at least one with ``retry_if_empty``."""
        cohort = super().draw(round, random)
        while self.retry_if_empty and not len(cohort):
            cohort = super().draw(round, random)
        return cohort


@dataclass(eq=False)
class Sine(IndependentClients):
    """A probability that swings with the round (FedSUM's P3).

    p_t = (S / N) (swing sin(2 pi t / period) + 1 - swing): between 0.4 S/N and S/N, 0.7 S/N on
    average, with the defaults. With ``each`` the clients' own p_i stand in the place of S / N, as
    in FedAWE's program (Xiang et al. 2024), whose period is 20.

    Raises:
        ValueError: more clients per round than there are, or ``each`` that is not one per client.
    """

    per_round: int = parameter(10, "clients per round at the top of the swing", symbol="S", ge=1)
    swing: float = parameter(0.3, "half the width of the swing", ge=0, le=0.5)
    period: float = parameter(10.0, "rounds", gt=0)
    each: list[float] | None = parameter(
        None, "probability at the top, one per client, instead of S / N", symbol="p_i", ge=0, le=1
    )

    def check(self, num_clients: int) -> None:
        """Refuse more clients per round than there are, or a list that does not fit them."""
        check_one_each("each", self.each, num_clients, "probabilities")
        if self.each is None:
            check_at_most("per_round", self.per_round, num_clients)

    def probabilities(self, round: int) -> Tensor:
        """Return the same p_t for every client, or p_i at the same height of the swing."""
        level = self.swing * math.sin(2.0 * math.pi * round / self.period) + 1.0 - self.swing
        top = one_each(self.each, self.per_round / self.num_clients, self.num_clients)
        return (top * level).clamp(0, 1)


@dataclass(eq=False)
class Biased(IndependentClients):
    """Blocks of clients that take part less and less often (FedSUM, appendix H.8).

    p_i = 0.5 - 0.05 floor(i / 11), never below 0.05.
    """

    highest: float = parameter(0.5, "probability of the first block", gt=0, le=1)
    step: float = parameter(0.05, "difference from one block to the next", ge=0)
    block: int = parameter(11, "clients in a block", ge=1)
    lowest: float = parameter(0.05, "probability below which no block falls", ge=0, le=1)

    def probabilities(self, round: int) -> Tensor:
        """Return p_i by block."""
        blocks = torch.arange(self.num_clients) // self.block
        return (self.highest - self.step * blocks.double()).clamp(min=self.lowest)
