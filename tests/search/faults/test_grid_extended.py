"""FedGM's printed grid, cell by cell, and an extension that runs only what is new."""

import json

import pytest
from night import Night

RATES = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]
SHARES = [0.7, 0.9, 0.95]

FEDGM = {
    "experiment": {
        "data": {"name": "digits", "clients": 10},
        "model": {"name": "drowsy:Net"},
        "participation": {"kind": "uniform", "per_round": 2},
        "client": {"lr": 0.1, "steps": 1, "batch_size": 8},
        "rounds": 3,
    },
    "methods": {
        "FedGM": {
            "server": {"name": "fedgm"},
            "space": {
                "server.lr": {"grid": RATES},
                "server.beta": {"grid": SHARES},
                "server.nu": {"grid": SHARES},
            },
        }
    },
    "search": {"sampler": "grid", "confirm_seeds": 2, "metric": "val/loss"},
}


def cells(rates):
    return {(lr, beta, nu) for lr in rates for beta in SHARES for nu in SHARES}


def cells_run(records):
    """The cells of trials, in the order of the log; each is to be there once."""
    run = [tuple(r["values"].values()) for r in records if r["kind"] == "trial"]
    assert len(run) == len(set(run))
    return set(run)


def confirmed(records):
    # two run at once, and either may end first
    return sorted((r["number"], r["seed"]) for r in records if r["kind"] == "confirmation")


def winner(records):
    whole = [r for r in records if r["kind"] == "trial" and r["status"] == "complete"]
    return min(whole, key=lambda r: (r["scores"][0], r["number"]))["number"]


def extend(night, rates):
    key = "methods.FedGM.space.server.lr"
    value = json.dumps({"grid": rates})
    command = night.done(night.command("extend", night.name, "--set", f"{key}={value}", "--json"))
    return json.loads(command.out.splitlines()[-1])["methods"]["FedGM"]


@pytest.mark.slow
def test_a_wider_grid_runs_its_new_cells_and_confirms_a_new_winner_only(tmp_path):
    night = Night(tmp_path, raw=FEDGM)
    try:
        night.done(night.search())
        first = night.records()
        assert cells_run(first) == cells(RATES)
        assert confirmed(first) == [(winner(first), 1), (winner(first), 2)]

        extend(night, [*RATES, 5.5, 6.0])
        second = night.records()
        assert second[: len(first)] == first
        assert cells_run(second) == cells([*RATES, 5.5, 6.0])
        again = [] if winner(second) == winner(first) else [(winner(second), s) for s in (1, 2)]
        assert confirmed(second[len(first) :]) == again

        found = extend(night, [*RATES, 5.5, 6.0, 1e-4])  # far too small to win
        third = night.records()
        assert cells_run(third[len(second) :]) == cells([1e-4])
        assert winner(third) == winner(second)
        assert confirmed(third[len(second) :]) == []
        assert found["trials"] == 90 + 18 + 9
        tracked = night.tracked()
        assert sum(key.startswith("trial ") for key in tracked) == 90 + 18 + 9
        assert sum(key.startswith("method ") for key in tracked) == 1
    finally:
        night.end()
