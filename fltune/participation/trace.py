"""A recorded trace: the cohorts of every round, given."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import parameter
from fltune.participation.base import Participation


@dataclass(eq=False)
class Trace(Participation):
    """Cohorts as they were recorded; after the last one the trace starts again.

    Raises:
        ValueError: an empty trace, or a client id outside 0..N-1, or one that stands twice in a
            round without ``repeats``.
    """

    rounds: list[list[int]] = parameter(doc="client ids of each round; [] is an empty round")
    repeats: bool = parameter(
        False, "whether a client may stand twice in a round, as in a buffer of asynchronous updates"
    )

    def check(self, num_clients: int) -> None:
        """Refuse ids that are no client of the population."""
        if not self.rounds:
            raise ValueError("rounds is empty: a trace needs at least one round")
        for t, cohort in enumerate(self.rounds):
            wrong = [i for i in cohort if not 0 <= i < num_clients]
            if wrong:
                raise ValueError(
                    f"rounds[{t}] names client {wrong[0]}; ids are 0..{num_clients - 1}"
                )
            if len(set(cohort)) < len(cohort) and not self.repeats:
                raise ValueError(
                    f"rounds[{t}] names a client twice: {cohort}; allow it with repeats: true"
                )

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the recorded ids of round t."""
        return torch.tensor(self.rounds[round % len(self.rounds)], dtype=torch.int64)
