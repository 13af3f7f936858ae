"""Clients that come and go in spells: a Markov chain each, or on/off blocks of a cycle.

The two patterns of availability in the experiments of FedAU (Wang and Ji 2023), beside independent
coins. A client is there for a share p_i of the rounds, as with ``bernoulli``, but for several in a
row. The server may ask only some of those who are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fltune.parameters import check_one_each, parameter
from fltune.participation.base import Participation, one_each
from fltune.randomness import generator


@dataclass(eq=False)
class Availability(Participation):
    """Base: subclasses say who is there; ``at_most`` of them, uniform, take part.

    Raises:
        ValueError: shares that are not one per client.
    """

    probability: float = parameter(
        0.1, "share of the rounds that a client is there", symbol="p", gt=0, le=1
    )
    each: list[float] | None = parameter(
        None, "one share per client, instead", symbol="p_i", ge=0, le=1
    )
    at_most: int | None = parameter(
        None, "clients per round, uniform among those who are there; null: all of them", ge=1
    )

    def check(self, num_clients: int) -> None:
        """Refuse a list that does not fit the population."""
        check_one_each("each", self.each, num_clients, "shares")

    def shares(self) -> Tensor:
        """Return p_i, float64 [N]."""
        return one_each(self.each, self.probability, self.num_clients)

    def available(self, round: int, random: torch.Generator) -> Tensor:
        """Return who is there in round t, bool [N]."""
        raise NotImplementedError

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return those who are there, or ``at_most`` of them."""
        there = self.available(round, random).nonzero().squeeze(1)
        if self.at_most is None or len(there) <= self.at_most:
            return there
        return there[torch.randperm(len(there), generator=random)[: self.at_most]]


@dataclass(eq=False)
class Markov(Availability):
    """A two-state Markov chain per client, started in its stationary distribution.

    A client that is there leaves with probability 1 / mean_spell, one that is away comes with
    probability p_i / ((1 - p_i) mean_spell): spells last mean_spell rounds on average, and
    absences mean_spell (1 - p_i) / p_i. mean_spell = 1 / (1 - p) is independent coins. A share of
    0 or 1 is a client that is never there, or always.

    Raises:
        ValueError: spells so short that a client would have to be away for less than a round.
    """

    mean_spell: float = parameter(
        5.0, "rounds in a row that a client is there, on average; >= p / (1 - p)", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for p in [self.probability] if self.each is None else self.each:
            if p < 1 and self.mean_spell * (1 - p) < p * (1 - 1e-12):  # 9 x 0.1 is below 0.9
                raise ValueError(
                    f"Markov: mean_spell = {self.mean_spell:g} is not allowed for a client that "
                    f"is there {p:g} of the time: it would be away for less than a round; must be "
                    f">= p / (1 - p) = {p / (1 - p):g}"
                )

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Markov:
        """Set the population; start at round 0. Returns self."""
        super().bind(num_clients, seed, histograms)
        self._there = torch.zeros(num_clients, dtype=torch.bool)
        return self

    def available(self, round: int, random: torch.Generator) -> Tensor:
        """Move every chain on by one round; return its state."""
        p = self.shares()
        if round > 0:
            leave = torch.where(p < 1, 1 / self.mean_spell, 0.0)
            come = torch.where(p < 1, p / (1 - p) / self.mean_spell, 1.0)
            p = torch.where(self._there, 1 - leave, come)
        coins = torch.rand(self.num_clients, generator=random, dtype=torch.float64)
        self._there = coins < p
        return self._there

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs, the state of the chains included."""
        return {**super().state_dict(), "there": self._there}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken."""
        super().load_state_dict(state)
        self._there = state["there"].clone()


@dataclass(eq=False)
class Blocks(Availability):
    """One block of rounds per cycle, at a phase of the client's own.

    A client is there for p_i ``cycle`` rounds in a row, and away for the rest of the cycle. The
    phase is uniform over the cycle, drawn once; where p_i ``cycle`` is no whole number, the blocks
    of some clients are a round longer than those of others, p_i on average.
    """

    cycle: int = parameter(20, "rounds from one block of a client to the next", ge=1)

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Blocks:
        """Set the population and draw the phases; start at round 0. Returns self."""
        super().bind(num_clients, seed, histograms)
        random = generator(seed, "participation phase")
        phases = torch.rand(num_clients, generator=random, dtype=torch.float64)
        self._phase = phases * self.cycle
        return self

    def available(self, round: int, random: torch.Generator) -> Tensor:
        """Return whose block covers round t."""
        return (round + self._phase) % self.cycle < self.shares() * self.cycle
