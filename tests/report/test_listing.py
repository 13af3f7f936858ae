import io
import json

import pytest
from rich.console import Console

from fltune.errors import ConfigError
from fltune.report.listing import KINDS, REGISTRIES, listing, print_listing


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_component_is_listed_with_what_it_is(kind):
    entries = listing(kind)
    assert [e["name"] for e in entries] == list(REGISTRIES[kind])
    for entry in entries:
        assert entry["summary"], entry["name"]
        for parameter in entry["parameters"]:
            keys = {"name", "symbol", "default", "required", "range", "doc"}
            assert set(parameter) == keys
    json.dumps(entries, allow_nan=False, default=str)


def test_parameters_carry_their_range_symbol_and_default():
    fedgm = next(e for e in listing("servers") if e["name"] == "fedgm")
    found = {p["name"]: p for p in fedgm["parameters"]}
    assert found["lr"]["range"] == "> 0"
    assert found["beta"]["range"] == "in [0, 1)"
    assert found["nu"]["symbol"]
    uniform = next(e for e in listing("participation") if e["name"] == "uniform")
    assert [p["range"] for p in uniform["parameters"]] == [">= 1"]


def test_the_papers_own_components_are_documented_parameter_by_parameter():
    undocumented = {"datasets", "models"}  # their constructors are torch's or the user's
    for kind in set(REGISTRIES) - undocumented:
        for entry in listing(kind):
            for parameter in entry["parameters"]:
                assert parameter["doc"], f"{kind} {entry['name']} {parameter['name']}"


def test_algorithms_are_listed_with_their_paper_and_costs():
    """As the papers count them: floats per active client and round, and vectors kept."""
    entries = {e["name"]: e for e in listing("algorithms")}
    for entry in entries.values():
        assert entry["paper"]
        assert entry["down"] >= 1
        assert entry["up"] >= 1
        assert entry["memory"].startswith("server ")
        assert "client " in entry["memory"]
    costs = {name: entries[name]["communication"] for name in ("fedavg", "scaffold", "fednova")}
    assert costs == {
        "fedavg": "d down, d up",
        "scaffold": "2d down, 2d up",
        "fednova": "d down, d + 1 up",
    }
    assert (entries["feddc"]["down"], entries["feddc"]["up"]) == (2, 2)
    assert entries["fedsum_cr"]["memory"] == "server 2d, client 2d + 1"
    assert "down" not in listing("servers")[0]


def test_a_parameter_without_a_default_is_required():
    (per_client,) = (e for e in listing("work") if e["name"] == "per_client")
    (amounts,) = per_client["parameters"]
    assert (amounts["required"], amounts["default"], amounts["range"]) == (True, None, ">= 1")
    assert "amounts (>= 1) required: " in printed("work", [per_client], 200)
    topk = next(e for e in listing("compressors") if e["name"] == "topk")
    text = printed("compressors", [topk], 200)
    assert "k (k, >= 1) = null: " in text
    assert "error_feedback = false: " in text


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown kind 'server'; did you mean 'servers'"):
        listing("server")
    with pytest.raises(ConfigError) as caught:
        listing("model")
    assert "did you mean 'models'?" in str(caught.value)
    assert all(kind in str(caught.value) for kind in KINDS)


def test_spaces_are_the_files_of_a_folder(tmp_path):
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "b.yaml").write_text(
        "# command\n#\n# What it is, on\n# two lines. And more.\nmethods: {A: {}, 1: {}}"
    )
    (tmp_path / "a.yaml").write_text("methods:\n")
    (tmp_path / "notes.txt").write_text("no space")
    first, second = listing("spaces", tmp_path)
    assert first["name"].endswith("a.yaml")
    assert first["methods"] == []
    assert second["summary"] == "What it is, on two lines"
    assert second["methods"] == ["A", "1"]
    (tmp_path / "none").mkdir()
    assert listing("spaces", tmp_path / "none") == []


def printed(kind, entries, width):
    console = Console(file=io.StringIO(), width=width)
    print_listing(kind, entries, console)
    return console.file.getvalue()


def test_spaces_are_printed_by_folder_and_names_are_whole():
    files = ["spaces/a.yaml", "spaces/papers/fedgm/a-long-name-of-thirty-three-signs.yaml"]
    rest = {"summary": "what it shows", "methods": ["FedAvg"], "problem": "a problem"}
    text = printed("spaces", [{"name": file, **rest} for file in files], 100)
    for part in (" spaces/ ", " a.yaml ", " spaces/papers/fedgm/ ", "-signs.yaml "):
        assert part in text


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_listing_prints_every_name_and_parameter(kind):
    entries = listing(kind)
    text = printed(kind, entries, 200)
    for entry in entries:
        assert entry["name"] in text
        for parameter in entry["parameters"]:
            assert f"{parameter['name']} " in text


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_hundred_columns_are_enough(kind):
    """No line is longer, and no name, cost or parameter is cut in two."""
    entries = listing(kind)
    text = printed(kind, entries, 100)
    assert max(map(len, text.splitlines())) <= 100
    for entry in entries:
        assert f" {entry['name']} " in text
        if "memory" in entry:
            assert f"sends {entry['communication']} " in text
            assert "keeps server " in text
        for parameter in entry["parameters"]:
            assert f" {parameter['name']} " in text


def test_brackets_in_a_summary_are_no_markup():
    entry = {"name": "x", "summary": "a vector [d]", "parameters": []}
    assert "a vector [d]" in printed("algorithms", [entry], 100)
