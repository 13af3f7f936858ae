"""The benchmark of the search adds its parts up, on a search that is too short to say anything."""

import json

import pytest


@pytest.mark.slow
@pytest.mark.search
def test_json_line_tells_where_the_time_went(run_program):
    short = ["--trials", "4", "--rounds", "5", "--workers", "1", "--sample", "2"]
    found = json.loads(run_program("search_overhead", *short, "--json")[-1])
    assert (found["trials"], found["workers"], found["sampled"]) == (4, 1, 2)
    for part in ("ray_start", "imports", "search", "end", "trained", "plain"):
        assert found[part] > 0, part
    # one worker cannot train for longer than the search lasted
    assert found["ratio"] == pytest.approx(found["search"] / found["trained"])
    assert found["ratio"] >= 1
    assert found["plain_ratio"] == pytest.approx(found["search"] / found["plain"])
