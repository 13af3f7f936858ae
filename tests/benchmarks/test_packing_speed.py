"""The benchmark of packs says what it measured."""

import json


def test_json_line_has_every_size(run_program):
    options = ["--workload", "digits", "--members", "1", "3", "--turns", "1", "--json"]
    printed = run_program("packing", *options)
    records = json.loads(printed[-1])
    assert [(r["workload"], r["members"]) for r in records] == [
        ("digits", 0),  # alone
        ("digits", 1),
        ("digits", 3),
    ]
    for record in records:
        assert record["rounds_per_second"] > 0
        assert 0 < record["solver"] < 1
    assert records[0]["ratio"] == 1.0
    assert "worth_packing of digits: 64" in "\n".join(printed)
