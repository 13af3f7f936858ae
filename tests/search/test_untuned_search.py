"""A search with nothing to choose: from the confirmations to the table, the page and MLflow."""

import copy
import json

import pytest
from searched_here import search_here
from small_search import DIGITS, command

from fltune.tracking import Store


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    """The folder of a search of two methods at fixed values."""
    folder = tmp_path_factory.mktemp("untuned")
    raw = copy.deepcopy(DIGITS)
    raw["methods"] = {
        "FedAvg": {"space": {}},
        "FedGM": {"server": {"name": "fedgm"}, "space": {"server.beta": {"grid": [0.7]}}},
    }
    search_here(raw, folder, "untuned")
    return folder


def test_only_confirmations_are_run(untuned):
    log = untuned / "searches" / "untuned" / "trials.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    told = [(r["method"], r["kind"], r["number"], r["seed"]) for r in records]
    assert told == [(m, "confirmation", 0, s) for m in ("FedAvg", "FedGM") for s in (1, 2)]


def test_the_comparison_has_their_scores_and_no_trials(untuned):
    printed = command("compare", "untuned", "--json", "--html", untuned / "x.html", root=untuned)
    found = json.loads(printed.splitlines()[-1])["methods"]
    for method in found.values():
        assert (method["trials"], method["test"]["seeds"]) == (0, 2)
        assert method["val"] == pytest.approx(method["metrics"]["val/accuracy"]["mean"], abs=0.1)
    assert "Nothing was to be chosen" in " ".join(printed.split())
    assert "confirmed without a trial" in (untuned / "x.html").read_text(encoding="utf-8")


def test_a_config_is_explained_though_it_had_no_trial(untuned):
    assert "confirmed without a trial" in command("explain", "untuned/FedGM#0", root=untuned)


def test_mlflow_has_the_methods_and_their_confirmations(untuned):
    store = Store.open(f"sqlite:///{untuned / 'mlflow.db'}", "untuned", untuned / "artifacts")
    methods = {run.tags["fltune.method"]: run for run in store.find({"fltune.kind": "method"})}
    assert {name: run.status for name, run in methods.items()} == dict.fromkeys(
        ("FedAvg", "FedGM"), "FINISHED"
    )
    assert methods["FedGM"].params["server.beta"] == "0.7"
    assert {run.tags["fltune.confirmed"] for run in methods.values()} == {"2"}
    assert len(store.find({"fltune.kind": "confirmation"})) == 4
    assert not store.find({"fltune.kind": "trial"})
