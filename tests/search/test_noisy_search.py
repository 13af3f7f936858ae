"""A search whose clients are asked one by one: from the runs to the table and MLflow."""

import copy
import json
from pathlib import Path

import pytest
from searched_here import search_here
from small_search import DIGITS, command

from fltune.tracking import Store


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The folder of a search on a panel of 6 of 8 clients."""
    folder = tmp_path_factory.mktemp("asked")
    raw = copy.deepcopy(DIGITS)
    raw["experiment"]["data"] |= {"clients": 8, "val_from": "clients", "val_clients": 6}
    raw["experiment"] |= {"rounds": 2, "eval_every": 1}
    raw["search"] = {"trials": 3, "confirm_seeds": 1, "seeds": 2}
    raw["methods"] = {"FedAvg": raw["methods"]["FedAvg"]}
    search_here(raw, folder, "asked")
    return folder


def test_every_ended_run_keeps_what_its_clients_said(asked):
    log = asked / "searches" / "asked" / "trials.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(records) >= 4  # a config may lose on its first seed
    for record in records:
        table = record["by_client"]
        assert set(table) == {"client", "samples", "correct", "loss"}
        assert {len(column) for column in table.values()} == {6}
        accuracy = sum(table["correct"]) / sum(table["samples"])
        assert record["metrics"]["val/accuracy"] == pytest.approx(accuracy, rel=1e-6)
        assert record["rows"][-1]["val/accuracy_se"] > 0
    assert len({tuple(r["by_client"]["client"]) for r in records}) == 1  # one panel, any seed


def test_explain_replays_the_choice_with_fewer_clients(asked):
    printed = command("explain", "asked", "--noise", "--json", root=asked)
    found = json.loads(printed.splitlines()[-1])
    method = found["methods"]["FedAvg"]
    assert method["clients"] == 6
    assert [p["clients"] for p in method["panels"]] == [1, 2, 4, 6]
    assert method["panels"][-1] == {"clients": 6, "agreement": 1.0, "regret": 0.0}
    assert method["winner"] == method["best"]
    assert "the same choice with fewer clients" in printed


def test_the_searchs_own_run_in_mlflow_holds_all_of_it(asked):
    store = Store.open(f"sqlite:///{asked / 'mlflow.db'}", "asked", asked / "artifacts")
    (run,) = store.find({"fltune.kind": "search"})
    path = store.client.download_artifacts(run.id, "evaluation/per_client.json")
    kept = json.loads(Path(path).read_text())["runs"]
    log = asked / "searches" / "asked" / "trials.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    trials = {(r["number"], r["seed"]): r for r in records if r["kind"] == "trial"}
    assert len(kept) == len(trials)
    for run in kept:
        record = trials[run["trial"], run["seed"]]
        assert run["correct"] == record["by_client"]["correct"]
        assert (run["method"], run["values"]) == ("FedAvg", record["values"])
