"""What a search file says, and what overrides make of it."""

from pathlib import Path

import pytest
import yaml
from good_search import (
    GOOD,
    assert_the_frozen_file_says_the_same,
    changed,
    good,
    problems_of,
)

from fltune import dotted
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig, load

REPOSITORY = Path(__file__).parents[2]
SPACES = [
    path
    for path in sorted((REPOSITORY / "search_spaces").rglob("*.yaml"))
    if not path.name.startswith("_") and "computes" not in dotted.read_yaml(path)
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_numbers_with_an_exponent_are_numbers(file):
    space = SearchConfig.read(file).method("FedGM").space
    assert space.dimensions["server.lr"].values == (0.1, 5.0)
    assert dotted.load_yaml("[1e-3, -2E5, 1.5e3, +1e+2]") == [1e-3, -2e5, 1.5e3, 100.0]
    assert dotted.load_yaml("[e3, 1e, 1-3, 0x1e3, 1e3x]") == ["e3", "1e", "1-3", 0x1E3, "1e3x"]
    assert dotted.parse_assignment("client.lr=1e-3") == ("client.lr", 1e-3)


def test_an_override_fixes_a_searched_parameter(file):
    method = SearchConfig.read(file, ["server.lr=2"]).method("FedGM")
    assert list(method.space.dimensions) == ["server.beta"]
    assert method.experiment(method.first_values()).server.lr == 2.0
    assert method.trials(SearchConfig.read(file).settings.search) == 2  # two betas are left


def test_an_override_reaches_the_base_and_every_method(file):
    config = SearchConfig.read(file, ["rounds=3", "data.partition=dirichlet", "client.lr=1e-2"])
    assert config.base["rounds"] == 3
    for method in config.methods.values():
        experiment = method.experiment(method.first_values())
        assert experiment.rounds == 3
        assert experiment.data.partition.component_name == "dirichlet"
        assert experiment.client.lr == 0.01


def test_an_override_may_be_written_as_it_stands_in_the_file(file):
    config = SearchConfig.read(file, ["experiment.rounds=3", "experiment.client.lr=0.7"])
    assert config.base["rounds"] == 3
    for method in config.methods.values():
        experiment = method.experiment(method.first_values())
        assert (experiment.rounds, experiment.client.lr) == (3, 0.7)


def test_overrides_of_settings_stay_out_of_the_experiment(file, tmp_path):
    sets = ["search.trials=9", f"tracking.root={tmp_path}", "resources.cpus=2", "ray.address=auto"]
    settings = SearchConfig.read(file, sets).settings
    assert (settings.search.trials, settings.resources.cpus) == (9, 2.0)
    assert (settings.tracking.root, settings.ray.address) == (str(tmp_path), "auto")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds", "--set 'rounds': write KEY=VALUE, such as --set server.lr=0.5"),
        ("=3", "--set '=3': write KEY=VALUE"),
        ("rounds=[1", r"--set 'rounds=\[1': the value is not valid YAML"),
        ("rounds=0", "experiment.rounds: found 0; should be greater than or equal to 1"),
        ("round=3", "experiment.round: unknown key; did you mean 'rounds'"),
        ("rounds.x=3", "rounds.x: rounds is 10, not a section with keys of its own"),
        ("search.trials=0", "search.trials: found 0"),
        ("search.trials.x=0", "search.trials.x: search.trials is 4, not a section"),
        ("search.trails=4", "search.trails: unknown key; did you mean 'trials'"),
        ("server.lr=0", "experiment.server.lr: found 0; should be greater than 0"),
    ],
)
def test_a_wrong_override_is_a_config_error(file, text, message):
    with pytest.raises(ConfigError, match=message):
        SearchConfig.read(file, [text])


def test_tracking_overrides_stand_without_a_file():
    assert SearchConfig.tracking_of(["tracking.root=there"]).root == "there"
    assert SearchConfig.tracking_of([]).root == "mlruns"
    with pytest.raises(ConfigError, match=r"rounds: only tracking\.\* can be set here"):
        SearchConfig.tracking_of(["rounds=3"])
    with pytest.raises(ConfigError, match=r"tracking\.uri: found 3"):
        SearchConfig.tracking_of(["tracking.uri=3"])


def test_a_method_inherits_from_the_base_and_a_component_replaces_another():
    config = SearchConfig.parse(good())
    assert config.methods["FedAvg"].raw["server"] == {"name": "fedavg"}  # no beta of fedgm
    assert config.methods["FedGM"].raw["server"] == {"name": "fedgm", "beta": 0.8, "nu": 0.5}
    assert config.methods["FedAvg"].raw["client"] == {"lr": 0.1, "steps": 2}


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"s": {"x": 1, "y": 2}}, {"s": {"y": 3}}, {"s": {"x": 1, "y": 3}}),
        ({"s": {"name": "a", "x": 1}}, {"s": {"name": "b"}}, {"s": {"name": "b"}}),
        ({"s": {"name": "a", "x": 1}}, {"s": {"name": "a"}}, {"s": {"name": "a", "x": 1}}),
        ({"work": {"kind": "a", "x": 1}}, {"work": {"kind": "b"}}, {"work": {"kind": "b"}}),
        # in a section that goes by name a kind is a hyperparameter
        ({"s": {"kind": "a", "x": 1}}, {"s": {"kind": "b"}}, {"s": {"kind": "b", "x": 1}}),
        ({"s": "a"}, {"s": {"x": 1}}, {"s": {"name": "a", "x": 1}}),
        ({"s": "a"}, {"s": {"name": "b", "x": 1}}, {"s": {"name": "b", "x": 1}}),
        ({"s": {"name": "a", "x": 1}}, {"s": "b"}, {"s": "b"}),
        ({"s": [1, 2]}, {"s": [3]}, {"s": [3]}),
        (
            {"participation": "uniform"},
            {"participation": {"per_round": 3}},
            {"participation": {"kind": "uniform", "per_round": 3}},
        ),
        (
            {"d": {"partition": {"kind": "a", "x": 1}, "n": 2}},
            {"d": {"partition": {"kind": "b"}}},
            {"d": {"partition": {"kind": "b"}, "n": 2}},
        ),
    ],
)
def test_merging(base, over, merged):
    before = repr((base, over))
    result = dotted.merge(base, over)
    assert result == merged
    for value in result.values():
        if isinstance(value, dict):
            value["new"] = 1
    assert repr((base, over)) == before  # a copy, all the way down


def test_the_frozen_config_is_the_same_search():
    sources = [(REPOSITORY / "search_spaces/digits_fedgm.yaml").read_text(), GOOD]
    for text in sources:
        config = SearchConfig.parse(dotted.load_yaml(text))
        again = SearchConfig.parse(yaml.safe_load(config.as_yaml()))
        assert list(again.methods) == list(config.methods)
        assert again.settings == config.settings
        for name, method in config.methods.items():
            assert again.methods[name].space == method.space
            assert again.methods[name].raw == method.raw


def test_the_frozen_config_holds_the_overrides(file):
    config = SearchConfig.read(file, ["rounds=3", "server.beta=0.6", "search.trials=7"], ["FedGM"])
    again = SearchConfig.parse(yaml.safe_load(config.as_yaml()))
    assert list(again.methods) == ["FedGM"]
    method = again.method("FedGM")
    experiment = method.experiment(method.first_values())
    assert (experiment.rounds, experiment.server.beta) == (3, 0.6)
    assert list(method.space.dimensions) == ["server.lr"]
    assert again.settings.search.trials == 7


def test_python_values_freeze_too():
    raw = good()
    raw["experiment"]["model"] = {"name": "mlp", "hidden": (16, 8)}
    config = SearchConfig.parse(raw)
    assert yaml.safe_load(config.as_yaml())["experiment"]["model"]["hidden"] == [16, 8]


@pytest.mark.parametrize(
    ("space", "settings", "exact", "trials"),
    [
        ({"server.lr": {"grid": [1, 2, 3]}}, {"trials": 4}, True, 3),
        ({"server.lr": {"grid": [1, 2, 3]}}, {"trials": 3}, True, 3),
        ({"server.lr": {"grid": [1, 2, 3]}}, {"trials": 2}, False, 2),
        ({"server.lr": {"grid": [1, 2, 3]}}, {"trials": 2, "sampler": "grid"}, True, 3),
        ({"server.lr": {"uniform": [1, 2]}}, {"trials": 50}, False, 50),
    ],
)
def test_a_small_grid_is_walked_and_a_large_one_drawn_from(space, settings, exact, trials):
    raw = changed("methods/FedGM/space", space)
    raw["search"] = settings
    config = SearchConfig.parse(raw, methods=["FedGM"])
    method = config.method("FedGM")
    assert method.exact(config.settings.search) is exact
    assert method.trials(config.settings.search) == trials


@pytest.mark.parametrize(
    ("key", "entry", "value", "edge"),
    [
        ("server.nu", {"grid": [0.5, 1.0]}, 1.0, None),  # nu ends at 1
        ("server.beta", {"grid": [0.0, 0.5]}, 0.0, None),  # beta begins at 0
        ("server.beta", {"grid": [0.7, 0.9, 0.95]}, 0.95, "highest"),  # 0.99 is allowed
        ("server.lr", {"grid": [0.001, 0.01, 0.1]}, 0.001, "lowest"),
        ("server.lr", {"grid": [1, 2, 4]}, 1, "lowest"),
        ("server.lr", {"loguniform": [0.3, 5]}, 4.99, "highest"),
        ("server.lr", {"loguniform": [0.3, 5]}, 1.0, None),
        ("client.steps", {"int": [1, 4]}, 4, "highest"),
        ("client.steps", {"int": [1, 4]}, 1, None),
        ("client.steps", {"logint": [3, 64]}, 3, "lowest"),
        ("participation.per_round", {"grid": [5, 20]}, 20, None),  # there are 20 clients
        ("participation.per_round", {"grid": [5, 19]}, 19, "highest"),
    ],
)
def test_an_edge_counts_where_values_beyond_it_are_allowed(key, entry, value, edge):
    raw = changed("methods/FedGM/space", {key: entry})
    method = SearchConfig.parse(raw).method("FedGM")
    assert method.extendable_edges({key: value}) == ({} if edge is None else {key: edge})


def test_load_gives_the_experiment_of_a_method(file):
    experiment = load(file, "FedGM", ["server.lr=3"])
    assert (experiment.server.lr, experiment.server.beta, experiment.rounds) == (3.0, 0.8, 10)
    with pytest.raises(ConfigError, match="unknown method 'Fed'"):
        load(file, "Fed")


def test_there_are_search_spaces():
    assert SPACES


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.name)
def test_every_search_space_validates_and_says_how_it_is_run(path):
    config = SearchConfig.read(path)
    assert config.methods
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# python -m fltune search {path.relative_to(REPOSITORY).as_posix()}"


def test_a_file_that_trains_nothing_is_no_search():
    with pytest.raises(ConfigError, match="trains nothing; run python -m fltune reproduce config"):
        SearchConfig.parse({"computes": "coverage", "claims": {}})


def test_claims_and_figure_are_left_to_reproduce():
    SearchConfig.parse(changed("claims", {"any": "thing"}))


def test_an_empty_space_has_the_methods_own_values_and_no_trials():
    config = SearchConfig.parse(changed("methods/FedGM/space", {}))
    method = config.method("FedGM")
    assert (method.space.cells, method.trials(config.settings.search)) == (1, 0)


def test_a_space_is_set_by_hand_in_a_method_whose_name_holds_dots(tmp_path):
    raw = good()
    raw["methods"]["FedGM 0.9 @ P1, mild"] = raw["methods"].pop("FedGM")
    raw["methods"]["FedGM 0"] = raw["methods"]["FedAvg"]
    path = tmp_path / "dots.yaml"
    path.write_text(yaml.safe_dump(raw))
    setting = "methods.FedGM 0.9 @ P1, mild.space.server.lr={grid: [1, 2]}"
    method = SearchConfig.read(path, [setting]).method("FedGM 0.9 @ P1, mild")
    assert method.space.to_yaml()["server.lr"] == {"grid": [1, 2]}
    assert "server.beta" in method.space.entries
    with pytest.raises(ConfigError, match=r"names no method; known: FedAvg"):
        SearchConfig.read(path, ["methods.FedGN.space.server.lr={grid: [1, 2]}"])


def test_values_are_taken_over_from_a_method_that_there_is():
    raw = changed("methods/FedGM/inherit", {"from": "FedAv"})
    (problem,) = problems_of(raw)
    assert problem.startswith(
        "methods.FedGM.inherit.from: unknown method 'FedAv'; did you mean 'FedAvg'?"
    )
    raw["methods"]["FedGM"]["inherit"] = {"from": "FedAvg", "keys": []}
    (problem,) = problems_of(raw)
    assert problem.startswith("methods.FedGM.inherit: keys: found []")


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_the_frozen_config_of_every_shipped_file_says_the_same(path):
    assert_the_frozen_file_says_the_same(SearchConfig.read(path))


def test_a_value_of_the_methods_own_section_is_not_the_bases():
    raw = changed("experiment/server", {"name": "fedavg"})
    raw["methods"]["FedGM"]["server"] = {"name": "fedgm"}
    config = SearchConfig.parse(raw, "x", {"server.nu": 0.3}, ["FedGM"])
    assert config.method("FedGM").experiment({}).server.nu == 0.3
