"""Names of methods and labels that hold signs, or look like numbers."""

import pytest
from fake_workers import EXPERIMENT

from fltune import dotted
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig

LR = {"server.lr": {"grid": [0.25, 0.5]}}
WIDER = "space.server.lr={grid: [0.25, 0.5, 1.0]}"


def file(folder, methods, **sections):
    path = folder / "names.yaml"
    raw = {"experiment": EXPERIMENT, "methods": methods, **sections}
    path.write_text(dotted.dump_yaml(raw))
    return path


@pytest.mark.parametrize("name", ["eta=1", "lr=0.1, K=5", "a.space.server.lr=2", 2024, 0.5])
def test_a_value_is_set_on_a_method_of_any_name(tmp_path, name):
    path = file(tmp_path, {name: {"space": LR}, "Other": {"space": LR}})
    config = SearchConfig.read(path, [f"methods.{name}.{WIDER}"])
    assert config.method(str(name)).space.describe() == {"server.lr": "grid 0.25, 0.5, 1.0"}
    assert config.method("Other").space.describe() == {"server.lr": "grid 0.25, 0.5"}


@pytest.mark.parametrize("empty", [None, {"space": None}])
def test_a_value_is_set_on_a_section_that_is_empty(tmp_path, empty):
    config = SearchConfig.read(file(tmp_path, {"A": empty}), [f"methods.A.{WIDER}"])
    assert list(config.method("A").space.entries) == ["server.lr"]


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"A": "fedavg"}, "methods.A: found 'fedavg'; a mapping belongs there"),
        ({"A": {"space": [1]}}, "methods.A.space: found [1]; a mapping belongs there"),
        (["A"], "methods.A.space.server.lr: names no method; known: none"),
    ],
)
def test_a_value_cannot_be_set_on_what_is_no_section(tmp_path, methods, message):
    with pytest.raises(ConfigError) as error:
        SearchConfig.read(file(tmp_path, methods), [f"methods.A.{WIDER}"])
    assert error.value.problems == [message]


@pytest.mark.parametrize("name", ["1e-3", "2E5", "0.1", "on", "null", "012"])
def test_a_text_that_looks_like_a_number_is_a_text_in_the_frozen_file_too(tmp_path, name):
    axes = {"x": {name: {}, "other": {}}}
    config = SearchConfig.read(file(tmp_path, {name: {"space": LR}}, scenarios=axes))
    frozen = tmp_path / "frozen.yaml"
    frozen.write_text(config.as_yaml())
    again = SearchConfig.read(frozen)
    assert {n: m.scenario for n, m in again.methods.items()} == {
        n: m.scenario for n, m in config.methods.items()
    }
    assert again.method(f"{name} @ {name}").scenario == {"method": name, "x": name}


def test_a_label_may_say_what_a_method_is_whose_name_is_a_number(tmp_path):
    axes = {"x": {"plain": {}, "own": {"methods": {2024: {"client": {"lr": 0.3}}}}}}
    tune = {"method": 2024, "share": ["server.lr"]}
    path = file(tmp_path, {2024: {"space": LR}}, scenarios=axes, tune=tune)
    config = SearchConfig.read(path)
    assert config.method("2024 @ own").raw["client"] == {"lr": 0.3}
    assert "client" not in config.method("2024 @ plain").raw
