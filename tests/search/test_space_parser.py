"""What a file may say of a space, and what is said when it is wrong; through the search file."""

import pickle

import pytest
import yaml
from realistic_spaces import BASE, CONDITIONAL, REALISTIC, STAGES, TIED, config_of, method_of

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig, load


def problems_of(space, overrides=None, **method):
    with pytest.raises(ConfigError) as caught:
        config_of(space, overrides, **method)
    return [p.removeprefix("methods.M.space.") for p in caught.value.problems]


@pytest.mark.parametrize("name", REALISTIC)
def test_the_frozen_file_says_the_same_space(name):
    space, method = REALISTIC[name]
    config = config_of(space, **method)
    again = SearchConfig.parse(yaml.safe_load(config.as_yaml())).method("M")
    assert again.space == config.method("M").space
    assert again.space.order == config.method("M").space.order
    assert again.raw == config.method("M").raw
    assert pickle.loads(pickle.dumps(again.space)) == again.space


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("conditional", {"server.name": "fedgm"}),
        ("conditional", {"server.nu": 0.0}),
        ("tied", {"client.lr": 0.001}),
        ("stages", {"rounds": 50, "client.lr": 0.2}),
    ],
)
def test_the_frozen_file_holds_what_was_set_by_hand(name, by_hand):
    space, method = REALISTIC[name]
    config = config_of(space, by_hand, **method)
    again = SearchConfig.parse(yaml.safe_load(config.as_yaml())).method("M")
    assert again.space == config.method("M").space
    assert not set(by_hand).intersection(again.space.entries)
    point = again.space.first()
    assert again.experiment(point) == config.method("M").experiment(point)
    flat = again.experiment(point).as_params()
    assert {key: flat[key] for key in by_hand} == by_hand


def test_a_searched_component_brings_its_own_parameters_only():
    method = method_of(CONDITIONAL)
    adam = {"server.name": "fedadam", "server.lr": 0.1, "server.tau": 0.01}
    assert method.raw_with(adam)["server"] == {"name": "fedadam", "lr": 0.1, "tau": 0.01}
    momentum = {"server.name": "fedgm", "server.lr": 1.0, "server.beta": 0.7, "server.nu": 0.0}
    assert method.raw_with(momentum)["server"] == {"name": "fedgm", "lr": 1.0, "beta": 0.7, "nu": 0}


def test_another_data_set_keeps_its_clients_and_their_partition():
    space = {"data.name": {"choice": ["digits", "mnist"]}, "data.partition.kind": {"fixed": "iid"}}
    method = method_of(space)
    assert method.raw_with({"data.name": "mnist"})["data"] == {
        "name": "mnist",
        "clients": 20,
        "partition": {"kind": "iid"},
    }


def test_tied_paired_and_fixed_values_reach_the_experiment():
    method = method_of(TIED)
    assert method.space.cells == 4
    experiment = method.experiment({"client.lr": 0.001})
    assert experiment.server.lr == 10.0
    assert experiment.client.batch_size == 32
    assert experiment.client.momentum == 0.5
    assert experiment.participation.per_round == 5
    assert experiment.server.nu == 0.5


def test_a_run_by_hand_ties_to_the_methods_own_values(tmp_path):
    file = tmp_path / "tied.yaml"
    file.write_text(BASE + "methods: {M: {space: {client.lr: {grid: [0.05, 0.2]}, "
                    "server.lr: {tied: 0.1 / client.lr}}}}")  # fmt: skip
    assert load(file, "M").server.lr == 1.0
    assert load(file, "M", ["client.lr=0.01"]).server.lr == 10.0


def test_what_is_set_by_hand_decides_over_the_rest():
    method = method_of(CONDITIONAL, {"server.name": "fedgm"})
    assert list(method.space.entries) == [
        "server.lr",
        "server.beta",
        "server.nu",
        "client.momentum",
    ]
    assert list(method.space.when) == ["client.momentum"]
    assert method.experiment(method.first_values()).server.component_name == "fedgm"
    method = method_of(TIED, {"client.lr": 0.001})
    assert method.space.cells == 1
    assert method.experiment({}).server.lr == 10.0
    assert method.experiment({}).client.batch_size == 32
    problems = problems_of(TIED, {"client.lr": 0.3})
    assert problems == ["client.batch_size: client.lr = 0.3 has no partner"]


@pytest.mark.parametrize(
    ("space", "problems"),
    [
        (
            "server.lr:",
            ["server.lr: found nothing; to fix a parameter to null write {fixed: null}"],
        ),
        (
            "server.lr: {gird: [1]}",
            [
                "server.lr: unknown kind 'gird'; did you mean 'grid'?; known: grid, choice, "
                "uniform, loguniform, int, logint, fixed, tied, paired, stages"
            ],
        ),
        ("server.lr: {grid: [1], wen: {a: 1}}", ["server.lr: unknown key 'wen'; did you mean"]),
        ("server.lr: {grid: [1], choice: [2]}", ["server.lr: found {'grid': [1], 'choice': [2]};"]),
        ("server.lr: {fixed: 1, step: 2}", ["server.lr: found step: 2; it goes with uniform,"]),
        ("server.lr: {grid: [1], with: a}", ["server.lr: found with: 'a'; it goes with paired"]),
        ("server.lr: {fixed: 0}", ["server.lr: found 0; should be greater than 0"]),
        ("server.lr: fast", ["server.lr: found 'fast'; should be a valid number"]),
        ("server.bta: 0.5", ["server.bta: unknown key; did you mean 'beta'?"]),
        (
            "{server.lr: {tied: 1 / clint.lr}}",
            ["server.lr: tied to clint.lr: unknown parameter; did"],
        ),
        (
            "{server.lr: {tied: 1 / data.name}}",
            ["server.lr: 1 / data.name: data.name is 'digits',"],
        ),
        ("{server.lr: {tied: foo(1)}}", ["server.lr: tied: at position 1: unknown function foo;"]),
        (
            "{server.lr: {tied: server.nu}, server.nu: {tied: server.lr}, client.lr: {grid: [0]}}",
            [
                "server.lr: depends on itself: server.lr -> server.nu -> server.lr",
                "client.lr: found 0; should be greater than 0",
            ],
        ),
        (
            "{client.momentum: {grid: [0, 0.5]}, server.lr: {tied: 1 / client.momentum}}",
            ["server.lr: 1 / client.momentum: division by zero (at client.momentum = 0)"],
        ),
        (
            "{client.lr: {loguniform: [0.001, 1]}, server.nu: {tied: 2 * client.lr}}",
            ["server.nu = 2.0: found 2.0; should be less than or equal to 1"],
        ),
        (
            "{client.lr: {grid: [0.1, 0.2]}, server.nu: {paired: [0.5, 2], with: client.lr}}",
            ["server.nu = 2: found 2; should be less than or equal to 1"],
        ),
        (
            "{client.lr: {grid: [0.1, 0.2]}, server.nu: {paired: [0.5], with: client.lr}}",
            ["server.nu: has 1 values, and client.lr, it is paired with, 2"],
        ),
        (
            "{client.lr: {uniform: [0.1, 0.2]}, server.nu: {paired: [0.5], with: client.lr}}",
            ["server.nu: paired with client.lr, which is no grid or choice"],
        ),
        ("{server.nu: {paired: [0.5], with: x}}", ["server.nu: found with: 'x'; name a parameter"]),
        ("{server.nu: {paired: 3, with: x}}", ["server.nu: found paired: 3; a list belongs there"]),
        (
            "{server.nu: {grid: [0.5], when: {clint.lr: 0.1}}}",
            ["server.nu: when clint.lr: unknown parameter; did you mean 'client.lr'?"],
        ),
        (
            "{server.name: {chioce: [fedgm, fedadam]}, server.tau: {grid: [1], when: "
            "{server.name: fedadam}}}",
            ["server.name: unknown kind 'chioce'; did you mean 'choice'?; known: grid, choice"],
        ),
        ("{server.nu: {grid: [0.5], when: 3}}", ["server.nu: found when: 3; write {other.param"]),
        (
            "{server.nu: {grid: [0.5], when: {client.lr: 0.2}}}",
            ["server.nu: when client.lr: found 0.2, but it is 0.1 and not searched"],
        ),
        (
            "{client.lr: 0.3, server.nu: {grid: [0.5], when: {client.lr: 0.2}}}",
            ["server.nu: when client.lr: found 0.2, but it is fixed at 0.3"],
        ),
        (
            "{server.name: {choice: [fedgm, fedavg]}, "
            "server.nu: {grid: [1], when: {server.name: f}}}",
            ["server.nu: when server.name: found 'f'; allowed: choice fedgm, fedavg"],
        ),
        (
            "{client.lr: {grid: [0.1, 0.2]}, server.nu: {grid: [1], when: {client.lr: '> 0.2'}}}",
            ["server.nu: when client.lr > 0.2: never so in grid 0.1, 0.2"],
        ),
        (
            "{client.lr: {uniform: [0.1, 0.2]}, server.nu: {grid: [1], when: {client.lr: 0.2}}}",
            ["server.nu: when client.lr: a range never is one value; compare"],
        ),
        (
            "{client.lr: {grid: [0.1, 0.2]}, server.beta: {grid: [0.5], when: {client.lr: 0.1}}, "
            "server.nu: {grid: [1], when: {client.lr: 0.2, server.beta: 0.5}}}",
            ["server.nu: never counts; client.lr = 0.2 and server.beta = 0.5 never holds"],
        ),
        ("{server.stage_ends: {stages: free}}", ["server.stage_ends: server.stages is not known"]),
        ("{server.betas: {stages: w2}}", ["server.betas: found stages: w2; that belongs to"]),
    ],
)
def test_a_wrong_space_says_what_was_found_and_what_is_allowed(space, problems):
    found = problems_of(space)
    assert len(found) == len(problems)
    for said, wanted in zip(found, problems, strict=True):
        assert said.replace("float division", "division").startswith(wanted)


def test_a_value_is_judged_where_it_counts():
    space = """
    server.name: {choice: [fedgm, fedadam, fedyogi]}
    server.beta: {choice: [0.7, 1.0]}
    server.nu: {choice: [0.5, 2.0], when: {server.name: fedgm}}
    server.tau: {grid: [0.0, 0.1], when: {server.name: [fedadam, fedyogi]}}
    """
    first, second, third, fourth = problems_of(space)
    assert first.startswith(
        "server.beta = 1.0 where server.name = fedgm: found 1.0; should be less"
    )
    assert second.startswith("server.beta = 0.7, 1.0 where server.name = fedadam, fedyogi: unknown")
    assert third == "server.nu = 2.0: found 2.0; should be less than or equal to 1"
    assert fourth == "server.tau = 0.0: found 0.0; should be greater than 0"


def test_a_tie_to_what_does_not_count_needs_the_same_condition():
    space = {
        "server.name": {"choice": ["fedgm", "fedadam"]},
        "server.nu": {"grid": [0.5, 0.9], "when": {"server.name": "fedgm"}},
        "client.lr": {"tied": "server.nu / 10"},
    }
    (problem,) = problems_of(space)
    assert problem == (
        "client.lr where server.name = fedadam: server.nu has no value here (not active)"
    )
    space["client.lr"] = {"tied": "server.nu / 10", "when": {"server.name": "fedgm"}}
    assert method_of(space).space.cells == 3
    space["client.lr"] = {"tied": "server.beta / 10"}  # the method's own, of fedgm
    (problem,) = problems_of(space)
    assert problem.endswith("server.beta has no value here (server.name is 'fedadam')")


def test_problems_of_stage_lists_name_the_number_of_stages():
    space = {
        "server.stages": {"choice": [2, 31]},
        "server.stage_ends": {"stages": "free"},
        "server.betas": {"stages": {"choice": [0.5, 1.0]}},
    }
    found = problems_of(space, server={"name": "multistage"})
    assert found[:2] == [
        "server.stages = 31: server: 31 stages need as many rounds; there are 30 (rounds)",
        "server.stage_ends where server.stages = 31: 31 stages need as many rounds; there are 30",
    ]
    assert found[2].startswith("server.betas = 1.0")


def test_a_space_of_thousands_of_combinations_is_judged_in_a_bounded_number(monkeypatch):
    from fltune.search.method import Method
    from fltune.search.space_check import JUDGED

    judged = []
    real = Method.problems

    def count(self, point):
        judged.append(point)
        return real(self, point)

    monkeypatch.setattr(Method, "problems", count)
    many = {f"choice{i}": [round(0.01 * k, 2) for k in range(1, 12)] for i in range(4)}
    names = ["client.lr", "client.momentum", "server.beta", "client.weight_decay"]
    space = {n: {"grid": v} for n, v in zip(names, many.values(), strict=True)}
    space["server.nu"] = {"tied": " + ".join(names)}
    method = method_of(space)
    assert method.space.cells == 11**4
    assert 11 * 4 < len(judged) <= 11 * 4 + JUDGED + 1


def test_a_small_conditional_space_is_run_whole():
    config = config_of(TIED)
    assert config.method("M").exact(config.settings.search)
    finite = CONDITIONAL.replace("loguniform", "grid").replace("step: 0.25, ", "")
    config = config_of(finite.replace("uniform", "grid"))
    cells = list(config.method("M").space.grid())
    assert len(cells) == config.method("M").space.cells == 2 * (2 * (1 + 2) + 2)
    assert not config.method("M").exact(config.settings.search)  # 16 cells, 4 trials
    assert not any(map(config.method("M").problems, cells))


def test_edges_that_can_be_moved():
    method = method_of(STAGES, server={"name": "multistage"})
    point = method.space.decode({
        "server.stages": 2, "server.lr": 4.0, "server.drop": 0,
        "server.stage_ends.1": 0.0, "server.stage_ends.2": 0.5, "server.stage_ends.3": 1.0,
        "server.betas.1": 0.95, "server.betas.2": 0.7, "server.betas.3": 0.7, "server.betas.4": 0.7,
    })  # fmt: skip
    movable = ["server.stages", "server.lr", "server.drop", "server.betas.1"]  # and no share
    assert method.extendable_edges(point) == dict.fromkeys(movable, "highest")
    method = method_of(TIED)
    assert method.extendable_edges({"client.lr": 0.01}) == {"client.lr": "highest"}
    assert method.extendable_edges({"client.lr": 0.001}) == {}
