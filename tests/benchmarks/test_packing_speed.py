"""The benchmark of packs says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

PATH = Path(__file__).parents[2] / "benchmarks" / "packing.py"


def test_json_line_has_every_size():
    options = ["--workload", "digits", "--members", "1", "3", "--turns", "1", "--json"]
    done = subprocess.run(
        [sys.executable, PATH, *options], capture_output=True, text=True, check=True, timeout=300
    )
    records = json.loads(done.stdout.splitlines()[-1])
    assert [(r["workload"], r["members"]) for r in records] == [
        ("digits", 0),  # alone
        ("digits", 1),
        ("digits", 3),
    ]
    for record in records:
        assert record["rounds_per_second"] > 0
        assert 0 < record["solver"] < 1
    assert records[0]["ratio"] == 1.0
    assert "worth_packing of digits: 16" in done.stdout
