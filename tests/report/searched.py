"""A whole search over digits: four methods, every run trained, all in a store."""

from __future__ import annotations

from pathlib import Path

from searched_here import search_here

RATES = {"server.lr": {"loguniform": [0.3, 3.0]}, "client.lr": {"loguniform": [0.05, 0.5]}}
RAW = {
    "experiment": {
        "data": {"name": "digits", "clients": 20, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "mlp", "hidden": [16]},
        "participation": {"kind": "uniform", "per_round": 4},
        "client": {"lr": 0.2, "epochs": 1, "batch_size": 16},
        "rounds": 6,
        "eval_every": 2,
    },
    "methods": {
        "FedAvg": {"space": RATES},
        "FedGM": {"server": {"name": "fedgm"}, "space": RATES},
        "FedProx": {"algorithm": {"name": "fedprox"}, "space": RATES},
        "SCAFFOLD": {"algorithm": {"name": "scaffold"}, "space": RATES},
    },
    "search": {"trials": 10, "sampler": "random", "confirm_seeds": 2},
}


def search_digits(root: Path, name: str = "digits") -> list[str]:
    """Run it below a folder, send it to the store there; return the settings that find it."""
    return search_here(RAW, root, name)
