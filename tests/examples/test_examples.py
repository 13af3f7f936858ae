"""Every example runs as it is, from a folder of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.search
def test_own_model_and_data_compares_both_methods(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "own_model_and_data.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ranked = [line.split(" ")[0] for line in done.stdout.splitlines() if " test accuracy " in line]
    assert sorted(ranked) == ["FedAvg", "FedGM"]
    assert (tmp_path / "mlruns" / "mlflow.db").exists()  # the default store


def test_every_example_has_a_test():
    assert [path.name for path in EXAMPLES.glob("*.py")] == ["own_model_and_data.py"]
