"""Scenarios: what a file with axes means, cell by cell."""

import pytest
import yaml
from good_search import assert_the_frozen_file_says_the_same

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.scenarios import Inherit

FILE = """
experiment:
  data: {name: digits, clients: 20, partition: {kind: dirichlet, alpha: 0.5}}
  participation: {kind: uniform, per_round: 5}
  client: {lr: 0.1, steps: 2}
  rounds: 4
methods:
  FedAvg: {space: {client.lr: {grid: [0.1, 0.2]}, server.lr: {grid: [0.5, 1.0]}}}
  FedGM: {server: {name: fedgm}, space: {server.beta: {choice: [0.7, 0.9]}}}
scenarios:
  pattern: {P1: {participation.kind: uniform}, P2: {participation.kind: bernoulli}}
  alpha: {mild: {data.partition.alpha: 1.0}, harsh: {data.partition.alpha: 0.1}}
search: {trials: 4}
"""


def file(**changes):
    return {**yaml.safe_load(FILE), **changes}


def read(**changes):
    return SearchConfig.parse(file(**changes), "my.yaml")


def problems_of(**changes):
    with pytest.raises(ConfigError) as caught:
        read(**changes)
    return caught.value.problems


def test_every_method_stands_in_every_cell_with_its_settings():
    config = read()
    assert list(config.methods) == [
        f"{m} @ {p}, {a}"
        for p in ("P1", "P2")
        for a in ("mild", "harsh")
        for m in file()["methods"]
    ]
    harsh = config.method("FedGM @ P2, harsh")
    assert harsh.scenario == {"method": "FedGM", "pattern": "P2", "alpha": "harsh"}
    assert harsh.raw["data"]["partition"] == {"kind": "dirichlet", "alpha": 0.1}
    assert harsh.raw["data"]["clients"] == 20
    assert all(m.inherit is None for m in config.methods.values())


def test_a_key_of_another_component_does_not_survive_the_switch():
    config = read()
    assert config.method("FedAvg @ P1, mild").raw["participation"] == {
        "kind": "uniform",
        "per_round": 5,
    }
    assert config.method("FedAvg @ P2, mild").raw["participation"] == {"kind": "bernoulli"}


def test_a_cell_of_nothing_is_the_base_itself():
    config = read(scenarios={"pattern": {"P1": None, "P2": {}}})
    assert [m.raw["participation"]["per_round"] for m in config.methods.values()] == [5] * 4


def test_a_section_and_a_dotted_key_of_it_go_together():
    cell = {"participation.per_round": 3, "participation": {"kind": "uniform"}}
    raw = read(scenarios={"pattern": {"P1": cell}}).method("FedAvg @ P1").raw
    assert raw["participation"] == {"kind": "uniform", "per_round": 3}


def test_labels_that_look_like_numbers_are_labels():
    axes = {"alpha": {0.1: {"data.partition.alpha": 0.1}, 1: {"data.partition.alpha": 1.0}}}
    config = read(scenarios=axes, tune={"at": {"alpha": 0.1}})
    assert config.method("FedAvg @ 1").inherit.source == "FedAvg @ 0.1"
    assert config.method("FedAvg @ 0.1").inherit is None


def test_rates_are_tuned_at_the_cell_of_the_same_other_axes():
    config = read(tune={"at": {"pattern": "P1"}, "then": "freeze"})
    sources = {name: m.inherit and m.inherit.source for name, m in config.methods.items()}
    for method in ("FedAvg", "FedGM"):
        for alpha in ("mild", "harsh"):
            assert sources[f"{method} @ P1, {alpha}"] is None
            assert sources[f"{method} @ P2, {alpha}"] == f"{method} @ P1, {alpha}"


def test_one_method_finds_the_rates_at_one_cell_for_all_others_everywhere():
    at = {"pattern": "P1", "alpha": "mild"}
    config = read(tune={"method": "FedAvg", "share": ["client.lr"], "at": at, "then": "freeze"})
    for name, method in config.methods.items():
        if name == "FedAvg @ P1, mild":
            assert method.inherit is None
        else:
            assert method.inherit == Inherit("FedAvg @ P1, mild", ("client.lr",))


def test_one_method_finds_the_rates_at_a_label_of_one_axis_for_the_cells_beside_it():
    config = read(tune={"method": "FedAvg", "share": ["client.lr"], "at": {"pattern": "P1"}})
    for method in ("FedAvg", "FedGM"):
        for alpha in ("mild", "harsh"):
            source = config.method(f"{method} @ P2, {alpha}").inherit.source
            assert source == f"FedAvg @ P1, {alpha}"


@pytest.mark.parametrize("axes", [{}, {"pattern": {"P1": {}, "P2": {}}}])
def test_one_method_finds_the_rates_of_all_others_in_its_cell(axes):
    config = read(scenarios=axes, tune={"method": "FedAvg", "share": ["client.lr", "server.lr"]})
    for name, method in config.methods.items():
        if name.startswith("FedAvg"):
            assert method.inherit is None
        else:
            assert method.inherit.source == name.replace("FedGM", "FedAvg")
            assert method.inherit.keys == ("client.lr", "server.lr")


def test_a_methods_own_setting_wins_over_the_axis_and_is_named():
    methods = file()["methods"]
    methods["FedGM"]["data"] = {"partition": {"alpha": 0.1}}
    config = read(methods=methods)
    assert config.method("FedGM @ P1, mild").raw["data"]["partition"]["alpha"] == 0.1
    (note,) = config.notes
    assert note.startswith("FedGM: its own data.partition.alpha (0.1) takes the place of what the")
    methods["FedGM"]["space"]["data.partition.alpha"] = {"grid": [0.2, 0.3]}
    assert "(searched)" in read(methods=methods).notes[0]
    assert read().notes == ()


def test_a_bare_name_takes_the_place_of_a_whole_section_and_is_named():
    methods = file()["methods"]
    axes = {"rate": {"high": {"server.lr": 2.0}, "low": {"server.lr": 0.5}}}
    methods["FedGM"] = {"server": "fedadam", "space": {"client.lr": {"grid": [0.1, 0.2]}}}
    notes = read(methods=methods, scenarios=axes).notes
    (note,) = [n for n in notes if n.startswith("FedGM: ")]
    assert note.startswith("FedGM: its own server (fedadam) takes the place of what the axis 'rat")


def test_a_label_may_have_a_space_of_its_own():
    harsh = {"data.partition.alpha": 0.1, "space": {"client.lr": {"grid": [0.01, 0.02, 0.03]}}}
    config = read(scenarios={"alpha": {"mild": {}, "harsh": harsh}})
    lists = {name: m.space.to_yaml() for name, m in config.methods.items()}
    assert lists["FedAvg @ harsh"] == {
        "client.lr": {"grid": [0.01, 0.02, 0.03]},
        "server.lr": {"grid": [0.5, 1.0]},
    }
    assert lists["FedAvg @ mild"]["client.lr"] == {"grid": [0.1, 0.2]}
    assert lists["FedGM @ harsh"] == lists["FedGM @ mild"]  # it does not search that parameter
    assert config.method("FedAvg @ harsh").raw["data"]["partition"]["alpha"] == 0.1


def test_a_label_may_say_what_one_method_is_there():
    entry = {"server": {"nu": 0.5}, "space": {"server.beta": 0.9, "server.lr": {"grid": [1, 2]}}}
    cells = {"mild": {}, "harsh": {"methods": {"FedGM": entry}}}
    config = read(scenarios={"alpha": cells})
    harsh, mild = config.method("FedGM @ harsh"), config.method("FedGM @ mild")
    assert harsh.raw["server"] == {"name": "fedgm", "nu": 0.5}
    assert mild.raw["server"] == {"name": "fedgm"}
    assert harsh.space.to_yaml() == {"server.beta": {"fixed": 0.9}, "server.lr": {"grid": [1, 2]}}
    assert config.method("FedAvg @ harsh").raw == config.method("FedAvg @ mild").raw


def test_other_cells_can_be_left_out(tmp_path):
    path = tmp_path / "my.yaml"
    written = yaml.safe_dump(file(tune={"at": {"alpha": "mild"}}), sort_keys=False)
    path.write_text(written)
    config = SearchConfig.read(path, ["scenarios.pattern=P2"])
    assert [m for m in config.methods if m.startswith("FedGM")] == [
        "FedGM @ P2, mild",
        "FedGM @ P2, harsh",
    ]
    both = SearchConfig.read(path, ["scenarios.pattern=[P2, P1]", "scenarios.alpha=mild"])
    assert len(both.methods) == 4
    for setting, message in (
        ("scenarios.patern=P1", "scenarios.patern: no axis 'patern'; did you mean 'pattern'"),
        ("scenarios.pattern=P3", "scenarios.pattern: no label 'P3'"),
        ("scenarios.pattern=[]", "scenarios.pattern: name a label"),
        ("scenarios.alpha=harsh", "tune.at.alpha: no label 'mild'; known: harsh"),
    ):
        with pytest.raises(ConfigError) as caught:
            SearchConfig.read(path, [setting])
        assert caught.value.problems[0].startswith(message)


def test_a_chosen_method_stands_in_all_its_cells():
    config = SearchConfig.parse(file(), methods=["FedGM"])
    assert len(config.methods) == 4
    assert all(m.scenario["method"] == "FedGM" for m in config.methods.values())


def test_a_search_without_the_source_of_its_values_is_refused_and_one_run_is_not():
    config = SearchConfig.parse(
        file(tune={"method": "FedAvg", "share": ["server.lr"]}), methods=["FedGM @ P1, mild"]
    )
    with pytest.raises(ConfigError, match="add --method 'FedAvg @ P1, mild'"):
        config.check_sources()
    assert config.method("FedGM @ P1, mild").experiment({}).rounds == 4


def test_what_is_set_by_hand_is_taken_over_from_nobody():
    tune = {"method": "FedAvg", "share": ["client.lr", "server.lr"]}
    config = SearchConfig.parse(file(tune=tune), overrides={"server.lr": 2.0})
    assert config.method("FedGM @ P1, mild").inherit.keys == ("client.lr",)
    config = SearchConfig.parse(file(tune={**tune, "share": ["server.lr"]}), "x", {"server.lr": 2})
    assert config.method("FedGM @ P1, mild").inherit is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenarios": [1]}, "scenarios: found [1]; write AXIS"),
        ({"scenarios": {"a": {}}}, "scenarios.a: found {}; write LABEL"),
        ({"scenarios": {"a": {"x": 3}}}, "scenarios.a.x: found 3; a mapping belongs there"),
        ({"scenarios": {"a": {1: {}, "1": {}}}}, "scenarios.a.1: a label is there twice"),
        ({"scenarios": {"a": {"x, y": {}}}}, "scenarios.a.x, y: a label holds no comma and no @"),
        ({"scenarios": {"method": {"x": {}}}}, "scenarios.method: the name of an axis; method is"),
        ({"tune": "never"}, "tune: found 'never'; write per_scenario"),
        ({"tune": {"at": {"patern": "P1"}}}, "tune.at.patern: no axis 'patern'; did you mean"),
        ({"tune": {"at": {"alpha": "mil"}}}, "tune.at.alpha: no label 'mil'; did you mean 'mild'"),
        ({"tune": {"at": {}}}, "tune.at: found {}; write AXIS: LABEL"),
        ({"tune": {"at": {"alpha": "mild"}, "then": "thaw"}}, "tune.then: found 'thaw'; must be"),
        ({"tune": {"method": "FedAv", "share": ["x"]}}, "tune.method: no method 'FedAv'; did you"),
        ({"tune": {"method": "FedAvg", "share": []}}, "tune.share: found []; a list of dotted"),
        (
            {"tune": {"method": "FedAvg", "at": {"alpha": "mild"}}},
            "tune: found {'method': 'FedAvg'",
        ),
        ({"tune": {"then": "freeze"}}, "tune: found {'then': 'freeze'}; write per_scenario"),
        ({"scenarios": {"a": {"x": {"space": 3}}}}, "scenarios.a.x: space: found 3; a mapping"),
        (
            {"scenarios": {"a": {"x": {"space": {"client.l": 1}}}}},
            "scenarios.a.x: space: no entry 'client.l'; did you mean 'client.lr'",
        ),
        (
            {"scenarios": {"a": {"x": {"methods": {"FedAv": {}}}}}},
            "scenarios.a.x: methods: no method 'FedAv'; did you mean 'FedAvg'",
        ),
        (
            {"scenarios": {"a": {"x": {"methods": {"FedAvg": 3}}}}},
            "scenarios.a.x: methods.FedAvg: found 3; a mapping belongs there",
        ),
    ],
)
def test_one_mistake_is_one_sentence(changes, message):
    (problem,) = problems_of(**changes)
    assert problem.startswith(message)


def test_a_shared_key_must_be_searched_there_and_be_a_parameter_here():
    found = problems_of(scenarios={}, tune={"method": "FedAvg", "share": ["server.l"]})
    assert found == [
        "methods.FedGM.inherit.keys: 'server.l' is not in the space of 'FedAvg'; did you mean "
        "'server.lr'?; there: client.lr, server.lr"
    ]
    found = problems_of(scenarios={}, tune={"method": "FedGM", "share": ["server.beta"]})
    (problem,) = found
    assert "methods.FedAvg.inherit.keys: 'FedAvg' has no parameter 'server.beta'" in problem


@pytest.mark.parametrize(
    "tune",
    [
        "per_scenario",
        {"at": {"pattern": "P1"}},
        {"method": "FedAvg", "share": ["client.lr", "server.lr"]},
        {"method": "FedAvg", "share": ["client.lr"], "at": {"pattern": "P1", "alpha": "mild"}},
    ],
)
def test_the_frozen_file_says_the_same(tune):
    assert_the_frozen_file_says_the_same(read(tune=tune))
