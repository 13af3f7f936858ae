import json
import math

import pytest

from fltune.search.record import TrialRecord

ROW = {"round": 4.0, "val/accuracy": 0.5, "comm/up_bits": 80.0, "client_samples": 400.0}


def record():
    return TrialRecord("FedAvg", "trial", 3, {"server.lr": 0.5}, 7)


def final(status="complete"):
    return {
        "scores": [0.6],
        "violations": [-0.1],
        "rows": [{**ROW, "round": 8.0}],
        "finished": True,
        "status": status,
        "message": "made all rounds",
        "metrics": {"val/accuracy": 0.6},
        "comm": {"up_bits": 160.0, "down_bits": 10.0},
        "participation": {"tau_max": 3.0},
        "client_samples": 800.0,
        "seconds": 1.5,
        "strategy": "stacked",
    }


def test_reports_add_up():
    one = record()
    assert (one.score, one.rounds) == (None, 0)
    one.take({"rows": [ROW], "scores": [0.5], "violations": [0.2]})
    assert (one.score, one.rounds, one.status) == (0.5, 4, "failed")  # until it says otherwise
    one.take(final())
    assert (one.scores, one.violations, one.rounds) == ([0.6], [-0.1], 8)
    assert (one.status, one.message, one.strategy) == ("complete", "made all rounds", "stacked")
    assert (one.client_samples, one.comm["up_bits"]) == (800, 160.0)


def test_what_clients_said_is_kept_and_older_records_have_none():
    one, said = record(), {"client": [0, 2], "samples": [3, 1], "loss": [0.5, math.nan]}
    one.take({**final(), "by_client": said})
    again = TrialRecord.of_json({**one.as_json(), "by_client": {**said, "loss": [0.5, None]}})
    assert again.by_client["client"] == [0, 2]
    assert again.by_client["loss"][0] == 0.5
    assert math.isnan(again.by_client["loss"][1])
    older = {k: v for k, v in one.as_json().items() if k != "by_client"}
    assert TrialRecord.of_json(older).by_client == {}


def test_a_failed_run_has_no_score_but_its_work_counts():
    one = record()
    one.take({"rows": [ROW], "scores": [0.5]})
    one.take({"round": 0, "finished": True, "status": "failed", "message": "ValueError: no"})
    assert (one.status, one.score, one.message) == ("failed", None, "ValueError: no")
    assert (one.client_samples, one.comm) == (400, {"up_bits": 80.0, "down_bits": 0.0})


def test_a_run_stopped_early_has_the_metrics_of_its_last_round():
    one = record()
    one.take({"rows": [ROW], "scores": [0.5]})
    one.stop_early()
    assert (one.status, one.scores) == ("pruned", [0.5])
    assert one.message == "stopped early by the scheduler after 4 rounds"
    assert one.metrics == {"val/accuracy": 0.5}
    assert one.client_samples == 400


def test_a_restart_forgets_what_the_dead_worker_said():
    one = record()
    one.take({"rows": [ROW], "scores": [0.5], "violations": [1.0]})
    one.restart()
    assert one == record()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_comes_back_from_its_file_with_nan_for_what_is_no_number(bad):
    one = record()
    one.take(final())
    one.rows[0]["train/loss"] = one.metrics["val/loss"] = None
    one.scores = [0.6]
    text = json.dumps(one.as_json(), allow_nan=False)
    back = TrialRecord.of_json({**json.loads(text), "of a later version": bad})
    assert math.isnan(back.rows[0]["train/loss"])
    assert math.isnan(back.metrics["val/loss"])
    back.rows[0]["train/loss"] = back.metrics["val/loss"] = None
    assert back == one
