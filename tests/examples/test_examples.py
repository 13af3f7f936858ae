"""Every example runs as it is, from a folder of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = {
    "own_model_and_data.py": {"FedAvg", "FedGM"},
    "your_own_algorithm.py": {"FedAvg", "FadingProx"},
}


@pytest.mark.search
@pytest.mark.parametrize("script", METHODS)
def test_it_compares_its_methods(script, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1].strip() for line in done.stdout.splitlines() if "│" in line]
    assert METHODS[script] <= set(rows)
    assert (tmp_path / "mlruns" / "mlflow.db").exists()  # the default store


def test_every_example_has_a_test():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(METHODS)


def test_your_own_algorithm_is_short():
    """The promise: a method from outside the package in under 60 lines."""
    lines = (EXAMPLES / "your_own_algorithm.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
