"""Every example runs as it is, from a folder of its own."""

import contextlib
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from searched_here import search_here

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = {
    "own_model_and_data.py": {"FedAvg", "FedGM"},
    "your_own_algorithm.py": {"FedAvg", "FadingProx"},
    "tune_from_python.py": {"FedAvg", "SCAFFOLD"},
}


def run(*argv, cwd, **environment):
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.search
@pytest.mark.parametrize("script", METHODS)
def test_it_compares_its_methods(script, tmp_path):
    one = {"LOKY_MAX_CPU_COUNT": "1"}  # a second worker would import for longer than it trains
    out = run(sys.executable, EXAMPLES / script, cwd=tmp_path, **one)
    rows = [line.split("│")[1].strip() for line in out.splitlines() if "│" in line]
    assert METHODS[script] <= set(rows)
    assert (tmp_path / "mlruns" / "mlflow.db").exists()  # the default store


def test_results_are_read_into_pandas_from_both_places(tmp_path):
    script = EXAMPLES / "results_to_pandas.py"
    own = runpy.run_path(str(script))["CONFIG"]  # what it searches where no name is given
    search_here({**own, "name": "named"}, tmp_path / "mlruns", "named")
    out = run(sys.executable, script, "named", cwd=tmp_path)
    assert out.count("complete") == 3
    assert "values.client.lr" in out
    assert "metrics.test/accuracy" in out


@pytest.mark.slow
@pytest.mark.search
def test_a_cluster_of_two_nodes_is_made_searched_on_and_ended(tmp_path):
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    root = str(tmp_path / "mlruns")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = EXAMPLES / "cluster.sh"
    out = run("bash", script, cwd=tmp_path, PORT=port, ROOT=root, PATH=path)
    assert "on 2 machines" in out
    assert (tmp_path / "mlruns" / "mlflow.db").exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(port)), timeout=5)


def test_every_example_has_a_test():
    tested = {*METHODS, "results_to_pandas.py", "cluster.sh"}
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == tested


def test_your_own_algorithm_is_short():
    """The promise: a method from outside the package in under 60 lines."""
    lines = (EXAMPLES / "your_own_algorithm.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
