"""Trials of fewer rounds than the winners are confirmed over: ``search.rounds``."""

import io

import pytest
import yaml
from fake_workers import GRID, Disk, Night, config_of, well
from good_search import changed, good, problems_of
from rich.console import Console
from timers import constant

from fltune.errors import ConfigError
from fltune.report.explain import explain
from fltune.report.summary import summarise_method
from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.jobs import experiment_of
from fltune.search.lane import Lane
from fltune.search.plan import plan, print_bill
from fltune.search.record import CONFIRMATION, TRIAL
from fltune.search.recorder import _own_config
from fltune.search.search import _refuse_other_trials

HEIR = {"A": GRID, "B": {"inherit": {"from": "A", "keys": ["server.lr"]}, "space": {}}}


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (100, 8), (None, 8)])
def test_trials_are_short_and_confirmations_whole(tmp_path, asked, made):
    night = Night(config_of(HEIR, rounds=asked, pack=3), Disk(tmp_path), end=well)
    campaign = night.work()
    rounds = {kind: set() for kind in (TRIAL, CONFIRMATION)}
    for job in night.jobs:
        rounds[job["kind"]].add(experiment_of(job).rounds)
    assert rounds == {TRIAL: {made}, CONFIRMATION: {8}}
    for record in campaign.records:
        assert record.rounds == (8 if record.kind == CONFIRMATION else made)
        assert "rounds" not in record.values  # nothing that is searched
    assert campaign.lanes["B"].reported


def test_a_search_that_goes_on_keeps_its_short_trials(tmp_path):
    config = config_of({"A": GRID}, rounds=4)
    first = Night(config, Disk(tmp_path), end=well)
    first.work(11)
    frozen = SearchConfig.parse(yaml.safe_load(config.as_yaml()))
    night = Night(frozen, Disk(tmp_path), end=well)
    night.work()
    again = [j for j in night.jobs if j["kind"] == TRIAL]
    assert 0 < len(again) < 8
    assert {experiment_of(job).rounds for job in again} == {4}


def test_an_extension_cannot_change_them():
    config = config_of({"A": GRID}, rounds=4)
    with pytest.raises(ConfigError, match=r"search\.rounds: an extension cannot change"):
        _refuse_other_trials(config, config_of({"A": GRID}, rounds=6))
    _refuse_other_trials(config, config_of({"A": GRID}, rounds=4, confirm_seeds=9))


def test_early_stopping_and_rounds_to_a_target_know_of_them():
    goal = [{"metric": "val/accuracy", "target": 0.9}]
    config = config_of({"A": GRID}, rounds=4, objectives=goal)
    lane = Lane(config.method("A"), config.settings.search, lambda entry: None)
    assert lane.worst == {TRIAL: (5.0,), CONFIRMATION: (9.0,)}  # a round more than there are
    config = config_of({"A": GRID}, rounds=4, scheduler="asha", grace=1, reduction=2)
    lane = Lane(config.method("A"), config.settings.search, lambda entry: None)
    assert lane.rungs.rungs == [1, 2]


def test_a_confirmation_that_diverges_is_worse_than_one_that_misses_the_target(tmp_path):
    """Candidate 0 misses the target in all 8 rounds; candidate 1 diverges, and shall not win."""
    goal = [{"metric": "val/accuracy", "target": 0.9}]
    space = {"space": {"server.lr": {"grid": [0.5, 1.0]}}}
    config = config_of({"A": space}, rounds=4, objectives=goal, confirm_top=2, confirm_seeds=1)
    campaign = Campaign(config, Disk(tmp_path), lambda event, record: None)
    outcome = {"status": "complete", "message": "over", "metrics": {}, "comm": {}, "seconds": 1.0}
    outcome |= {"participation": {}, "client_samples": 1, "strategy": "", "finished": True}
    for n, score in enumerate([3.0, 2.0, None, 9.0]):
        job = campaign.next(f"t{n}")
        campaign.started(f"t{n}")
        number = float("nan") if score is None else score
        report = {**outcome, "round": 4, "scores": [number], "rows": []}
        campaign.reported(f"t{n}", report)
        campaign.ended(f"t{n}")
        assert job["kind"] == (TRIAL if n < 2 else CONFIRMATION)
    diverged = next(r for r in campaign.lanes["A"].confirmation.runs if r.status == "diverged")
    assert diverged.scores == [9.0]


def test_what_is_wrong_in_a_short_trial_alone_is_said_before_anything_starts():
    raw = changed("search/rounds", 5)
    raw["experiment"]["server"] = {"name": "multistage", "lrs": [2, 1], "stage_ends": [4, 10]}
    raw["methods"] = {"M": {"space": {"server.nu": {"grid": [0.5, 0.9]}}}}
    (problem,) = problems_of(raw)
    assert problem.startswith("methods.M: in a trial of search.rounds: server: ")
    of_stages = {"when": {"server.name": "multistage"}}
    raw["experiment"]["server"] = {"name": "fedgm"}
    space = {
        "server.name": {"choice": ["fedgm", "multistage"]},
        "server.stage_ends": {"choice": [[2, 4, 10]], **of_stages},
    }
    raw["methods"] = {"M": {"space": space}}
    problems = problems_of(raw)  # of some values only
    assert problems
    for problem in problems:
        assert problem.startswith("methods.M.space.server.")
        assert "stage_ends ends at 10, but the run has 5 rounds" in problem
        assert problem.endswith("(in a trial of search.rounds)")
    raw = good() | {"methods": {"M": {"space": {"rounds": {"grid": [5, 10]}}}}}
    raw["search"] = {"rounds": 5}
    assert problems_of(raw) == [
        "methods.M.space.rounds: search.rounds says how many a trial makes; drop one"
    ]


STAGES = {
    "server": {"name": "multistage"},
    "space": {
        "server.lr": {"grid": [0.5, 1.0]},
        "server.stage_ends": {"stages": "free"},
        "server.beta": {"tied": "1 - 2 / rounds"},
    },
}


def test_ties_and_lengths_of_stages_follow_the_rounds_of_the_run(tmp_path):
    config = config_of({"A": STAGES}, rounds=4)
    night = Night(config, Disk(tmp_path), end=well)
    lane = night.work().lanes["A"]
    servers = {TRIAL: [], CONFIRMATION: []}
    for job in night.jobs:
        servers[job["kind"]].append(experiment_of(job).server)
    assert {server.stage_ends[-1] for server in servers[TRIAL]} == {4}
    assert {server.beta for server in servers[TRIAL]} == {0.5}
    assert {server.stage_ends[-1] for server in servers[CONFIRMATION]} == {8}
    assert {server.beta for server in servers[CONFIRMATION]} == {0.75}

    best = lane.chosen
    found = explain(lane, best, tmp_path / "frozen.yaml", Console(quiet=True))
    assert found["meaning"]["server.stage_ends"][-1] == 4
    assert "--set server.beta=0.5" in found["command"]
    assert summarise_method(lane).shown["server.stage_ends"][-1] == 8


def test_rounds_that_decide_what_is_drawn_cannot_be_fewer_in_a_trial():
    space = {**STAGES["space"], "server.stages": {"tied": "rounds / 2"}}
    with pytest.raises(ConfigError) as caught:
        config_of({"A": {**STAGES, "space": space}}, rounds=4)
    (problem,) = caught.value.problems
    assert problem == (
        "methods.A: in a trial of search.rounds: server.stage_ends.2: whether it is drawn hangs on "
        "rounds"
    )
    config_of({"A": {**STAGES, "space": space}})


def test_the_bill_has_both():
    config = SearchConfig.parse(
        {
            "experiment": {"data": {"name": "digits", "clients": 10}, "rounds": 40},
            "methods": {"A": {"space": {"server.lr": {"grid": [0.5, 1.0, 2.0]}}}},
            "search": {"rounds": 10, "seeds": 2, "confirm_seeds": 3, "pack": 1},
        }
    )
    planned = plan(config, constant)
    out = io.StringIO()
    print_bill(planned, config, Console(file=out, width=200))
    assert "A trial makes at most 10 rounds; winners are confirmed over all." in out.getvalue()
    bill = planned.methods["A"]
    assert (bill.runs, bill.rounds) == (3 * 2 + 3, 3 * 2 * 10 + 3 * 40)
    whole = plan(
        SearchConfig.parse({**yaml.safe_load(config.as_yaml()), "search": {"pack": 1}}), constant
    )
    per_round = whole.methods["A"].client_samples / whole.methods["A"].rounds
    assert bill.client_samples == pytest.approx(per_round * bill.rounds)


def test_a_trial_run_alone_is_as_short_and_nobody_compares_its_score(tmp_path):
    config = config_of({"A": GRID}, rounds=4)
    night = Night(config, Disk(tmp_path), end=well)
    lane = night.work().lanes["A"]
    found = explain(lane, lane.candidates[0], tmp_path / "frozen.yaml", Console(quiet=True))
    assert "--set rounds=4" in found["command"]
    assert summarise_method(lane).optimism is None
    for record, beside in ((lane.candidates[0].runs[0], lane.beside), (lane.reported[0], None)):
        kept = yaml.safe_load(_own_config(config.method("A"), record, beside))
        assert kept["rounds"] == (8 if beside is None else 4)


def test_a_config_that_is_confirmed_only_is_run_alone_over_all_rounds(tmp_path):
    config = config_of({"A": {"space": {"server.lr": {"grid": [1.0]}}}}, rounds=4)
    lane = Night(config, Disk(tmp_path), end=well).work().lanes["A"]
    assert not lane.tried
    found = explain(lane, lane.chosen, tmp_path / "frozen.yaml", Console(quiet=True))
    assert "rounds=4" not in found["command"]
