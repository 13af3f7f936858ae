"""Values that a method cannot take over are found before anything starts."""

import pytest
from fake_workers import EXPERIMENT

from fltune.errors import ConfigError
from fltune.search.bequest import bequest
from fltune.search.config import SearchConfig

SOURCE = {"space": {"participation.per_round": {"grid": [2, 10]}, "server.lr": {"grid": [1, 2]}}}


def config_of(source, heir, **search):
    experiment = {**EXPERIMENT, "participation": {"kind": "uniform", "per_round": 2}}
    methods = {"A": source, "B": heir}
    return SearchConfig.parse({"experiment": experiment, "methods": methods, "search": search})


def problems_of(source, heir, **search):
    with pytest.raises(ConfigError) as caught:
        config_of(source, heir, **search)
    return caught.value.problems


def inherits(*keys, **entry):
    return {"inherit": {"from": "A", "keys": list(keys)}, "space": {}, **entry}


def test_an_heir_with_fewer_clients_than_the_source_may_choose():
    (problem,) = problems_of(SOURCE, inherits("participation.per_round", data={"clients": 5}))
    assert problem.startswith("methods.B.inherit: participation: per_round = 10 is more than the 5")
    assert problem.endswith("if 'A' finds participation.per_round = 10")


def test_it_is_found_too_where_the_heir_searches_the_key_itself():
    own = {"participation.per_round": {"grid": [2, 5]}}
    (problem,) = problems_of(
        SOURCE, inherits("participation.per_round", data={"clients": 5}, space=own)
    )
    assert "per_round = 10 is more than the 5 clients" in problem


def test_a_range_is_judged_by_its_ends():
    source = {"space": {"participation.per_round": {"int": [2, 9]}}}
    (problem,) = problems_of(source, inherits("participation.per_round", data={"clients": 8}))
    assert "per_round = 9 is more than the 8 clients" in problem


def test_what_the_heir_can_have_is_taken_over():
    config = config_of(SOURCE, inherits("participation.per_round", "server.lr"))
    heir, source = config.method("B"), config.method("A")
    point = {"participation.per_round": 10, "server.lr": 2}
    assert bequest(heir, source, point) == point


def test_without_keys_all_is_taken_over_that_was_drawn_and_no_more():
    """What the source ties or fixes the heir has otherwise, by its own file."""
    rates = {"server.lr": {"grid": [1, 2]}, "client.lr": {"tied": "0.1 / server.lr"}}
    own = {**rates, "client.lr": {"tied": "0.2 / server.lr"}, "rounds": {"fixed": 6}}
    source = {"space": {**rates, "rounds": {"fixed": 8}}}
    config = config_of(source, {"inherit": {"from": "A"}, "space": own})
    heir, source = config.method("B"), config.method("A")
    assert bequest(heir, source, {"server.lr": 2}) == {"server.lr": 2}


def test_what_is_not_taken_over_may_be_anything():
    config_of(SOURCE, inherits("server.lr", data={"clients": 5}))


def test_stage_ends_of_a_run_of_another_length():
    multistage = {"name": "multistage", "stages": 2, "betas": [0.5, 0.9]}
    source = {"server": multistage, "space": {"server.stage_ends": {"stages": "free"}}}
    heir = inherits("server.stage_ends", server=multistage, rounds=20)
    problems = problems_of(source, heir)
    assert problems
    assert all(p.startswith("methods.B.inherit: server") for p in problems)


def test_all_of_it_is_said_at_once():
    second = inherits("participation.per_round", data={"clients": 6})
    first = inherits("participation.per_round", data={"clients": 5})
    experiment = {**EXPERIMENT, "participation": {"kind": "uniform", "per_round": 2}}
    with pytest.raises(ConfigError) as caught:
        SearchConfig.parse(
            {"experiment": experiment, "methods": {"A": SOURCE, "B": first, "C": second}}
        )
    assert [p.split(":")[0] for p in caught.value.problems] == [
        "methods.B.inherit",
        "methods.C.inherit",
    ]


def test_one_method_alone_takes_over_nothing():
    experiment = {**EXPERIMENT, "participation": {"kind": "uniform", "per_round": 2}}
    heir = inherits("participation.per_round", data={"clients": 5})
    raw = {"experiment": experiment, "methods": {"A": SOURCE, "B": heir}}
    assert list(SearchConfig.parse(raw, methods=["B"]).methods) == ["B"]


def test_stage_ends_of_the_whole_run_in_short_trials():
    """The winner's are taken over as they are confirmed; a method without trials can have them."""
    server = {"name": "multistage", "stages": 2, "betas": [0.5, 0.9]}
    source = {"server": server, "space": {"server.stage_ends": {"stages": "equal"}}}
    tuned = inherits("server.stage_ends", server=server, space={"server.lr": {"grid": [1, 2]}})
    config_of(source, tuned)
    (problem,) = problems_of(source, tuned, rounds=4)
    assert problem == (
        "methods.B.inherit: server: stage_ends ends at 8, but the run has 4 rounds (rounds) (in a "
        "trial of search.rounds), if 'A' finds server.stage_ends = [4, 8]"
    )
    config_of(source, inherits("server.stage_ends", server=server), rounds=4)
