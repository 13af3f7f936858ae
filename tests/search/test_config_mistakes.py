"""What is wrong with a search file is said in one sentence with its key."""

import pytest
import yaml
from good_search import changed, good, problems_of

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("experimnet", {}, "experimnet: unknown section; did you mean 'experiment'?; known: "),
        ("search/trails", 4, "search.trails: unknown key; did you mean 'trials'?; known: sampler"),
        ("search/trials", "many", "search.trials: found 'many'; should be a valid integer"),
        ("search/trials", 0, "search.trials: found 0; should be greater than or equal to 1"),
        ("search/trials", True, "search.trials: found True; should be a number"),
        ("search/confirm_seeds", True, "search.confirm_seeds: found True; should be a number"),
        ("search/confirm_seeds", -1, "search.confirm_seeds: found -1; should be greater than or"),
        ("search/sampler", "cmeas", "search.sampler: found 'cmeas'; must be one of tpe, random"),
        ("search/reduction", 1, "search.reduction: found 1; should be greater than 1"),
        (
            "search/metric",
            "test/accuracy",
            "search.metric: found 'test/accuracy'; select on validation, such as val/accuracy",
        ),
        (
            "search/metric",
            "val/acuracy",
            "search.metric: found 'val/acuracy'; did you mean 'val/accuracy'?",
        ),
        ("search", [1, 2], "search: found [1, 2]; should be a valid dictionary"),
        ("tracking", {"url": "x"}, "tracking.url: unknown key; did you mean 'uri'?"),
        ("resources", {"gpus": -1}, "resources.gpus: found -1; should be greater than or equal"),
        ("name", 3, "name: found 3; should be a valid string"),
        ("name", "a/b", "name: found 'a/b'; must be a plain name, without slashes"),
        ("experiment", ["a"], "experiment: found ['a']; a mapping belongs there"),
        ("methods", {}, "methods: name at least one method to tune"),
        ("methods", ["FedAvg"], "methods: name at least one method to tune"),
        ("methods/FedGM", ["a"], "methods.FedGM: found ['a']; a mapping belongs there"),
        ("methods/FedGM", None, "methods.FedGM: found None; a mapping belongs there"),
        ("methods/FedGM", {}, "methods.FedGM.space: found nothing; name the parameters to tune"),
        ("methods/FedGM/space", [1], "methods.FedGM.space: found [1]; name the parameters"),
        (
            "methods/FedGM/space/server.lr",
            {"grid": []},
            "methods.FedGM.space.server.lr: grid is empty; give at least one value",
        ),
        (
            "methods/FedGM/space/server.lr",
            [0.5, 1],
            "methods.FedGM.space.server.lr: found [0.5, 1]; write one of grid, choice",
        ),
        (
            "methods/FedGM/space/server.beta",
            {"grid": [0.5, 1.0]},
            "methods.FedGM.space.server.beta = 1.0: found 1.0; should be less than 1",
        ),
        (
            "methods/FedGM/space/server.beta",
            {"uniform": [0.5, 1.0]},
            "methods.FedGM.space.server.beta = 1.0: found 1.0; should be less than 1",
        ),
        (
            "methods/FedGM/space/server.beat",
            {"grid": [0.5]},
            "methods.FedGM.space.server.beat: unknown key; did you mean 'beta'?",
        ),
        (
            "methods/FedGM/space/client.steps",
            {"choice": [1, 0]},
            "methods.FedGM.space.client.steps = 0: found 0; should be greater than or equal to 1",
        ),
        (
            "methods/FedGM/space/participation.per_round",
            {"grid": [5, 21]},
            "methods.FedGM.space.participation.per_round = 21: participation: per_round = 21 is "
            "more than the 20 clients there are (data.clients)",
        ),
        (
            "methods/FedGM/space/rounds.many",
            {"grid": [5]},
            "methods.FedGM.space.rounds.many: rounds is 10, not a section with keys of its own",
        ),
        ("methods/FedAvg/server/beta", 0.5, "methods.FedAvg.server.beta: unknown key"),
        ("methods/FedAvg/server/lr", 0, "methods.FedAvg.server.lr: found 0; should be greater"),
        ("methods/FedAvg/sever", "x", "methods.FedAvg.sever: unknown key; did you mean 'server'?"),
        ("experiment/server/beta", 1, "experiment.server.beta: found 1; should be less than 1"),
        ("experiment/client/lr", 0, "experiment.client.lr: found 0; should be greater than 0"),
        ("experiment/client/lr", -0.1, "experiment.client.lr: found -0.1; should be greater"),
        ("experiment/client/lr", "fast", "experiment.client.lr: found 'fast'; should be a valid"),
        (
            "experiment/data/partition",
            {"kind": "dirichlet", "alpha": 0},
            "experiment.data.partition.alpha: found 0; should be greater than 0",
        ),
        ("experiment/data/name", "digitz", "experiment.data.name: unknown data set 'digitz'"),
        (
            "experiment/participation/per_round",
            21,
            "experiment.participation: per_round = 21 is more than the 20 clients there are",
        ),
        ("experiment/rounds", 2.5, "experiment.rounds: found 2.5; should be a valid integer"),
        ("experiment/1", 2, "experiment.1: unknown key"),
    ],
)
def test_one_mistake_is_one_sentence_with_its_key(key, value, message):
    (problem,) = problems_of(changed(key, value))
    assert problem.startswith(message)


def test_a_wrong_base_is_named_once_not_per_method():
    raw = changed("experiment/client/lr", 0)
    raw["methods"]["FedGM"]["client"] = {"lr": -1}
    assert problems_of(raw) == [
        "experiment.client.lr: found 0; should be greater than 0",
        "methods.FedGM.client.lr: found -1; should be greater than 0",
    ]


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    raw = changed("search/metric", "test/loss")
    raw["resuorces"] = {}
    raw["methods"]["FedAvg"]["space"]["server.lr"] = {"grid": [0.5, 0.0, -1.0]}
    raw["methods"]["FedGM"]["server"] = {"nu": 2}
    raw["methods"]["Third"] = {"space": {"client.lr": {"loguniform": [1, 0.1]}}}
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError) as caught:
        SearchConfig.read(path, methods=[])
    text = str(caught.value)
    assert text.startswith(f"{path}: 6 problems\n  - ")
    for part in (
        "resuorces: unknown section; did you mean 'resources'?",
        "search.metric: found 'test/loss'",
        "methods.FedAvg.space.server.lr = 0.0: found 0.0; should be greater than 0",
        "methods.FedAvg.space.server.lr = -1.0: found -1.0; should be greater than 0",
        "methods.FedGM.server.nu: found 2; should be less than or equal to 1",
        "methods.Third.space.client.lr: found loguniform: [1, 0.1]; low must be below high",
    ):
        assert part in text


def test_an_unknown_method_is_named_with_the_nearest():
    (problem,) = problems_of(good(), methods=["FedAvgM"])
    assert (
        problem == "methods: unknown method 'FedAvgM'; did you mean 'FedAvg'?; known: FedAvg, FedGM"
    )
    with pytest.raises(ConfigError, match="unknown method 'FedGMM'; did you mean 'FedGM'"):
        SearchConfig.parse(good()).method("FedGMM")
    numbered = good()
    numbered["methods"][7] = numbered["methods"]["FedGM"]
    assert "known: FedAvg, FedGM, 7" in problems_of(numbered, methods=["FedXYZW"])[0]


def test_a_range_has_no_place_in_a_grid_search():
    raw = changed("search/sampler", "grid")
    (problem,) = problems_of(raw)
    assert problem == "methods.FedGM.space.server.lr: a range; sampler grid needs grid or choice"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- a\n- b\n", "found a list at the top; a mapping belongs there"),
        (b"", "found nothing at the top"),
        (b"text", "found a str at the top"),
        (b"experiment: {rounds: 3\nmethods:", "not valid YAML at line 2, column 8: "),
        (b"a: b: c", "not valid YAML at line 1, column 5: mapping values are not allowed"),
        (b"name: \xff\xfe", "not UTF-8 text (byte 6)"),
        (b"name: a\x07b", "not valid YAML"),
        (b"a: !!python/object/apply:os.getcwd []", "not valid YAML at line 1, column 4: "),
        (
            b"methods:\n  FedAvg: {}\n  FedAvg: {}\n",
            "not valid YAML at line 3, column 3: the key 'FedAvg' is there twice",
        ),
    ],
)
def test_a_file_that_is_no_search_file_says_why(tmp_path, content, message):
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        SearchConfig.read(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        SearchConfig.read(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        SearchConfig.read(tmp_path)
