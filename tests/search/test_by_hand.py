"""Another component put by hand where the file names one: what only the old one has is gone."""

import copy

import pytest

from fltune.dotted import KIND_SECTIONS
from fltune.errors import ConfigError
from fltune.search.by_hand import NAMED
from fltune.search.config import SearchConfig

RAW = {
    "experiment": {
        "data": {"clients": 20, "partition": {"kind": "dirichlet", "alpha": 0.3}},
        "model": {"hidden": [16]},
        "participation": {"kind": "uniform", "per_round": 5},
        "server": {"name": "fedgm", "lr": 2.0, "beta": 0.9},
    },
    "methods": {"A": {"space": {"client.lr": {"loguniform": [0.01, 1.0]}}}},
}


def chosen(*settings, methods=None, **experiment):
    raw = copy.deepcopy(RAW)
    raw["experiment"] |= experiment
    raw["methods"] = methods or raw["methods"]
    config = SearchConfig.of(raw, settings=settings)
    return [method.experiment({}) for method in config.methods.values()]


def test_bare_names_are_written_out_by_the_key_that_their_section_has():
    kinds = [key.split(".")[-2] for key, named in NAMED.items() if named.key == "kind"]
    assert sorted(kinds) == sorted(KIND_SECTIONS)


def kept(section):
    return section.model_dump(exclude_defaults=True)


@pytest.mark.parametrize(
    "settings",
    [
        ["participation.kind=bernoulli", "participation.probability=0.2"],
        ["participation.probability=0.2", "participation.kind=bernoulli"],
        ["experiment.participation.kind=bernoulli", "participation.probability=0.2"],
        ["methods.A.participation.kind=bernoulli", "methods.A.participation.probability=0.2"],
    ],
)
def test_a_kind_that_is_set_leaves_nothing_of_the_old_one(settings):
    (experiment,) = chosen(*settings)
    assert experiment.participation.component_name == "bernoulli"
    assert experiment.participation.options()["probability"] == 0.2


def test_what_both_components_have_stays():
    (experiment,) = chosen("participation.kind=cyclic", "server.name=fedadam")
    assert experiment.participation.per_round == 5
    assert experiment.server.lr == 2.0
    assert not hasattr(experiment.server, "beta")


def test_a_section_below_another_one_and_one_that_names_no_component():
    (experiment,) = chosen("data.partition.kind=shards", "model.name=linear")
    assert experiment.data.partition.component_name == "shards"
    assert experiment.data.clients == 20  # of every data set
    assert experiment.model.component_name == "linear"
    (experiment,) = chosen(
        "participation.kind=bernoulli", "participation.probability=1", participation="full"
    )
    assert experiment.participation.component_name == "bernoulli"


@pytest.mark.parametrize("name", ["", "uniform"])
def test_what_methods_say_of_the_old_component_goes_too(name):
    own = {"per_round": 3, **({"kind": name} if name else {})}
    both = {
        "A": {"participation": own, "space": {}},
        "B": {"space": {}},
        "C": {"participation": {"kind": "groups", "per_round": 2}, "space": {}},
    }
    settings = ["participation.kind=bernoulli", "participation.probability=0.2"]
    for methods in (both, {"A": both["A"]}):  # beside one that says nothing, and as all say it
        before = copy.deepcopy(methods)
        found = chosen(*settings, methods=methods)
        assert {e.participation.component_name for e in found} == {"bernoulli"}
        assert methods == before


def test_a_slip_in_the_file_is_still_told():
    slip = {"kind": "uniform", "per_rond": 5}
    with pytest.raises(ConfigError) as error:
        chosen("participation.kind=bernoulli", "participation.probability=0.2", participation=slip)
    assert "experiment.participation.per_rond: unknown key" in str(error.value)


def test_an_unknown_name_is_told_alone():
    with pytest.raises(ConfigError) as error:
        chosen("participation.kind=bernouli")
    (problem,) = error.value.problems
    assert "unknown participation pattern 'bernouli'" in problem
