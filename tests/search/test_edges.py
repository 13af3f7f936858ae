"""A winner on the border of its space: named, with a wider entry that the config allows."""

import copy
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fltune import dotted
from fltune.search.candidate import Candidate
from fltune.search.config import SearchConfig
from fltune.search.edges import find_edges, widened, wider_entries
from fltune.search.jobs import DONE
from fltune.search.lane import Lane
from fltune.search.record import TrialRecord
from fltune.search.settings import SearchSettings

RAW = {
    "experiment": {
        "data": {"name": "digits", "clients": 20},
        "participation": {"kind": "uniform", "per_round": 5},
        "server": {"name": "fedgm"},
        "client": {"lr": 0.1, "steps": 2},
        "rounds": 4,
    },
    "search": {"trials": 6, "confirm_seeds": 0},
}


def method_with(space, name="FedGM"):
    raw = {**copy.deepcopy(RAW), "methods": {name: {"space": space}}}
    return SearchConfig.parse(raw).method(name)


def candidate(number, values, score, violation=0.0):
    run = TrialRecord("FedGM", "trial", number, values, 0, status="complete", scores=[score])
    run.violations = [violation]
    return Candidate(number, values, [0], [run])


@st.composite
def entries(draw):
    """A parameter and an entry of any kind that its config allows, on either side of its limits."""
    real = st.floats(0.001, 0.999).map(lambda v: float(f"{v:.4g}"))
    kind = draw(st.sampled_from(["grid", "choice", "uniform", "loguniform", "int", "logint"]))
    if kind in ("int", "logint"):
        low = draw(st.integers(1, 15))
        high = draw(st.integers(low + 1, 20))
        step = draw(st.sampled_from([None, 1, high - low])) if kind == "int" else None
        extra = {} if step is None else {"step": step}
        return "participation.per_round", {kind: [low, high], **extra}
    name = draw(st.sampled_from(["server.beta", "server.lr"]))
    count = draw(st.integers(2, 5)) if kind in ("grid", "choice") else 2
    values = sorted(draw(st.lists(real, min_size=count, max_size=count, unique=True)))
    if kind == "uniform" and draw(st.booleans()):
        return name, {kind: [0.1, 0.9], "step": 0.2}
    return name, {kind: values}


@given(entries(), st.sampled_from(["lowest", "highest"]))
def test_a_wider_entry_parses_is_allowed_and_holds_the_old_one(entry, side):
    name, written = entry
    method = method_with({name: written})
    (dimension,) = method.space.dimensions.values()
    edge = min(dimension.values) if side == "lowest" else max(dimension.values)
    wider = widened(method, {name: edge}, name, side)
    if not wider:  # nothing lies beyond, or nothing that a short number names
        return
    again = method.widened({name: wider}).space.dimensions[name]
    kept = dimension.values if dimension.finite else (dimension.values[0], dimension.values[1])
    assert again.kind == dimension.kind
    assert all(value in again for value in kept)
    if side == "lowest":
        assert min(again.values) < min(dimension.values)
        assert max(again.values) == max(dimension.values)
    else:
        assert max(again.values) > max(dimension.values)
        assert min(again.values) == min(dimension.values)


@pytest.mark.parametrize(
    ("name", "entry", "side", "wider"),
    [
        ("server.lr", {"grid": [0.5, 1.0, 2.0]}, "highest", {"grid": [0.5, 1.0, 2.0, 4.0, 8.0]}),
        ("server.lr", {"grid": [2.0, 1.0]}, "lowest", {"grid": [0.5, 1.0, 2.0]}),
        ("client.lr", {"grid": [1, 2, 3]}, "highest", {"grid": [1, 2, 3, 4, 5]}),
        ("client.steps", {"choice": [4, 8]}, "highest", {"choice": [4, 8, 16]}),
        ("server.beta", {"choice": [0.7, 0.9, 0.95]}, "highest", None),
        ("server.beta", {"uniform": [0.5, 0.9]}, "highest", None),
        ("client.steps", {"int": [4, 12], "step": 4}, "highest", {"int": [4, 16], "step": 4}),
        ("client.lr", {"loguniform": [0.01, 1.0]}, "lowest", {"loguniform": [0.001, 1.0]}),
        ("participation.per_round", {"int": [10, 18]}, "highest", {"int": [10, 20]}),
    ],
)
def test_entries_go_on_in_their_own_steps_up_to_the_limit(name, entry, side, wider):
    method = method_with({name: entry})
    values = method.space.dimensions[name].values
    found = widened(method, {name: min(values) if side == "lowest" else max(values)}, name, side)
    if wider is not None:
        assert found == wider
    else:  # beta is below 1
        (made,) = found.values()
        assert max(values) < max(made) < 1


class Heads(nn.Module):
    """A model of one's own, whose constructor says nothing of what its arguments may be."""

    def __init__(self, heads=2, dropout=0.0):
        super().__init__()


@pytest.mark.parametrize(
    ("name", "entry", "wider"),
    [
        ("model.heads", {"choice": [1, 2, 4]}, None),
        ("model.heads", {"choice": [3, 4, 5]}, {"choice": [1, 2, 3, 4, 5]}),
        ("model.heads", {"choice": [2, 4, 6]}, {"choice": [1, 2, 4, 6]}),
        ("model.heads", {"int": [1, 4]}, None),
        ("model.dropout", {"uniform": [0.1, 0.9]}, {"uniform": [0.05, 0.9]}),
        ("model.dropout", {"uniform": [0.0, 0.5]}, None),
        ("model.dropout", {"uniform": [-1.0, 0.5]}, {"uniform": [-1.75, 0.5]}),
    ],
)
def test_a_number_of_a_model_goes_on_on_its_side_of_0(name, entry, wider):
    method = method_with({name: entry, "model.name": f"{__name__}:Heads"})
    (values,) = entry.values()
    assert widened(method, {name: values[0]}, name, "lowest") == (wider or {})
    assert bool(method.extendable_edges({name: values[0]})) == bool(wider)


def test_a_list_with_a_paired_one_has_no_wider_entry():
    space = {
        "client.lr": {"grid": [0.1, 0.2]},
        "server.lr": {"paired": [1, 2], "with": "client.lr"},
    }
    assert widened(method_with(space), {"client.lr": 0.2}, "client.lr", "highest") == {}


def test_a_condition_stays_on_the_wider_entry():
    space = {
        "client.steps": {"choice": [2, 4]},
        "client.lr": {"grid": [0.1, 0.2], "when": {"client.steps": 4}},
    }
    point = {"client.steps": 4, "client.lr": 0.2}
    wider = widened(method_with(space), point, "client.lr", "highest")
    assert wider == {"grid": [0.1, 0.2, 0.4], "when": {"client.steps": 4}}


@pytest.mark.parametrize(("maximize", "rising"), [(True, True), (False, False)])
def test_an_edge_says_how_the_score_moves_toward_it(maximize, rising):
    method = method_with({"server.lr": {"grid": [0.5, 1.0, 2.0]}})
    scores = {0.5: 0.1, 1.0: 0.4, 2.0: 0.7}
    tried = [candidate(i, {"server.lr": v}, s) for i, (v, s) in enumerate(scores.items())]
    (edge,) = find_edges(method, tried, tried[2], maximize)
    assert (edge.parameter, edge.side, edge.value) == ("server.lr", "highest", 2.0)
    assert edge.trend == [(0.5, 0.1), (1.0, 0.4), (2.0, 0.7)]
    assert edge.still_rising == rising
    assert find_edges(method, tried, tried[1], maximize) == []


@pytest.mark.parametrize(
    ("entry", "tried", "trend"),
    [
        ({"int": [1, 3]}, [1, 2, 3, 1], [(1, 0.1), (2, 0.2), (3, 0.3)]),
        ({"logint": [4, 64]}, [5, 7, 21, 60, 64], [(7, 0.2), (21, 0.3), (64, 0.5)]),
        ({"loguniform": [0.01, 1.0]}, [0.02, 0.5, 0.03, 1.0], [(0.02, 0.1), (1.0, 0.4)]),
    ],
)
def test_a_trend_of_a_range_names_values_that_were_tried(entry, tried, trend):
    """Each part of the range by its best config, not by its end, which may be no value at all."""
    name = "client.lr" if "loguniform" in entry else "client.steps"
    method = method_with({name: entry})
    scores = [(i + 1) / 10 for i in range(len(tried))]
    if name == "client.lr":
        scores[2] = 0.05
    elif len(tried) == 4:
        scores[3] = 0.05
    found = [candidate(i, {name: v}, scores[i]) for i, v in enumerate(tried)]
    best = max(found, key=lambda c: c.scores[0])
    (edge,) = find_edges(method, found, best, True)
    assert edge.trend == trend
    assert edge.still_rising


@pytest.mark.parametrize(
    ("entry", "search", "trials"),
    [
        ({"loguniform": [0.5, 2.0]}, {}, 6),
        ({"grid": [0.5, 2.0]}, {}, 0),  # its 3 cells all run
        ({"grid": [0.5, 2.0]}, {"trials": 2}, 2),  # 3 of 2 are drawn
        ({"grid": [0.5, 2.0]}, {"trials": 2, "sampler": "grid"}, 0),
    ],
)
def test_a_wider_space_needs_trials_where_it_is_drawn_from(entry, search, trials):
    method = method_with({"server.lr": entry})
    winner = candidate(0, {"server.lr": 2.0}, 0.5)
    settings = SearchSettings(**{**RAW["search"], **search})
    (edge,) = find_edges(method, [winner], winner, True)
    edge = edge.with_trials(method, settings)
    words = shlex.split(edge.extension("FedGM"))
    assert words[-2] == "--set"
    assert words[:-2] == (["--trials", str(trials)] if trials else [])


def test_the_option_of_an_edge_is_one_word_of_a_shell_and_widens_the_space():
    name = "it's 1.5 @ P1, mild"
    method = method_with({"server.lr": {"grid": [0.5, 1.0]}}, name)
    winner = candidate(0, {"server.lr": 1.0}, 0.5)
    (edge,) = find_edges(method, [winner], winner, True)
    option, setting = shlex.split(edge.option(name))
    assert option == "--set"
    key, value = dotted.parse_assignment(setting)
    assert (key, value) == (f"methods.{name}.space.server.lr", {"grid": [0.5, 1.0, 2.0]})


def test_a_number_of_a_stage_on_an_edge_is_named_and_has_no_entry_to_widen():
    space = {
        "server.name": "multistage",
        "server.stages": 2,
        "server.lr": {"fixed": 1.0},
        "server.lrs": {"stages": {"drop": {"choice": [0.5, 0.25]}}},
        "server.betas": {"stages": {"uniform": [0.5, 0.95]}},
    }
    method = method_with(space)
    values = {"server.lrs.1": 0.25, "server.betas.1": 0.95, "server.betas.2": 0.7}
    winner = candidate(0, values, 0.5)
    edges = find_edges(method, [winner], winner, True)
    sides = {"server.lrs.1": "lowest", "server.betas.1": "highest"}
    assert {edge.parameter: edge.side for edge in edges} == sides
    assert [edge.wider for edge in edges] == [{}, {}]
    assert wider_entries(method, edges) == {}


def test_edges_that_do_not_go_together_are_widened_one_by_one():
    method = method_with({"server.lr": {"grid": [0.5, 1.0]}, "client.lr": {"grid": [0.1, 0.2]}})
    winner = candidate(0, {"server.lr": 1.0, "client.lr": 0.2}, 0.5)
    edges = find_edges(method, [winner], winner, True)
    assert set(wider_entries(method, edges)) == {"server.lr", "client.lr"}
    method.widened = lambda entries: method if len(entries) < 2 else _refuse()
    assert set(wider_entries(method, edges)) == {"server.lr"}


def _refuse():
    from fltune.errors import ConfigError

    raise ConfigError("not both")


@pytest.mark.parametrize("space", [{"grid": [0.5, 1.0, 2.0]}, {"loguniform": [0.5, 2.0]}])
@pytest.mark.parametrize("times", [0, 2])
def test_a_search_follows_its_optimum_out_of_the_space(space, times):
    raw = {**RAW, "methods": {"FedGM": {"space": {"server.lr": space}}}}
    raw["search"] = {**RAW["search"], "trials": 8, "extend_edges": times}
    config = SearchConfig.parse(raw)
    events = []
    lane = Lane(config.method("FedGM"), config.settings.search, events.append)
    while (job := lane.next()) != DONE:
        lr = job["searched"]["server.lr"]
        lane.ended(
            TrialRecord(
                "FedGM",
                job["kind"],
                job["number"],
                job["searched"],
                job["seed"],
                status="complete",
                scores=[-abs(lr - 6.0)],
                rows=[{"round": 4}],
            )
        )
    found = lane.front[0].values["server.lr"]
    assert sum(e["event"] == "widened" for e in events) <= times
    if times:
        assert found > 2.5
    else:
        assert found <= 2.0


def test_a_trend_is_told_by_configs_that_keep_the_constraints():
    method = method_with({"server.lr": {"grid": [0.5, 1.0, 2.0]}})
    found = [
        candidate(0, {"server.lr": 0.5}, 0.5),
        candidate(1, {"server.lr": 1.0}, 0.9, violation=3.0),
        candidate(2, {"server.lr": 2.0}, 0.7),
    ]
    (edge,) = find_edges(method, found, found[2], maximize=True)
    assert edge.trend == [(0.5, 0.5), (2.0, 0.7)]
    assert edge.still_rising
    (edge,) = find_edges(method, found, candidate(3, {"server.lr": 2.0}, 0.7, 1.0), maximize=True)
    assert [value for value, _ in edge.trend] == [0.5, 1.0, 2.0]
