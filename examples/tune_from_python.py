"""Tune two methods from Python, and read what came out.

    python examples/tune_from_python.py

A search takes a mapping with the sections of a file. What it returns holds the numbers of the
table; the store and ``mlruns/searches/`` hold the rest.
"""

from __future__ import annotations

from rich.console import Console

import fltune

CONFIG = {
    "experiment": {
        "data": {"clients": 40, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"name": "mlp", "hidden": [32]},
        "participation": {"kind": "uniform", "per_round": 8},
        "client": {"lr": 0.1, "epochs": 2, "batch_size": 16},
        "rounds": 30,
        "eval_every": 5,
    },
    "methods": {
        "FedAvg": {"space": {"client.lr": {"loguniform": [0.02, 0.5]}}},
        "SCAFFOLD": {
            "algorithm": {"name": "scaffold"},
            "space": {"client.lr": {"loguniform": [0.02, 0.5]}},
        },
    },
    "search": {"trials": 5, "confirm_seeds": 2},
}

if __name__ == "__main__":
    # One run first, at values of one's own: an experiment is a frozen, checked config.
    experiment = fltune.Experiment.parse(CONFIG["experiment"])
    alone = fltune.run(experiment.with_values({"client.lr": 0.05}))
    print("one run:", alone.message, "- test accuracy", round(alone.metrics["test/accuracy"], 3))

    # The search, with the live display of the command line; without a console it is silent.
    summary = fltune.search(CONFIG, console=Console())
    for name, method in summary.ranked():
        low, high = method.test.low, method.test.high
        print(f"{name}: {method.best}, test accuracy in [{low:.3f}, {high:.3f}]")
        if method.against_best is not None:
            print(f"  {method.against_best.difference.mean:+.4f} to the best, over shared seeds")
