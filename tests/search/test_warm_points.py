import pytest
import yaml

from fltune import dotted
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig

FILE = """
experiment:
  data: {name: digits, clients: 20}
  server: {name: multistage, stages: 3}
  rounds: 30
methods:
  M:
    space:
      server.lr: {loguniform: [0.5, 4]}
      server.nu: {choice: [0.5, 0.9], when: {server.lr: "> 1"}}
      server.stage_ends: {stages: free}
      server.betas: {stages: {uniform: [0.5, 0.95]}}
    points: POINTS
"""
BETAS = "server.betas: [0.5, 0.6, 0.7]"
SHARES = "server.stage_ends.1: 0.5, server.stage_ends.2: 0.5"


def config_of(points, overrides=None):
    raw = dotted.load_yaml(FILE.replace("POINTS", points))
    return SearchConfig.parse(raw, "my.yaml", overrides)


def problems_of(points):
    with pytest.raises(ConfigError) as caught:
        config_of(points)
    return [p.removeprefix("methods.M.points") for p in caught.value.problems]


def test_points_with_and_without_a_score():
    config = config_of(
        f"[{{server.lr: 1, server.stage_ends: [5, 12, 30], {BETAS}, score: 1}},"
        f" {{server.lr: 2.0, server.nu: 0.9, {SHARES}, {BETAS}}}]"
    )
    space = config.method("M").space
    known, other = space.points
    assert (known.score, other.score) == (1.0, None)
    assert space.resolve(known.point) == {
        "server.lr": 1.0,
        "server.stage_ends": [5, 12, 30],
        "server.betas": [0.5, 0.6, 0.7],
    }
    assert other.point["server.stage_ends.1"] == 0.5
    assert space.encode(other.point)["server.nu"] == 1
    again = SearchConfig.parse(yaml.safe_load(config.as_yaml())).method("M")
    assert again.space == space


@pytest.mark.parametrize(
    ("points", "problems"),
    [
        ("3", [": found 3; a list of points belongs there"]),
        ("{a: 1}", [": found {'a': 1}; a list of points belongs there"]),
        ("[3]", [".0: found 3; write {parameter: value}"]),
        (
            f"[{{server.lr: 0.1, {SHARES}, {BETAS}}}]",
            [".0.server.lr: found 0.1; allowed: loguniform 0.5 .. 4"],
        ),
        (
            f"[{{server.lr: 1, {BETAS}}}]",
            [".0.server.stage_ends.1: missing; ", ".0.server.stage_en"],
        ),
        (f"[{{server.lr: 1, {SHARES}, {BETAS}, server.l: 1}}]", [".0.server.l: not drawn at this"]),
        (
            f"[{{server.lr: 1, server.nu: 0.5, {SHARES}, {BETAS}}}]",
            [".0.server.nu: counts only when server.lr > 1"],
        ),
        (f"[{{server.lr: 1, {SHARES}, {BETAS}, score: x}}]", [".0.score: found 'x'; a finite num"]),
        (f"[{{server.lr: 1, {SHARES}, {BETAS}, score: .nan}}]", [".0.score: found nan; a finite"]),
        (
            f"[{{server.lr: 1, server.stage_ends: [9, 9, 30], {BETAS}}}]",
            [".0.server.stage_ends: found [9, 9, 30]; 3 rounds that increase"],
        ),
        (
            f"[{{server.lr: 1, {SHARES}, server.betas: [0.5]}}]",
            [".0.server.betas: found [0.5]; 3 values belong there"],
        ),
        (
            f"[{{server.lr: 1, {SHARES}, server.betas: 0.5}}]",
            [".0.server.betas: found 0.5; a list, one entry per stage"],
        ),
        (
            f"[{{server.lr: 1, {SHARES}, {BETAS}}}, {{server.lr: 1.0, {SHARES}, {BETAS}}}]",
            [".1: the same point as methods.M.points.0"],
        ),
    ],
)
def test_a_wrong_point_is_named_by_its_place_and_parameter(points, problems):
    found = problems_of(points)
    assert len(found) == len(problems)
    for said, wanted in zip(found, problems, strict=True):
        assert said.startswith(wanted)


def test_a_point_at_another_value_than_the_one_set_by_hand_is_left_out():
    points = (
        f"[{{server.lr: 1, {SHARES}, {BETAS}}}, {{server.lr: 0.7, {SHARES}, {BETAS}, score: 1}}]"
    )
    space = config_of(points, {"server.lr": 0.7}).method("M").space
    (kept,) = space.points
    assert kept.score == 1.0
    assert "server.lr" not in kept.point


GOALS = [{"metric": "val/accuracy"}, {"metric": "comm/up_bits"}]


def test_a_known_score_is_refused_where_there_are_several_objectives():
    raw = dotted.load_yaml(FILE.replace("POINTS", "[{server.l: 1, score: 0.9}, {score: .nan}]"))
    raw |= {"search": {"objectives": GOALS}, "experimnet": {}}
    with pytest.raises(ConfigError) as caught:
        SearchConfig.parse(raw, "my.yaml")
    found = [p for p in caught.value.problems if ".score" in p]
    text = "one number says too little of 2 objectives: leave it out, and the point is run first"
    assert f"methods.M.points.0.score: found 0.9; {text}" in found
    assert f"methods.M.points.1.score: found nan; {text}" in found
    assert any(p.startswith("experimnet: ") for p in caught.value.problems)  # all at once
    assert any(p.startswith("methods.M.points.0.server.lr: missing") for p in caught.value.problems)


def test_a_point_without_a_score_is_run_first_whatever_the_objectives():
    raw = dotted.load_yaml(FILE.replace("POINTS", f"[{{server.lr: 1, {SHARES}, {BETAS}}}]"))
    raw["search"] = {"objectives": GOALS}
    (point,) = SearchConfig.parse(raw).method("M").space.points
    assert point.score is None
