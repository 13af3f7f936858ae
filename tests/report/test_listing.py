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
            assert set(parameter) == {"name", "symbol", "default", "range", "doc"}
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
    for kind in ("algorithms", "servers", "participation", "partitions"):
        for entry in listing(kind):
            for parameter in entry["parameters"]:
                assert parameter["doc"], f"{kind} {entry['name']} {parameter['name']}"


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
        "# command\n#\n# What it is.\nmethods: {A: {}, 1: {}}"
    )
    (tmp_path / "a.yaml").write_text("methods:\n")
    (tmp_path / "notes.txt").write_text("no space")
    first, second = listing("spaces", tmp_path)
    assert first["name"].endswith("a.yaml")
    assert first["methods"] == []
    assert second["summary"] == "What it is."
    assert second["methods"] == ["A", "1"]
    assert listing("spaces", tmp_path / "none") == []


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_listing_prints_every_name_and_parameter(kind):
    console = Console(file=io.StringIO(), width=200)
    entries = listing(kind)
    print_listing(kind, entries, console)
    text = console.file.getvalue()
    for entry in entries:
        assert entry["name"] in text
        for parameter in entry["parameters"]:
            assert f"{parameter['name']} " in text


def test_brackets_in_a_summary_are_no_markup():
    console = Console(file=io.StringIO(), width=100)
    entry = {"name": "x", "summary": "a vector [d]", "parameters": []}
    print_listing("algorithms", [entry], console)
    assert "a vector [d]" in console.file.getvalue()
