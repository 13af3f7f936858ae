"""Label skew from the side of the classes: each class has its own shares of the clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fltune.data.dirichlet import (
    DirichletShares,
    concentration,
    dirichlet_shares,
    log_gamma_draws,
)
from fltune.data.partition import Ints, cut
from fltune.parameters import parameter


@dataclass(frozen=True)
class DirichletClass(DirichletShares):
    """Label skew: the shares of the clients in each class are drawn from a Dirichlet distribution.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks" (2019, section
    4); Li et al., "Federated Learning on Non-IID Data Silos" (2022, NIID-Bench, section IV-B). For
    each class c of n_c samples::

        p_c ~ Dir_N(alpha),    P_cj = p_c1 + ... + p_cj
        client j takes the class's shuffled samples from floor(n_c P_c,j-1) up to floor(n_c P_cj)

    Sizes vary; redrawn and repaired as :class:`DirichletShares` says, which lists the errors.
    """

    alpha: float = concentration(
        "towards 0 a class has one owner, towards infinity clients are iid"
    )
    balance: bool = parameter(
        False, "NIID-Bench: a client that holds n/N samples gets none of the further classes"
    )

    def draw_counts(self, class_sizes: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """Draw int64 ``[classes, N]``: how many samples of each class each client takes."""
        logs = log_gamma_draws(self.alpha, (len(class_sizes), num_clients), rng)
        if not self.balance:
            return cut(class_sizes, dirichlet_shares(logs, self.alpha))
        counts = np.zeros(logs.shape, np.int64)
        held = np.zeros(num_clients, np.int64)
        for c in range(len(class_sizes)):
            # Masked before it is normalised: at tiny alpha the shares left over may all round to 0.
            # Not everyone is full, or all n samples were dealt and class c would be empty.
            full = held * num_clients >= class_sizes.sum()
            shares = dirichlet_shares(np.where(full, -np.inf, logs[c : c + 1]), self.alpha)
            counts[c] = cut(class_sizes[c : c + 1], shares)[0]
            held += counts[c]
        return counts
