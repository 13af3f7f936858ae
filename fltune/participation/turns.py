"""Who had a turn so far, how evenly, and how long others waited for theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

AT_ONCE = 16
"""Cohorts that are counted together: calls whose code is at hand cost a tenth of the first one."""


class Turns:
    """The turns of N clients in the rounds drawn so far.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        self._rounds = 0
        self._counts = np.zeros(num_clients, np.int64)
        self._last = np.full(num_clients, -1, np.int64)  # round of each client's last turn
        self._longest = self._sum = 0
        self._waiting: list[Tensor] = []

    def add(self, cohort: Tensor) -> None:
        """Add the next round's cohort, ids int64 [C]; an id that stands twice counts twice."""
        self._waiting.append(cohort)
        if len(self._waiting) == AT_ONCE:
            self._count()

    def _count(self) -> None:
        for cohort in self._waiting:
            ids = cohort.numpy()
            np.add.at(self._counts, ids, 1)
            self._last[ids] = self._rounds
            absence = self._rounds - int(self._last.min())
            self._longest = max(self._longest, absence)
            self._sum += absence
            self._rounds += 1
        self._waiting.clear()

    @property
    def counts(self) -> Tensor:
        """How often each client was drawn, int64 [N]."""
        self._count()
        return torch.from_numpy(self._counts)

    @property
    def tau_max(self) -> int:
        """The longest absence: max over t of max_i (t - a_i), a_i the last round of client i.

        a_i is -1 before the client's first round.
        """
        self._count()
        return self._longest

    @property
    def tau_avg(self) -> float:
        """The mean over rounds of the longest absence max_i (t - a_i)."""
        self._count()
        return self._sum / max(self._rounds, 1)

    @property
    def coverage(self) -> float:
        """The share of clients seen at least once, in [0, 1]."""
        return float((self.counts > 0).double().mean())

    @property
    def fairness(self) -> float:
        """How far the counts are from even: max_i |n_i - mean| / mean; 0 is perfectly even.

        The deviation e of FedCDR's Table 6 (see :func:`fltune.theory.visits_for_even_counts`), of
        the client that is worst off. 0 while nobody has taken part.
        """
        counts = self.counts.double()
        mean = counts.mean()
        return float((counts - mean).abs().max() / mean) if mean else 0.0

    @property
    def count_cv(self) -> float:
        """The coefficient of variation of the counts, standard deviation / mean.

        About 1 / sqrt(R gamma) after R rounds of independent draws of a share gamma (FedCDR,
        appendix D). 0 while nobody has taken part.
        """
        counts = self.counts.double()
        mean = counts.mean()
        return float(counts.std(correction=0) / mean) if mean else 0.0

    def report(self) -> dict[str, float]:
        """Return absences and counts by name."""
        names = ("tau_max", "tau_avg", "coverage", "fairness", "count_cv")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs: plain numbers and tensors."""
        return {
            "counts": self.counts,  # first: it counts whom the others are about
            "last": torch.from_numpy(self._last),
            "delay_sum": self._sum,
            "tau_max": self._longest,
        }

    def load_state_dict(self, state: dict[str, Any], rounds: int) -> None:
        """Go on from where :meth:`state_dict` was taken, after so many rounds."""
        self._waiting.clear()
        self._rounds = rounds
        self._counts = state["counts"].numpy().copy()
        self._last = state["last"].numpy().copy()
        self._sum = state["delay_sum"]
        self._longest = state["tau_max"]
