"""A whole search without Ray: caps, workers that die, full disks, and the states of trials."""

import errno
import json
import math

import pytest
from fake_workers import DRAWN, GRID, Disk, Night, config_of, key, well
from optuna.trial import TrialState

from fltune.errors import ConfigError
from fltune.search.campaign import Campaign
from fltune.search.record import TrialRecord
from fltune.search.state import DiskFullError

BOTH = {"One": {"space": {"server.lr": {"grid": [0.5, 1.0, 2.0]}}}, "Two": DRAWN}


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


def finished(score, **more):
    final = {"status": "complete", "message": "all rounds", "metrics": {}, "comm": {}}
    final |= {"participation": {}, "client_samples": 100, "seconds": 1.0, "strategy": "fake"}
    rows = [{"round": 8.0, "val/accuracy": score}]
    return {"round": 8, "finished": True, "scores": [score], "rows": rows, **final, **more}


def started(campaign, run_id="t0"):
    job = campaign.next(run_id)
    campaign.started(run_id)
    return job


def ignore(event, record):
    """Listen to nothing."""


def test_a_method_comes_before_the_next_which_fills_the_time_until_its_winner_is_known(disk):
    campaign = Campaign(config_of(BOTH, trials=3), disk, ignore)
    jobs = [started(campaign, f"t{n}") for n in range(6)]
    assert [job["method"] for job in jobs] == ["One"] * 3 + ["Two"] * 3
    assert campaign.next("t6") is None
    for n in range(3):
        campaign.reported(f"t{n}", finished(n / 10))
        campaign.ended(f"t{n}")
    confirmation = started(campaign, "t6")
    assert (confirmation["method"], confirmation["test"]) == ("One", True)
    assert confirmation["searched"] == {"server.lr": 2.0}


def test_the_proposals_of_a_method_do_not_depend_on_the_others(tmp_path):
    def proposed(methods):
        config = config_of({name: BOTH[name] for name in methods}, trials=3)
        night = Night(config, Disk(tmp_path / "+".join(methods)))
        night.work()
        return [job["values"] for job in night.jobs if job["method"] == "Two"]

    for methods in (["Two"], ["One", "Two"]):
        (tmp_path / "+".join(methods)).mkdir()
    alone = proposed(["Two"])
    assert len(alone) == 3 + 2
    assert proposed(["One", "Two"]) == alone


def test_every_start_progress_and_end_is_heard_once_and_kept_before_it_is_heard(disk):
    kept = []

    def listen(event, record):
        if event == "end":
            kept.append(key(record) in {key(r) for r in disk.records()})

    campaign = Campaign(config_of(BOTH), disk, listen)
    for n in range(2):
        started(campaign, f"t{n}")
        campaign.reported(f"t{n}", finished(0.5))
        campaign.ended(f"t{n}")
        campaign.ended(f"t{n}")  # told twice
    assert kept == [True, True]
    night = Night(config_of(BOTH), disk)
    night.work()
    events = [(event, *k) for event, k in night.heard if event != "progress"]
    assert len(events) == len(set(events)) == 2 * len(night.jobs)


# the state of a trial


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("end", ["finished", "stopped"])
def test_a_score_that_is_no_number_is_a_diverged_run_with_the_worst_score(disk, bad, end):
    campaign = Campaign(config_of({"A": DRAWN}), disk, ignore)
    started(campaign)
    report = finished(bad)
    if end == "stopped":
        report = {k: report[k] for k in ("round", "scores", "rows")}
    campaign.reported("t0", report)
    campaign.ended("t0")
    (record,) = disk.records()
    assert (record.status, record.scores) == ("diverged", [0.0])
    assert record.message.startswith("diverged: its score is no number; ")
    (trial,) = campaign.lanes["A"].proposer.study().trials
    assert trial.state == TrialState.PRUNED
    assert trial.value == 0.0
    (again,) = Campaign(config_of({"A": DRAWN}), disk, ignore).lanes["A"].proposer.study().trials
    assert (again.state, again.params) == (trial.state, trial.params)


@pytest.mark.parametrize(
    ("how", "status", "state"),
    [
        ("complete", "complete", TrialState.COMPLETE),
        ("diverged", "diverged", TrialState.PRUNED),
        ("stopped", "pruned", TrialState.PRUNED),
        ("raised", "failed", TrialState.FAIL),
        ("killed", "failed", TrialState.FAIL),
        ("killed before it reported", "failed", TrialState.FAIL),
    ],
)
def test_no_trial_stays_running_and_none_is_complete_that_did_not_come_to_its_end(
    disk, how, status, state
):
    campaign = Campaign(config_of({"A": DRAWN}), disk, ignore)
    started(campaign)
    report = finished(0.4)
    if how == "diverged":
        report = finished(0.0, status="diverged")
    elif how == "raised":
        report = {"round": 0, "finished": True, "status": "failed", "message": "ValueError: no"}
    elif how in ("stopped", "killed"):
        rows = [{"round": 4.0, "val/accuracy": 0.4, "client_samples": 50.0, "comm/up_bits": 8.0}]
        report = {"round": 4, "scores": [0.4], "violations": [], "rows": rows}
    if how != "killed before it reported":
        campaign.reported("t0", report)
    campaign.ended("t0", "the worker died" if how.startswith("killed") else "")
    (record,) = disk.records()
    assert record.status == status
    assert bool(record.scores) == (status != "failed")
    assert record.message
    (trial,) = campaign.lanes["A"].proposer.study().trials
    assert trial.state == state
    if how in ("stopped", "killed"):  # what it cost was spent
        assert (record.client_samples, record.comm["up_bits"]) == (50, 8.0)


def test_a_run_whose_worker_died_starts_again_and_the_rows_of_the_dead_one_are_dropped(disk):
    heard = []
    campaign = Campaign(config_of({"A": DRAWN}), disk, lambda event, r: heard.append(event))
    started(campaign)
    part = {"round": 2, "scores": [0.9], "rows": [{"round": 2.0, "val/accuracy": 0.9}]}
    campaign.reported("t0", part)
    campaign.started("t0")
    campaign.reported("t0", finished(0.4))
    campaign.ended("t0")
    assert [e for e in heard if e != "progress"] == ["start", "end"]
    (record,) = disk.records()
    assert [row["round"] for row in record.rows] == [8.0]
    assert record.scores == [0.4]


def worse(values, seed):
    """No run ends badly, but every further seed of a config is worse than all first ones."""
    return "complete", 0, 40 - seed


@pytest.mark.parametrize("end", [well, worse])
def test_only_the_first_seed_of_a_trial_is_stopped_early(disk, end):
    config = config_of(
        {"A": GRID}, trials=8, seeds=2, scheduler="asha", grace=2, reduction=2, confirm_seeds=1
    )
    night = Night(config, disk, end=end)
    night.work()
    pruned = {(r.kind, r.seed) for r in disk.records() if r.status == "pruned"}
    assert pruned == {("trial", 40)}


# caps


@pytest.mark.parametrize(
    ("cap", "trials"),
    [
        ({"max_client_samples": 1600}, 2),  # 800 a trial
        ({"max_client_samples": 1601}, 3),
        ({"max_bytes": 16.0}, 1),  # 2 * 64 bits a trial
        ({"max_bytes": 17.0}, 2),
    ],
)
def test_no_trial_starts_when_a_budget_is_spent_and_the_winner_is_confirmed(disk, cap, trials):
    night = Night(config_of({"A": DRAWN}, **cap), disk, end=well)
    night.work()
    kinds = [job["kind"] for job in night.jobs]
    assert kinds == ["trial"] * trials + ["confirmation"] * 2
    again = Night(config_of({"A": DRAWN}, **cap), disk)
    again.work()
    assert again.jobs == []  # what was spent stays spent
    ((key, limit),) = cap.items()
    assert again.campaign.spent == [f"search.{key} ({limit:g})"]


def test_confirmations_are_no_part_of_a_budget(disk):
    """Two trials and two confirmations of 800 samples; an extension may spend what is left."""
    cap = {"max_client_samples": 1601}
    Night(config_of({"A": DRAWN}, trials=2, **cap), disk, end=well).work()
    night = Night(config_of({"A": DRAWN}, trials=3, **cap), disk, end=well)
    assert night.campaign.spent == []
    night.work()
    assert [job["kind"] for job in night.jobs][:1] == ["trial"]


def test_the_end_of_a_search_keeps_its_time(disk, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("fltune.search.campaign.time.monotonic", lambda: now[0])
    config = config_of({"A": DRAWN}, confirm_seeds=0)
    campaign = Campaign(config, disk, ignore)
    started(campaign)
    now[0] += 300  # no decision tells of it
    disk.finish(campaign.seconds)
    assert disk.finished
    assert Campaign(config, disk, ignore).seconds == 300


def test_the_clock_goes_on_where_an_earlier_process_stopped(disk, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("fltune.search.campaign.time.monotonic", lambda: now[0])
    config = config_of({"A": DRAWN}, max_seconds=60, confirm_seeds=0)
    first = Campaign(config, disk, ignore)
    now[0] += 50
    started(first)
    now[0] = 5.0  # another boot
    second = Campaign(config, disk, ignore)
    assert second.seconds == 50
    assert started(second)["number"] == 0
    now[0] += 20
    second.reported("t0", finished(0.5))
    second.ended("t0")
    assert second.next("t1") == "done"
    third = Campaign(config, disk, ignore)
    assert third.next("t0") == "done"
    assert third.spent == ["search.max_seconds (60)"]
    longer = Campaign(config_of({"A": DRAWN}, max_seconds=100, confirm_seeds=0), disk, ignore)
    assert started(longer)["number"] == 1


# ends before the end


def test_a_campaign_that_is_stopped_hands_out_nothing_but_takes_what_is_out(disk):
    campaign = Campaign(config_of({"A": DRAWN}), disk, ignore)
    started(campaign)
    campaign.stopping = True
    assert campaign.next("t1") == "done"
    campaign.reported("t0", finished(0.5))
    campaign.ended("t0")
    assert [r.status for r in disk.records()] == ["complete"]


@pytest.mark.parametrize("log", ["journal", "trials"])
def test_a_full_disk_stops_the_search_and_what_was_out_runs_again_later(disk, monkeypatch, log):
    config = config_of({"A": DRAWN})
    campaign = Campaign(config, disk, ignore)
    started(campaign)

    def full(entry):
        raise DiskFullError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(getattr(disk, log), "append", full)
        if log == "trials":
            campaign.reported("t0", finished(0.5))
            campaign.ended("t0")
        assert campaign.next("t1") == "done"
    assert campaign.stopping
    assert "no space left" in str(campaign.fault)
    again = Campaign(config, Disk(disk.folder), ignore)
    assert started(again)["number"] == 0
    assert started(again, "t1")["number"] == 1


def test_a_finished_search_needs_no_worker_and_another_one_keeps_the_job_it_has_found(disk):
    config = config_of({"A": DRAWN})
    campaign = Campaign(config, disk, ignore)
    assert campaign.reserve_first()
    assert [started(campaign, f"t{n}")["number"] for n in range(2)] == [0, 1]
    Night(config, disk).work()
    assert not Campaign(config, disk, ignore).reserve_first()


def test_what_the_logs_hold_of_other_methods_is_left_alone(disk):
    Night(config_of(BOTH), disk).work()
    one = Campaign(config_of({"One": BOTH["One"]}), disk, ignore)
    assert {r.method for r in one.records} == {"One"}
    assert not one.reserve_first()


def test_a_method_that_inherits_from_one_that_is_not_there_is_refused(disk):
    heir = {**DRAWN, "inherit": {"from": "One"}}
    config = config_of({"One": DRAWN, "Heir": heir})
    del config.methods["One"]
    with pytest.raises(ConfigError, match="'One' is not among the methods"):
        Campaign(config, disk, ignore)


def test_the_files_are_plain_json(disk):
    Night(config_of(BOTH), disk).work()
    for log in (disk.journal, disk.trials):
        for line in log.path.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)
    assert {TrialRecord.of_json(raw).method for raw in disk.trials.read()} == {"One", "Two"}


def test_what_the_system_says_of_a_full_disk_is_told(disk, monkeypatch):
    def no_space(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fltune.search.state.os.fsync", no_space)
    campaign = Campaign(config_of({"A": DRAWN}), disk, ignore)
    assert not campaign.reserve_first()
    assert campaign.next("t0") == "done"
    assert str(campaign.fault) == f"{disk.journal.path} cannot be written: No space left on device"
    assert disk.journal.path.read_bytes() == b""
