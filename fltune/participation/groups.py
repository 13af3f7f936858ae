"""Groups of clients that become available in a fixed cyclic order (CyCP).

Paper: Cho, Sharma, Joshi, Xu, Kale, Zhang (2023), Algorithm 1. It says neither how groups are
formed nor what happens where Kbar does not divide N: here the sizes then differ by at most one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import check_at_most, parameter
from fltune.participation.base import Participation
from fltune.randomness import generator


@dataclass(eq=False)
class Groups(Participation):
    """Clients drawn without replacement from group t mod Kbar (CyCP).

    A client that took part is away for at least Kbar - 1 rounds. With ``per_round`` as large as
    the groups every cycle sees every client once; Kbar = 1 is uniform sampling.

    Attributes:
        members: int64 ids of each group, formed once by (seed, formation).

    Raises:
        ValueError: more groups than clients, a group smaller than ``per_round``, or
            ``sorted_by_label`` without classes.
    """

    groups: int = parameter(5, "groups in a cycle; 1 is uniform sampling", symbol="Kbar", ge=1)
    per_round: int = parameter(5, "clients per round, from one group", symbol="n", ge=1)
    formation: str = parameter(
        "shuffled",
        "who is in a group: blocks of a seeded permutation (shuffled); of the clients by majority "
        "label (sorted_by_label), so that groups differ most; or of the ids (contiguous)",
        choices=("shuffled", "sorted_by_label", "contiguous"),
    )

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Groups:
        """Set the population and form the groups; start at round 0. Returns self.

        Raises:
            ValueError: the groups do not fit the population, or need classes that it has not.
        """
        super().bind(num_clients, seed, histograms)
        self.members = self._order(histograms).tensor_split(self.groups)
        return self

    def check(self, num_clients: int) -> None:
        """Refuse groups that would be empty or too small."""
        check_at_most("groups", self.groups, num_clients)
        smallest = num_clients // self.groups
        if self.per_round > smallest:
            raise ValueError(
                f"per_round = {self.per_round} is more than the {smallest} clients of the smallest "
                f"of {self.groups} groups of {num_clients} clients"
            )

    def _order(self, histograms: Tensor | None) -> Tensor:
        """Return all ids in the order in which they are cut into groups, int64 [N]."""
        if self.formation == "contiguous":
            return torch.arange(self.num_clients)
        if self.formation == "shuffled":
            random = generator(self.seed, "participation groups")
            return torch.randperm(self.num_clients, generator=random)
        if histograms is None:
            raise ValueError(
                "formation = 'sorted_by_label' needs classes, and the data has none (a "
                "regression); use 'shuffled' or 'contiguous'"
            )
        return histograms.cpu().argmax(dim=1).argsort(stable=True)

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return ``per_round`` clients of the round's group."""
        group = self.members[round % self.groups]
        return group[torch.randperm(len(group), generator=random)[: self.per_round]]
