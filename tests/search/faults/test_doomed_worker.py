"""A config that takes its worker with it every time, as one that needs too much memory."""

import pytest
from night import SEARCH, Night

DOOMED = {
    **SEARCH,
    "methods": {
        "FedGM": {"server": {"name": "fedgm"}, "space": {"model.width": {"grid": [8, 3, 6]}}},
        "Doomed": {"server": {"name": "fedavg"}, "space": {"model.width": {"grid": [3]}}},
    },
    "search": {"confirm_seeds": 1},
}


@pytest.mark.slow
def test_a_config_that_kills_its_worker_each_time_fails_and_the_others_go_on(tmp_path):
    night = Night(tmp_path, raw=DOOMED)
    try:
        command = night.done(night.search())
    finally:
        night.end()
    runs = {(r["method"], r["kind"], r["values"]["model.width"]): r for r in night.records()}
    statuses = {key: run["status"] for key, run in runs.items()}
    best = next(width for *run, width in runs if run == ["FedGM", "confirmation"])
    assert statuses == {
        ("FedGM", "trial", 8): "complete",
        ("FedGM", "trial", 3): "failed",
        ("FedGM", "trial", 6): "complete",
        ("FedGM", "confirmation", best): "complete",
        ("Doomed", "confirmation", 3): "failed",  # its only config needs no trial
    }
    lost = runs["FedGM", "trial", 3]
    assert (lost["rows"], lost["scores"]) == ([], [])
    assert lost["message"].startswith("lost its worker 3 times: ")
    assert "worker process has died" in lost["message"]
    assert len(lost["message"]) < 250
    assert f"model.width=3  ({lost['message']})" in command.out
    assert night.tracked()["trial FedGM trial 1"][0] == "FAILED"
