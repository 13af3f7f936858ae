"""The store: where it is, what refuses to open, and what ends up in a run."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import fltune.tracking
from fltune.errors import ConfigError
from fltune.tracking import (
    Store,
    TrackingError,
    redact,
    resolve_uri,
    ui_command,
    ui_environment,
    ui_hint,
)

pytestmark = pytest.mark.search

PACKAGE_ROOT = Path(fltune.tracking.__file__).parents[2]
SOON = 100
"""Seconds that nothing here needs, however busy the machine; MLflow by itself waits for minutes."""


def test_explicit_uri_wins_over_environment_and_default(tmp_path):
    environ = {"MLFLOW_TRACKING_URI": "http://tracking:5000"}
    assert resolve_uri("sqlite:////a/b.db", tmp_path, environ) == "sqlite:////a/b.db"
    assert resolve_uri(None, tmp_path, environ) == "http://tracking:5000"
    assert resolve_uri(None, tmp_path, {}) == f"sqlite:///{tmp_path}/mlflow.db"


def test_process_environment_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://tracking")
    assert resolve_uri(None, tmp_path) == "https://tracking"


@pytest.mark.parametrize("given", ["sqlite:///runs/x.db", "runs/x.db", "./runs/../runs/x.db"])
def test_relative_files_become_absolute(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uri = resolve_uri(given, tmp_path, {})
    assert Path(uri.removeprefix("sqlite:///")).is_absolute()
    assert Path(uri.removeprefix("sqlite:///")).resolve() == tmp_path / "runs" / "x.db"


def test_query_of_a_sqlite_uri_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri("sqlite:///x.db?timeout=5", tmp_path) == (
        f"sqlite:///{tmp_path}/x.db?timeout=5"
    )


@pytest.mark.parametrize("given", ["file:///some/mlruns", "file:mlruns", "mlruns", "./mlruns"])
def test_file_store_is_refused_and_sqlite_named(given, tmp_path):
    with pytest.raises(ConfigError, match="use a sqlite file") as caught:
        resolve_uri(given, tmp_path, {})
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI: found the folder"):
        resolve_uri(None, tmp_path, {"MLFLOW_TRACKING_URI": given})


@pytest.mark.parametrize("given", ["ftp://host/x", "sqlite:///:memory:", "sqlite://"])
def test_other_stores_are_refused(given, tmp_path):
    with pytest.raises(ConfigError, match="sqlite:///FILE"):
        resolve_uri(given, tmp_path, {})


def test_passwords_are_not_shown(tmp_path):
    assert redact("postgresql://me:secret@db:5432/runs?sslkey=x") == (
        "postgresql://me:***@db:5432/runs"
    )
    assert "secret" not in ui_hint("https://me:secret@tracking", tmp_path)
    words = ui_command("postgresql://me:secret@db:5432/runs")  # which ps shows to everyone
    assert not any("secret" in word for word in words)


def test_ui_listens_on_this_machine_only(tmp_path):
    uri = resolve_uri(None, tmp_path, {})
    assert ui_environment(uri)["MLFLOW_BACKEND_STORE_URI"] == uri
    argv = ui_command(uri, port=5001)
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--port") + 1] == "5001"
    assert ui_hint(uri, tmp_path) == "python -m fltune ui"
    assert ui_hint("sqlite:////else where.db", tmp_path) == (
        "MLFLOW_TRACKING_URI='sqlite:////else where.db' python -m fltune ui"
    )
    assert ui_command("http://tracking:5000")[-1] == "http://tracking:5000"


def test_the_hint_names_the_store_where_the_environment_names_another(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other:5000")
    uri = resolve_uri(None, tmp_path, {})
    assert ui_hint(uri, tmp_path) == f"MLFLOW_TRACKING_URI={uri} python -m fltune ui"


def test_importing_tracking_does_not_import_mlflow():
    code = "import sys, fltune.tracking; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE_ROOT).returncode == 0


def test_first_database_is_made_silently_and_later_found_again(tmp_path):
    code = (
        "import logging, sys, pathlib; from fltune.tracking import Store, resolve_uri\n"
        "logging.basicConfig(level='INFO')\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "for _ in range(2):\n"
        "    store = Store.open(resolve_uri(None, root, {}), 'e', root / 'artifacts')\n"
        "    store.start_run('r').finish()\n"
        "assert len(store.find({})) == 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mlruns")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["mlruns"]


def test_unwritable_folder_is_one_clear_error(tmp_path):
    blocker = tmp_path / "blocker"
    blocker.write_text("a file where a folder is needed")
    uri = resolve_uri(str(blocker / "mlruns" / "x.db"), tmp_path, {})
    began = time.monotonic()
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        Store.open(uri, "e", tmp_path / "artifacts")
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < SOON


def test_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_text("not a database at all, but long enough to be read as one" * 9)
    with pytest.raises(ConfigError, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/x.db", "e", tmp_path / "artifacts")


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_dead_server_is_refused_quickly(scheme, closed_port, tmp_path, capfd):
    began = time.monotonic()
    with pytest.raises(ConfigError, match=f"127.0.0.1:{closed_port}") as caught:
        Store.open(f"{scheme}://me:secret@127.0.0.1:{closed_port}/x", "e", tmp_path)
    assert time.monotonic() - began < SOON
    assert "secret" not in str(caught.value)
    assert "refused" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_server_that_never_answers_is_refused_in_time(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(ConfigError, match="cannot be opened"):
            Store.open(f"http://127.0.0.1:{silent.getsockname()[1]}", "e", tmp_path)
    assert time.monotonic() - began < SOON


def test_server_that_dies_later_raises_tracking_error(closed_port):
    from mlflow.tracking import MlflowClient

    uri = f"http://me:secret@127.0.0.1:{closed_port}"
    dead = Store(MlflowClient(tracking_uri=uri), uri, "e", "1")
    with pytest.raises(TrackingError, match=f"127.0.0.1:{closed_port}") as caught:
        dead.start_run("r")
    assert "secret" not in str(caught.value)


def test_deleted_experiment_says_how_to_restore(store):
    made = store.client.create_experiment("binned")
    store.client.delete_experiment(made)
    with pytest.raises(ConfigError, match=f"restore --experiment-id {made}"):
        Store.open(store.uri, "binned", Path())


def test_params_and_tags_beyond_one_batch(store):
    params = {f"data.p{number}": number for number in range(230)} | {"long": "x" * 7000}
    with store.start_run("many", params=params, tags={f"t{n}": n for n in range(130)}) as run:
        pass
    found = store.get(run.id)
    assert found.params["data.p229"] == "229"
    assert len(found.params) == 231
    assert len(found.params["long"]) == 6000
    assert found.tags["t129"] == "129"
    assert found.tags["mlflow.source.name"] == "fltune"
    assert found.status == "FINISHED"


def test_changing_a_param_is_a_bug_not_a_dead_store(store):
    run = store.start_run("r", params={"server.lr": 1})
    with pytest.raises(Exception, match="Changing param values") as caught:
        run.log_params({"server.lr": 2})
    assert not isinstance(caught.value, TrackingError)
    run.finish()


def test_curve_by_round_in_batches(store, reader):
    rounds = range(1, 401)
    rows = [{"round": t, "a": float(t), "b": t, "train/loss": 1 / t} for t in rounds]
    with store.start_run("curve") as run:
        run.log_curve(rows)
    assert reader.curve(run.id, "a") == [(t, float(t)) for t in rounds]
    assert reader.curve(run.id, "train/loss") == [(t, 1 / t) for t in rounds]
    assert store.client.get_run(run.id).data.metrics["b"] == 400


def test_rounds_without_a_value_and_text_are_left_out(store, reader):
    rows = [
        {"round": 1, "val/accuracy": None, "note": "x", "done": False},
        {"round": 2, "val/accuracy": 0.5},
    ]
    with store.start_run("sparse") as run:
        run.log_curve(rows)
    assert store.client.get_run(run.id).data.metrics == {"val/accuracy": 0.5}
    assert reader.curve(run.id, "val/accuracy") == [(2, 0.5)]


def test_long_series_are_thinned_but_keep_their_ends(store, reader):
    with store.start_run("long") as run:
        run.log_curve([{"round": t, "loss": t} for t in range(3000)], max_points=100)
        with pytest.raises(ValueError, match="max_points"):
            run.log_curve([{"round": t, "loss": t} for t in range(3)], max_points=1)
    steps = [step for step, _ in reader.curve(run.id, "loss")]
    assert len(steps) == 100
    assert (steps[0], steps[-1]) == (0, 2999)
    gaps = {after - before for before, after in pairwise(steps)}
    assert gaps <= {30, 31}


def test_infinite_values_leave_a_tag_and_no_point(store, reader):
    rows = [
        {"round": 1, "loss": 2.0},
        {"round": 2, "loss": math.inf},
        {"round": 3, "loss": math.nan},
    ]
    with store.start_run("diverged") as run:
        run.log_curve(rows)
    points = reader.curve(run.id, "loss")
    assert [step for step, _ in points] == [1, 3]
    assert math.isnan(points[1][1])
    assert store.get(run.id).tags["fltune.diverged"] == "true"


def test_finite_run_is_not_tagged_diverged(store, reader):
    with store.start_run("fine") as run:
        run.log_curve([{"round": 7, "loss": 1.0}])
    assert reader.curve(run.id, "loss") == [(7, 1.0)]
    assert "fltune.diverged" not in store.get(run.id).tags


def test_artifacts_and_note(store, reader):
    with store.start_run("artifacts") as run:
        run.log_text("rounds: 3\n", "experiment.yaml")
        run.log_dict({"a": 1}, "a.json")
        run.log_text("1,2\n", "tables/curve.csv")
        run.set_note("**won** " + "x" * 9000)
    assert reader.artifact(run.id, "experiment.yaml") == "rounds: 3\n"
    assert reader.artifact(run.id, "a.json").split() == ["{", '"a":', "1", "}"]
    assert reader.artifact(run.id, "tables/curve.csv") == "1,2\n"
    note = store.get(run.id).tags["mlflow.note.content"]
    assert note.startswith("**won**")
    assert len(note) == 8000


def test_error_in_the_block_kills_the_run(store):
    run = store.start_run("killed")
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt
    assert store.get(run.id).status == "KILLED"


def test_find_takes_any_name(store):
    name = """it's "odd" """
    with store.start_run("odd", tags={"fltune.search": name, "also": "1"}) as run:
        pass
    store.start_run("other", tags={"fltune.search": "plain", "also": "1"}).finish()
    assert [found.id for found in store.find({"fltune.search": name, "also": "1"})] == [run.id]
