"""A search in packs, whose workers are killed while they hold several runs."""

import pytest
from night import SEARCH, Night, kill

PACKED = {
    **SEARCH,
    "experiment": {
        **SEARCH["experiment"],
        "model": {"name": "mlp", "hidden": [64]},
        "rounds": 1500,
        "eval_every": 50,
    },
    "methods": {
        "FedGM": {
            "server": {"name": "fedgm"},
            "space": {"server.lr": {"grid": [0.5, 1e30, 1.5]}, "server.beta": {"grid": [0.7, 0.9]}},
        },
    },
    "search": {"trials": 6, "confirm_seeds": 1, "pack": 3},
}


@pytest.mark.slow
def test_a_killed_worker_costs_no_run_and_doubles_none(tmp_path):
    night = Night(tmp_path, raw=PACKED)
    try:
        command = night.search()
        for victim in command.until(command.workers, "a worker is at work"):
            kill(victim)
        command.until(night.ended(1), "a run to end")
        for victim in command.workers():
            kill(victim)
        night.done(command)
    finally:
        night.end()
    runs = [(r["kind"], r["number"], r["seed"]) for r in night.records()]
    assert len(runs) == len(set(runs)) == 7
    statuses = {r["number"]: r["status"] for r in night.records() if r["kind"] == "trial"}
    assert statuses == {n: "diverged" if n in (2, 3) else "complete" for n in range(6)}
    for record in night.records():
        rounds = [row["round"] for row in record["rows"]]
        assert rounds == sorted(set(rounds))  # a dead worker's rows are not kept beside the next's
    night.tracked()  # no run is there twice
