"""The memory benchmark runs each method in a process of its own and says what it took."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.parametrize(
    ("cohorts", "rows"),
    [("uniform", range(4, 9)), pytest.param("reshuffled", [8], marks=pytest.mark.slow)],
)
def test_json_line_has_every_method(cohorts, rows):
    sizes = ["--clients", "80", "--rounds", "2", "--cohorts", cohorts]
    command = [sys.executable, PATH, *sizes, "--method", "scaffold", "fedavg", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    scaffold, fedavg = json.loads(done.stdout.splitlines()[-1])
    for record in (scaffold, fedavg):
        assert set(record) == {"method", "peak_bytes", "seconds", "rows"}
        assert 2**26 < record["peak_bytes"] < 2**31
        assert record["seconds"] > 0
    assert (scaffold["method"], fedavg["method"]) == ("scaffold", "fedavg")
    assert scaffold["rows"] in rows
    assert fedavg["rows"] == 0  # no client state
