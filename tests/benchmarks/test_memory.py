"""The memory benchmark runs each method in a process of its own and says what it took."""

import json

import pytest


@pytest.mark.parametrize(
    ("cohorts", "rows"),
    [("uniform", range(4, 9)), pytest.param("reshuffled", [8], marks=pytest.mark.slow)],
)
def test_json_line_has_every_method(run_program, cohorts, rows):
    sizes = ["--clients", "80", "--rounds", "2", "--cohorts", cohorts]
    printed = run_program("memory", *sizes, "--method", "scaffold", "fedavg", "--json")
    scaffold, fedavg = json.loads(printed[-1])
    for record in (scaffold, fedavg):
        assert set(record) == {"method", "peak_bytes", "seconds", "rows"}
        assert 2**26 < record["peak_bytes"] < 2**31
        assert record["seconds"] > 0
    assert (scaffold["method"], fedavg["method"]) == ("scaffold", "fedavg")
    assert scaffold["rows"] in rows
    assert fedavg["rows"] == 0  # no client state
