import contextlib
import json
import signal
import subprocess
import sys
import time

import pytest
import yaml

from fltune.errors import FltuneError
from fltune.search.search import search
from fltune.tracking import Store

PLAIN = {
    "experiment": {"data": {"name": "digits", "clients": 10}, "rounds": 5, "seed": 40},
    "methods": {
        "One": {"space": {"client.lr": {"grid": [0.1, 0.2, 0.3]}}},
        "Two": {"space": {"client.lr": {"loguniform": [0.1, 1.0]}}},
    },
    "search": {"trials": 3, "confirm_seeds": 2, "metric": "val/loss"},
}


@pytest.fixture(scope="module")
def mixed(own_config, tmp_path_factory):
    """One search in which runs break, diverge, are stopped early, and are walked as a grid."""
    root = tmp_path_factory.mktemp("mixed") / "mlruns"
    methods = {
        "Broken": {"space": {"model.width": {"grid": [4, 3, 5]}}},
        "Hopeless": {"model": {"width": 3}, "space": {"server.lr": {"grid": [1.0, 2.0]}}},
        "Diverging": {"space": {"server.lr": {"grid": [1.0, 1e30]}}},
        "Grid": {
            "server": {"name": "fedgm"},
            "space": {"server.lr": {"grid": [0.5, 1.0]}, "server.beta": {"choice": [0.5, 0.9]}},
        },
        "Stopped": {"rounds": 12, "space": {"client.lr": {"grid": [0.5, 0.3, 1e-4, 1e-5, 1e-6]}}},
    }
    raw = {
        **own_config,
        "experiment": {**own_config["experiment"], "server": {"name": "fedavg"}},
        "methods": methods,
        "search": {
            "trials": 5,
            "confirm_seeds": 1,
            "concurrent": 1,
            "scheduler": "asha",
            "grace": 4,
            "reduction": 2,
        },
        "tracking": {"root": str(root), "experiment": "mixed"},
    }
    summary = search(raw, name="mixed")
    store = Store.open(f"sqlite:///{root / 'mlflow.db'}", "mixed", root / "artifacts")
    lines = (root / "searches" / "mixed" / "trials.jsonl").read_text().splitlines()
    return summary, store, [json.loads(line) for line in lines]


def trials(mixed, method):
    kept = [r for r in mixed[2] if r["method"] == method and r["kind"] == "trial"]
    return sorted(kept, key=lambda r: r["number"])


@pytest.mark.search
def test_a_trial_that_raises_is_failed_with_its_message_and_the_others_go_on(mixed):
    statuses = {r["values"]["model.width"]: r["status"] for r in trials(mixed, "Broken")}
    assert statuses[3] == "failed"
    assert statuses[4] == "complete"
    broken = next(r for r in trials(mixed, "Broken") if r["status"] == "failed")
    assert "a width of 3 is bad luck" in broken["message"]
    assert broken["scores"] == []
    summary = mixed[0].methods["Broken"]
    assert summary.failed == 1
    assert summary.best["model.width"] in (4, 5)
    assert summary.test.seeds == 1
    (run,) = mixed[1].find({"fltune.method": "Broken", "fltune.status": "failed"})
    assert run.status == "FAILED"
    assert "a width of 3 is bad luck" in run.tags["fltune.stop_reason"]


@pytest.mark.search
def test_a_method_of_which_every_trial_fails_leaves_the_others_alone(mixed):
    lost = mixed[0].methods["Hopeless"]
    assert (lost.best, lost.val, lost.test, lost.failed) == ({}, None, None, 2)
    (run,) = mixed[1].find({"fltune.method": "Hopeless", "fltune.kind": "method"})
    assert run.status == "FAILED"
    assert run.tags["fltune.stop_reason"] == "no trial completed"


@pytest.mark.search
def test_a_run_that_diverges_is_recorded_as_such_and_never_wins(mixed):
    good, bad = trials(mixed, "Diverging")
    assert (good["status"], bad["status"]) == ("complete", "diverged")
    assert bad["scores"] == [0.0]
    assert "diverged in round" in bad["message"]
    summary = mixed[0].methods["Diverging"]
    assert (summary.best, summary.diverged) == ({"server.lr": 1.0}, 1)
    (run,) = mixed[1].find({"fltune.method": "Diverging", "fltune.status": "diverged"})
    assert run.status == "FAILED"


@pytest.mark.search
def test_an_exact_grid_runs_each_cell_once_in_order(mixed):
    cells = [(r["values"]["server.lr"], r["values"]["server.beta"]) for r in trials(mixed, "Grid")]
    assert cells == [(0.5, 0.5), (0.5, 0.9), (1.0, 0.5), (1.0, 0.9)]


@pytest.mark.search
def test_asha_stops_trials_which_are_pruned_and_never_win(mixed):
    runs = trials(mixed, "Stopped")
    pruned = [r for r in runs if r["status"] == "pruned"]
    assert runs[0]["status"] == "complete"  # the first has nobody above it
    assert len(pruned) >= 2
    for run in pruned:
        assert 4 <= run["rows"][-1]["round"] < 12
        assert run["message"] == (
            f"stopped early by the scheduler after {run['rows'][-1]['round']:g} rounds"
        )
        assert run["client_samples"] == run["rows"][-1]["round"] * 4 * 2 * 8  # what it cost
    summary = mixed[0].methods["Stopped"]
    assert summary.pruned == len(pruned)
    assert summary.best["client.lr"] in {r["values"]["client.lr"] for r in runs if r not in pruned}
    found = mixed[1].find({"fltune.method": "Stopped", "fltune.status": "pruned"})
    assert len(found) == len(pruned)
    assert {run.status for run in found} == {"FINISHED"}


@pytest.mark.search
def test_what_is_not_stopped_is_complete_with_all_its_rounds(mixed):
    for run in mixed[2]:
        rounds = [row["round"] for row in run["rows"]]
        assert rounds == sorted(set(rounds))
        if run["status"] == "complete":
            assert rounds[-1] == (12 if run["method"] == "Stopped" else 4)
    assert {r["status"] for r in mixed[2] if r["kind"] == "confirmation"} == {"complete"}


@pytest.mark.search
def test_confirmations_are_never_stopped_early(mixed):
    (again,) = [r for r in mixed[2] if r["method"] == "Stopped" and r["kind"] == "confirmation"]
    assert again["rows"][-1]["round"] == 12


@pytest.mark.search
def test_a_search_of_which_every_trial_fails_says_why(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def no_ray(settings):
        yield 1

    def broken(campaign, config, concurrent):
        n = 0
        while campaign.next(f"t{n}") != "done":
            campaign.started(f"t{n}")
            campaign.ended(f"t{n}", "RuntimeError: bad luck")
            n += 1

    monkeypatch.setattr("fltune.search.session.ray_session", no_ray)
    monkeypatch.setattr("fltune.search.session.run_campaign", broken)
    raw = {**PLAIN, "tracking": {"root": str(tmp_path / "mlruns")}}
    with pytest.raises(FltuneError) as caught:
        search(raw, methods=["One"], name="lost")
    assert str(caught.value) == "every trial failed; the first one said: RuntimeError: bad luck"
    assert caught.value.exit_code == 1
    assert (tmp_path / "mlruns/searches/lost/trials.jsonl").read_text().count("\n") == 3
    store = Store.open(
        f"sqlite:///{tmp_path / 'mlruns/mlflow.db'}", "config", tmp_path / "artifacts"
    )
    runs = store.find({"fltune.search": "lost"})
    statuses = {run.tags["fltune.kind"]: run.status for run in runs}
    assert statuses == {"search": "KILLED", "method": "KILLED", "trial": "FAILED"}


def test_ray_that_does_not_start_is_an_error_in_words_and_the_search_can_go_on(
    tmp_path, monkeypatch
):
    def late(**arguments):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", late)
    raw = {**PLAIN, "tracking": {"root": str(tmp_path / "mlruns")}}
    with pytest.raises(FltuneError) as caught:
        search(raw, methods=["One"], name="busy")
    said, then = str(caught.value).splitlines()
    assert said == (
        "Ray does not start on this machine: The current node timed out during startup."
    )
    assert then.startswith("go on with: ")
    assert "python -m fltune resume busy" in then
    assert (tmp_path / "mlruns/searches/busy/search.yaml").exists()


@pytest.mark.search
@pytest.mark.parametrize(
    ("number", "code", "begun"), [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)]
)
def test_a_signal_ends_the_whole_search(tmp_path, number, code, begun):
    raw = {
        **PLAIN,
        "experiment": {**PLAIN["experiment"], "rounds": 100_000, "eval_every": 50_000},
        "tracking": {"root": "mlruns"},
    }
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(raw))
    argv = [sys.executable, "-m", "fltune", "search", "long.yaml", "--name", "long"]
    journal = tmp_path / "mlruns/searches/long/journal.jsonl"
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            patience = time.monotonic() + 90
            while time.monotonic() < patience and not journal.exists():
                time.sleep(0.2)
            while time.monotonic() < patience and begun and not journal.stat().st_size:
                time.sleep(0.2)  # then Ray has started, and the first run is out
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert "go on with: python -m fltune resume long" in err
    assert not [line for line in err.splitlines() if "Traceback" in line or "***" in line]
    database = tmp_path / "mlruns/mlflow.db"
    store = Store.open(f"sqlite:///{database}", "long", tmp_path / "artifacts")
    runs = store.find({"fltune.search": "long"})
    assert [run.status for run in runs] == ["KILLED"] * 3  # the search and its two methods
