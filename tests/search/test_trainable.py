import math

import pytest
from fake_workers import DRAWN, config_of, row_at

from fltune.search.candidate import Candidate
from fltune.search.jobs import make_job
from fltune.search.record import TRIAL, TrialRecord
from fltune.search.trainable import Sender, train, without_gpu


def sender_of(sent, **search):
    config = config_of({"A": DRAWN}, **search)
    method = config.method("A")
    return Sender(config.settings.search, method.experiment({"server.lr": 0.5}), sent.append)


def test_a_scheduler_sees_each_row_at_once_but_never_the_last(monkeypatch):
    sent = []
    sender = sender_of(sent, scheduler="asha", average_last=2)
    for n, round in enumerate((2, 4, 6, 8)):
        sender.add(row_at(round, n / 10))
    assert [[row["round"] for row in r["rows"]] for r in sent] == [[2], [4], [6]]
    assert [r["scores"][0] for r in sent] == pytest.approx([0.0, 0.05, 0.15])
    rest = sender.rest(diverged=False)
    assert [row["round"] for row in rest["rows"]] == [8]
    assert rest["scores"] == pytest.approx([0.25])


def test_a_report_says_how_long_the_run_has_taken(monkeypatch):
    clock = iter([100.0, 103.0, 106.0]).__next__
    monkeypatch.setattr("fltune.search.trainable.time.monotonic", clock)
    config = config_of({"A": DRAWN}, scheduler="asha")
    sent, method = [], config.method("A")
    experiment = method.experiment({"server.lr": 0.5})
    sender = Sender(config.settings.search, experiment, sent.append, together=3)
    record = TrialRecord("A", TRIAL, 0, {}, 1)
    for round in (2, 4):
        sender.add(row_at(round, 0.5))
        record.take(sent[-1])
    assert [entry["seconds"] for entry in sent] == [1.0, 2.0]
    record.stop_early()
    assert record.seconds == 2.0
    record.restart()
    assert record.seconds == 0.0


def test_without_a_scheduler_rows_are_sent_together():
    sent = []
    sender = sender_of(sent)
    for round in (2, 4, 6, 8):
        sender.add(row_at(round, 0.5))
    assert sent == []
    assert [row["round"] for row in sender.rest(diverged=False)["rows"]] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "bad",
    [{"train/loss": math.nan}, {"train/loss": 2e4}, {"val/accuracy": math.inf}, {"x": math.nan}],
)
def test_a_row_of_a_run_that_diverges_waits_for_the_end_and_the_score_is_the_worst(bad):
    sent = []
    sender = sender_of(sent, scheduler="median")
    sender.add({**row_at(2, 0.5), **bad})
    assert sent == []
    assert sender.rest(diverged=True)["scores"] == [0.0]


def test_a_loss_that_diverges_has_the_runs_own_bound():
    config = config_of({"A": {**DRAWN, "max_loss": 7.0}}, metric="val/loss")
    sender = Sender(config.settings.search, config.method("A").first_experiment(), [].append)
    assert sender.rest(diverged=True)["scores"] == [7.0]


def test_a_run_that_diverges_before_any_evaluation_has_a_report():
    rest = sender_of([]).rest(diverged=True)
    assert (rest["round"], rest["rows"], rest["scores"]) == (0, [], [0.0])


def job_of(point, space):
    config = config_of({"A": {"space": space}})
    job = make_job(config.method("A"), "trial", Candidate(0, point, [40]), 40)
    search = config.settings.search.model_dump(mode="json")
    return {"jobs": [{**job, "member": 0}], "cpus": 1, "gpus": 0, "search": search}


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"client.batch_size": 2}, "ValueError: server.lr: 1 / (client.batch_size - 2) ** 2: "),
        ({"client.batch_size": -1}, "ConfigError: client.batch_size: found -1; "),
    ],
)
def test_what_cannot_be_run_is_reported_and_raises_nothing(monkeypatch, point, message):
    space = {
        "client.batch_size": {"int": [1, 3]},
        "server.lr": {"tied": "1 / (client.batch_size - 2) ** 2"},
    }
    sent = []
    monkeypatch.setattr("ray.tune.report", sent.append)
    train(job_of(point, space))
    ((entry,),) = (report["members"] for report in sent)
    assert (entry["member"], entry["finished"], entry["status"]) == (0, True, "failed")
    assert entry["message"].startswith(message)


def test_a_worker_without_a_job_has_nothing_to_say(monkeypatch):
    sent = []
    monkeypatch.setattr("ray.tune.report", sent.append)
    train({**job_of({"server.lr": 1.0}, DRAWN["space"]), "jobs": []})
    assert sent == []


@pytest.mark.parametrize(("gpus", "status"), [(0, "complete"), (1, "failed")])
def test_a_trial_without_a_gpu_leaves_those_it_sees_alone(monkeypatch, gpus, status):
    """Lightning, asked for the GPU that is not there, would fail, and so it does with one."""
    sent = []
    monkeypatch.setattr("ray.tune.report", sent.append)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    train({**job_of({"server.lr": 1.0}, DRAWN["space"]), "gpus": gpus})
    last = sent[-1]["members"][0]
    assert last["status"] == status, last["message"]


def test_only_auto_is_changed_for_a_trial_without_a_gpu():
    def device_of(base, values):
        return without_gpu({"base": base, "values": values})["values"].get("device")

    assert device_of({}, {"seed": 1}) == device_of({"device": "auto"}, {}) == "cpu"
    assert device_of({"device": "cuda"}, {}) is None
    assert device_of({"device": "auto"}, {"device": "cuda"}) == "cuda"
