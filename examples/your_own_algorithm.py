"""Add a federated method from outside the package, and tune it beside FedAvg.

    python examples/your_own_algorithm.py

The method is FedProx with a proximal weight that fades over the rounds: mu_t = mu / (t + 1). An
algorithm is a frozen dataclass of hyperparameters with pure functions on flat vectors; see
``fltune/algorithms/base.py`` for the whole contract.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

import fltune
from fltune.algorithms.base import Algorithm
from fltune.federation.local import LocalProblem
from fltune.parameters import parameter


@dataclass(frozen=True)
class FadingProx(Algorithm):
    """Local objective f_i(w) + mu / (2 (t + 1)) |w - x|^2; everything else is FedAvg."""

    mu: float = parameter(0.1, "proximal weight of round 0; 0 is FedAvg", symbol="mu", ge=0)

    def local_problem(self, x, server, client, info):
        """Pull every client toward the model it received."""
        return LocalProblem(start=x, mu=self.mu / (info.round + 1), anchor=x)


CONFIG = {
    "experiment": {
        "data": {"clients": 50, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "participation": {"kind": "uniform", "per_round": 10},
        "client": {"lr": 0.1, "epochs": 2, "batch_size": 16},
        "rounds": 40,
        "eval_every": 5,
    },
    "methods": {
        "FedAvg": {"space": {"client.lr": {"loguniform": [0.03, 0.3]}}},
        "FadingProx": {
            "algorithm": {"name": "your_own_algorithm:FadingProx"},
            "space": {
                "client.lr": {"loguniform": [0.03, 0.3]},
                "algorithm.mu": {"loguniform": [0.001, 1.0]},
            },
        },
    },
    "search": {"trials": 5, "confirm_seeds": 2},
}

if __name__ == "__main__":
    fltune.search(CONFIG, console=Console())
