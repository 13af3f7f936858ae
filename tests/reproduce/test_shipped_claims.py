"""The claims of the shipped experiments: all valid, none forgotten."""

from pathlib import Path

import pytest

from fltune.errors import ConfigError
from fltune.reproduce.catalogue import find, views_beside
from fltune.reproduce.readings import Evidence
from fltune.reproduce.reproduction import check_claims, reproduce
from fltune.search.config import SearchConfig

SPACES = Path(__file__).parents[2] / "search_spaces"
PAPERS, MINIS = (find("all", SPACES, mini) for mini in (False, True))
VIEWED = {"fedsum-grid"}
"""A search that finds rates, of which no paper claims anything."""


@pytest.mark.parametrize("entry", [*PAPERS, *MINIS], ids=lambda entry: entry.name)
def test_claims_are_of_what_the_file_has(entry):
    assert entry.claims.claims
    if entry.claims.computes is None:
        check_claims(entry, Evidence.planned(SearchConfig.read(entry.path)))
    assert all(len(claim.says) < 100 for claim in entry.claims.claims.values())


def test_every_file_of_a_paper_makes_claims():
    files = {p.stem for p in (SPACES / "papers").rglob("*.yaml") if not p.name.startswith("_")}
    assert files - {entry.name for entry in PAPERS} == VIEWED


def test_every_experiment_has_a_small_variant():
    stood_for = {name for entry in MINIS for name in entry.stands_for}
    experiments = {entry.experiment for entry in PAPERS}
    assert stood_for <= experiments
    small = {"fedsum-fig4", "fedcdr-tab7", "fedcdr-tab2", "fedcdr-tab11"}
    assert experiments - stood_for == small  # seconds as they are; tables 2 and 11 are tables 1, 10


def test_an_experiment_is_found_by_id_by_file_and_by_what_it_stands_for():
    assert [e.name for e in find("fedcdr-tab2", SPACES)] == [
        "fedcdr-tab2-cifar",
        "fedcdr-tab2-mnist",
    ]
    assert [e.name for e in find("fedcdr-tab2-mnist", SPACES)] == ["fedcdr-tab2-mnist"]
    assert [e.name for e in find("fedgm-fig4", SPACES, mini=True)] == ["mini-fedgm-alpha"]
    assert [e.name for e in find("mini-fedgm-alpha", SPACES, mini=True)] == ["mini-fedgm-alpha"]
    with pytest.raises(ConfigError, match=r"no experiment 'fedgm-fig44'; did you mean 'fedgm-fig4"):
        find("fedgm-fig44", SPACES)
    with pytest.raises(ConfigError, match=r"no experiment 'fedcdr-tab7' with a small variant"):
        find("fedcdr-tab7", SPACES, mini=True)


def test_a_files_name_is_that_file_alone_and_the_others_of_its_experiment_are_known():
    (literal,) = find("fedgm-fig1ab", SPACES)  # also the id of the file that selects by test
    assert literal.name == "fedgm-fig1ab"
    assert views_beside(literal, SPACES) == ["fedgm-fig1ab-by-test"]
    (alone,) = find("fedgm-fig5", SPACES)
    assert views_beside(alone, SPACES) == []


def test_an_experiment_without_its_data_is_not_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (entry,) = find("fedgm-fig5", SPACES)
    outcome = reproduce(entry)
    assert (outcome.status, outcome.reason) == ("not run", "its data is not here: cifar10")
    assert outcome.judgements == []


def test_wrong_claims_of_a_file_are_refused_before_anything_starts(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(
        f"extends: {SPACES / 'mini' / 'mini-fedgm-stability.yaml'}\n"
        "figure: {panels: rate}\n"
        "claims:\n"
        "  one: {says: so, statistic: level, of: FedXY, above: 0}\n"
        "  two: {says: so, statistic: computed, of: FedGM, above: 0}\n"
    )
    (entry,) = find("wrong", tmp_path)
    with pytest.raises(ConfigError) as caught:
        reproduce(entry)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "claims.one.of",
        "claims.two.statistic",
        "figure.panels",
    ]
