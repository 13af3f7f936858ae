"""A small search of digits, and how to run a command on one."""

import contextlib
import io

import pytest

DIGITS = {
    "experiment": {
        "data": {"name": "digits", "clients": 20, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "mlp", "hidden": [16]},
        "participation": {"kind": "uniform", "per_round": 5},
        "client": {"lr": 0.2, "steps": 4, "batch_size": 16},
        "rounds": 8,
        "eval_every": 2,
    },
    "methods": {
        "FedAvg": {
            "server": {"name": "fedavg"},
            "space": {"server.lr": {"loguniform": [0.3, 3.0]}},
        },
        "FedGM": {
            "server": {"name": "fedgm", "nu": 0.9},
            "space": {"server.lr": {"grid": [0.5, 1.5]}, "server.beta": {"choice": [0.7, 0.9]}},
        },
    },
    "search": {"trials": 4, "average_last": 2, "confirm_seeds": 2, "concurrent": 1},
}


def command(*argv, root):
    """Run a command that ends well on the store in ``root``; return what it printed."""
    from fltune.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main([*map(str, argv), "--set", f"tracking.root={root}"])
    assert ended.value.code == 0, out.getvalue()
    return out.getvalue()
