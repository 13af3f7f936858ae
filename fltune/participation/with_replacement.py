"""Sampling with replacement, rounds independent (FedCDR, appendix D).

By sample counts it is the sampling of Li, Huang, Yang, Wang, Zhang (2020, "On the convergence of
FedAvg on non-iid data"), Scheme I, for McMahan et al.'s weights n_k / n: ``by_samples`` and
``multiplicity``, with uniform weighting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import check_one_each, parameter
from fltune.participation.base import Participation

SUM_TOLERANCE = 1e-3
"""How far the sum of probabilities may be from 1: shares written with a few digits are accepted."""


@dataclass(eq=False)
class WithReplacement(Participation):
    """Independent draws with replacement; the cohort is the set of drawn ids, or has their counts.

    Client k is in a cohort with probability 1 - (1 - p_k)^(gamma N), so that cohorts have at most
    ``per_round`` clients. With ``multiplicity`` a client that was drawn m times still works and
    sends once, and its aggregation weight is m times as large: with p_k = n_k / n (``by_samples``)
    and uniform weighting that is an unbiased estimate of the mean over all samples. Only the
    weights p_i of a method change. What it accumulates per client without them (MIFA, the FedSUM
    family, SCAFFOLD's c, FedAU's omega) counts a client once; FedGATE's corrections then no longer
    sum to zero.

    Raises:
        ValueError: probabilities that are not one per client, or do not sum to 1; ``by_samples``
            with probabilities, or where sample counts are not known (a regression).
    """

    per_round: int = parameter(10, "draws per round", symbol="gamma N", ge=1)
    probabilities: list[float] | None = parameter(
        None, "of each client in one draw; null: 1/N", symbol="p_k", ge=0, le=1
    )
    multiplicity: bool = parameter(
        False, "whether a client drawn m times has m times the aggregation weight"
    )
    by_samples: bool = parameter(
        False, "draw clients by their sample counts, p_k = n_k / n, instead of 1/N"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_samples and self.probabilities is not None:
            raise ValueError(
                "probabilities and by_samples are both set: a client is drawn by the one or the "
                "other; set probabilities to null, or by_samples to false"
            )

    def check(self, num_clients: int) -> None:
        """Refuse a list that is no distribution over the population."""
        if self.probabilities is None:
            return
        check_one_each("probabilities", self.probabilities, num_clients)
        total = math.fsum(self.probabilities)
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"probabilities sum to {total:g}; must be 1")

    @property
    def merges_repeats(self) -> bool:
        """Whether repeated ids are weights; without ``multiplicity`` there are none."""
        return self.multiplicity

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Participation:
        """Sum the probabilities up, once for all rounds."""
        super().bind(num_clients, seed, histograms)
        self._below: Tensor | None = None
        shares = self._shares(histograms)
        if shares is not None:
            below = shares.cumsum(0)
            self._below = below / below[-1]
        return self

    def _shares(self, histograms: Tensor | None) -> Tensor | None:
        """Return numbers in proportion to p_k, float64 [N]; None where all are alike."""
        if self.probabilities is not None:
            return torch.tensor(self.probabilities, dtype=torch.float64)
        if not self.by_samples:
            return None
        if histograms is None:
            raise ValueError(
                "by_samples needs the clients' sample counts, which a pattern knows only of data "
                "with classes (not of a regression); give them as probabilities"
            )
        return histograms.cpu().sum(1).double()

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the drawn ids, each once unless ``multiplicity``."""
        if self._below is None:
            drawn = torch.randint(self.num_clients, (self.per_round,), generator=random)
        else:
            coins = torch.rand(self.per_round, generator=random, dtype=torch.float64)
            # right: the first client whose sum exceeds the coin, never one of probability 0
            drawn = torch.searchsorted(self._below, coins, right=True)
        return drawn if self.multiplicity else drawn.unique()
