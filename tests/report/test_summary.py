import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fltune.report.summary import (
    Interval,
    MethodSummary,
    Summary,
    finite,
    mean_curve,
    summarise,
)
from fltune.search.record import TrialRecord

METHOD = SimpleNamespace(extendable_edges=lambda values: {"server.lr": "highest"})


def record(number=0, status="complete", **changes):
    given = {"method": "A", "kind": "trial", "number": number, "values": {"server.lr": 1.0}}
    return TrialRecord(**{**given, "seed": number, "status": status, **changes})


def confirmed(number, accuracy, status="complete"):
    metrics = {"test/accuracy": accuracy, "test/loss": 1.0 + number} if accuracy is not None else {}
    comm = {"up_bits": 100.0 * (number + 1), "down_bits": 50.0}
    return record(number, status, kind="confirmation", metrics=metrics, comm=comm)


@pytest.mark.parametrize("values", [[0.9, 0.8, 0.85], [1.0, 2.0], [0.5] * 4, [3.0, -1.0, 8.5, 2.0]])
def test_intervals_are_students(values):
    interval = Interval.of(values)
    std = np.std(values, ddof=1)
    assert interval.mean == pytest.approx(np.mean(values))
    assert interval.std == pytest.approx(std)
    assert interval.seeds == len(values)
    if std > 0:
        scale = std / math.sqrt(len(values))
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scale)
        assert (interval.low, interval.high) == pytest.approx((low, high))
    else:
        assert (interval.low, interval.high) == (0.5, 0.5)


def test_an_interval_of_fixed_numbers():
    interval = Interval.of([0.90, 0.92, 0.94])  # t(0.975, 2) = 4.30265
    assert interval.std == pytest.approx(0.02)
    assert interval.high - interval.mean == pytest.approx(4.30265 * 0.02 / math.sqrt(3), rel=1e-5)


def test_one_seed_has_no_interval_and_none_has_nothing():
    one = Interval.of([0.7])
    assert (one.mean, one.std, one.seeds) == (0.7, 0.0, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert Interval.of([]) is None
    assert Interval.of([math.nan, math.inf]) is None
    assert Interval.of([0.5, math.nan]).seeds == 1


def test_a_method_is_reduced_to_its_counts_winner_and_intervals():
    trials = [
        record(0, score=0.5, client_samples=10),
        record(1, "diverged", score=0.0, client_samples=3),
        record(2, "pruned", score=0.4, client_samples=5),
        record(3, "failed"),
        record(4, score=0.6, client_samples=10),
    ]
    summary = summarise(METHOD, trials, trials[4], [confirmed(0, 0.8), confirmed(1, 0.6)])
    assert (summary.trials, summary.pruned, summary.diverged, summary.failed) == (5, 1, 1, 1)
    assert (summary.best, summary.val) == ({"server.lr": 1.0}, 0.6)
    assert summary.client_samples == 28
    assert summary.edges == {"server.lr": "highest"}
    assert summary.test.mean == pytest.approx(0.7)
    assert summary.metrics["test/loss"].mean == pytest.approx(1.5)
    assert (summary.bits_up, summary.bits_down) == (150.0, 50.0)
    assert summary.seeds_diverged == 0


def test_a_seed_that_diverged_has_no_accuracy_and_its_loss_is_left_out():
    runs = [confirmed(0, 0.8), confirmed(1, None, "diverged"), confirmed(2, 0.7)]
    summary = summarise(METHOD, [record(score=0.9)], record(score=0.9), runs)
    assert summary.seeds_diverged == 1
    assert (summary.test.mean, summary.test.seeds) == (pytest.approx(0.5), 3)
    assert (summary.metrics["test/loss"].mean, summary.metrics["test/loss"].seeds) == (2.0, 2)


def test_a_confirmation_that_failed_counts_nowhere_but_is_counted():
    runs = [confirmed(0, 0.8), confirmed(1, None, "failed")]
    summary = summarise(METHOD, [record(score=0.9)], record(score=0.9), runs)
    assert (summary.seeds_failed, summary.test.seeds, summary.test.mean) == (1, 1, 0.8)


def test_a_method_without_a_winner():
    summary = summarise(METHOD, [record(0, "diverged")], None, [])
    assert (summary.best, summary.val, summary.test, summary.edges) == ({}, None, None, {})
    assert (summary.bits_up, summary.bits_down) == (0.0, 0.0)


def test_a_task_without_classes_reports_its_loss():
    one = record(kind="confirmation", metrics={"test/loss": 0.25, "val/loss": 0.5})
    assert summarise(METHOD, [record()], record(), [one]).test.mean == 0.25


def test_the_mean_curve_has_the_rounds_that_all_runs_have():
    full = [{"round": t, "val/accuracy": t / 10, "train/loss": 1.0} for t in (1, 2, 3)]
    short = [{"round": t, "val/accuracy": t / 5} for t in (1, 2)]
    curve = mean_curve([record(rows=full), record(rows=short)])
    assert [row["round"] for row in curve] == [1, 2]
    assert [row["val/accuracy"] for row in curve] == pytest.approx([0.15, 0.3])
    assert all("train/loss" not in row for row in curve)  # one run has none
    assert mean_curve([record(rows=full)]) == full
    assert mean_curve([]) == []


def method_summary(accuracy=None, val=None, loss=None, **changes):
    metrics = {} if accuracy is None else {"test/accuracy": Interval.of([accuracy])}
    if loss is not None:
        metrics["test/loss"] = Interval.of([loss])
    counts = {"trials": 2, "pruned": 0, "diverged": 0, "failed": 0, "seeds_diverged": 0}
    rest = {"best": {"server.lr": 1.0}, "edges": {}, "client_samples": 7, **counts, **changes}
    return MethodSummary(val=val, metrics=metrics, **rest)


def summary_of(maximize=True, **methods):
    return Summary("s", "sqlite:///x.db", "e", "val/accuracy", maximize, methods)


@pytest.mark.parametrize(
    ("maximize", "methods", "order"),
    [
        (True, {"a": {"accuracy": 0.7}, "b": {"accuracy": 0.9}, "c": {"accuracy": 0.8}}, "bca"),
        (True, {"a": {"loss": 0.7}, "b": {"loss": 0.9}, "c": {"loss": 0.1}}, "cab"),
        (True, {"a": {"accuracy": 0.1, "loss": 9}, "b": {"accuracy": 0.2, "loss": 10}}, "ba"),
        (True, {"a": {"val": 0.99}, "b": {"accuracy": 0.1}, "c": {}, "d": {"val": 0.999}}, "bdac"),
        (False, {"a": {"val": 2.0}, "b": {}, "c": {"val": 1.0}}, "cab"),
    ],
)
def test_methods_are_ranked_by_test_then_by_validation(maximize, methods, order):
    summary = summary_of(maximize, **{k: method_summary(**v) for k, v in methods.items()})
    assert "".join(name for name, _ in summary.ranked()) == order


def test_json_has_no_nan_and_all_that_is_promised():
    summary = summary_of(
        one=method_summary(accuracy=0.7, val=math.nan, best={"a": (1, math.inf)}),
        none=method_summary(),
    )
    text = json.dumps(summary.as_json(), allow_nan=False)
    plain = json.loads(text)
    assert {"name", "tracking_uri", "experiment", "methods"} <= set(plain)
    one, none = plain["methods"]["one"], plain["methods"]["none"]
    assert one["test"] == {"mean": 0.7, "std": 0.0, "low": None, "high": None, "seeds": 1}
    assert one["val"] is None
    assert one["best"] == {"a": [1, None]}
    assert none["test"] is None
    for entry in (one, none):
        promised = {"best", "val", "test", "trials", "pruned", "diverged", "edges"}
        assert promised | {"client_samples"} <= set(entry)


def test_finite_leaves_all_else_alone():
    plain = {"a": [1, "nan", None, True, {"b": 2.5}]}
    assert finite(plain) == plain


def test_a_winner_that_diverged_on_every_seed_counts_as_zero():
    bad = {"val/accuracy": 0.1, "train/loss": math.nan}
    runs = [record(i, "diverged", kind="confirmation", metrics=bad) for i in range(2)]
    summary = summarise(METHOD, [record(score=0.9)], record(score=0.9), runs)
    assert (summary.test.mean, summary.test.seeds, summary.seeds_diverged) == (0.0, 2, 2)
