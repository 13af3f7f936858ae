"""A real search whose trials are judged by few clients at first, and its winner by all."""

import copy
import json

import pytest
import yaml
from small_search import DIGITS, command

from fltune.runner import run
from fltune.search.config import SearchConfig

CLIENTS = 9
ASKED = {1: 2, 2: 4, 3: CLIENTS, 4: CLIENTS}
"""By round, with rungs at 1 and 2."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """The folder of a search of six configs in packs; of the second three some are stopped."""
    folder = tmp_path_factory.mktemp("grown")
    raw = copy.deepcopy(DIGITS)
    raw["experiment"]["data"] |= {"clients": CLIENTS, "val_from": "clients"}
    raw["experiment"] |= {"rounds": 4, "eval_every": 1}
    raw["search"] = {"trials": 6, "batch": 3, "deterministic": True, "confirm_seeds": 1, "pack": 3}
    raw["search"] |= {"concurrent": 1}
    raw["search"] |= {"scheduler": "asha", "grace": 1, "reduction": 2, "first_panel": 2}
    raw["search"]["metric"] = "val/loss"
    rates = [1.0, 0.001, 1.2, 0.002, 0.8, 0.9]
    raw["methods"] = {"FedAvg": {"space": {"server.lr": {"grid": rates}}}}
    (folder / "grown.yaml").write_text(yaml.safe_dump(raw))
    assert command("search", folder / "grown.yaml", "--name", "grown", root=folder)
    return folder


@pytest.fixture(scope="module")
def records(grown):
    log = grown / "searches" / "grown" / "trials.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.search
def test_few_judge_a_trial_at_first_and_all_its_end(records):
    trials = [record for record in records if record["kind"] == "trial"]
    assert {record["status"] for record in trials} == {"complete", "pruned"}
    for record in trials:
        asked = {row["round"]: row["val/clients"] for row in record["rows"]}
        assert asked == {round: ASKED[round] for round in asked}
        if record["status"] == "complete":
            assert len(record["by_client"]["client"]) == CLIENTS
        else:
            judges = ASKED[record["rows"][-1]["round"]]
            assert record["message"].endswith(f"rounds, judged by {judges} clients")
    (confirmed,) = [record for record in records if record["kind"] == "confirmation"]
    assert not any("val/clients" in row for row in confirmed["rows"])
    assert len(confirmed["by_client"]["client"]) == CLIENTS


@pytest.mark.search
def test_a_trial_in_a_pack_is_judged_as_one_alone(grown, records):
    config = SearchConfig.read(grown / "searches" / "grown" / "search.yaml")
    method = config.method("FedAvg")
    record = next(r for r in records if r["status"] == "complete" and r["kind"] == "trial")
    beside = {"seed": record["seed"], **method.of_trials(config.settings.search)}
    alone = run(method.experiment({**record["values"], **beside}), test=False)
    for row, other in zip(record["rows"], alone.history, strict=True):
        assert row == pytest.approx(other, rel=1e-5)


@pytest.mark.search
def test_explain_says_who_judged(grown, records):
    record = next(r for r in records if r["status"] == "complete" and r["kind"] == "trial")
    printed = command("explain", f"grown/FedAvg#{record['number']}", "--json", root=grown)
    assert "clients by round  1: 2  2: 4  3: 9" in printed
    assert json.loads(printed.splitlines()[-1])["clients_by_round"] == {"1": 2, "2": 4, "3": 9}
