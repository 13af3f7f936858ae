import json
import math

import numpy as np
import pytest
from lanes import UNTUNED, end, finish, make_lanes, take
from scipy import stats

from fltune.plain import finite
from fltune.report.summary import (
    Interval,
    MethodSummary,
    Summary,
    mean_curve,
    summarise,
    summarise_method,
)
from fltune.search.record import TrialRecord


def record(number=0, status="complete", **changes):
    given = {"method": "A", "kind": "trial", "number": number, "values": {"server.lr": 1.0}}
    return TrialRecord(**{**given, "seed": number, "status": status, **changes})


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


def reduced(outcomes, confirmations, **search):
    """Reduce one method, whose runs end as given: (status, score), then (status, test, val)."""
    lane = make_lanes(**{"confirm_seeds": len(confirmations), **search})["FedGM"]
    for status, score in outcomes:
        end(lane, take(lane), score, status, client_samples=10)
    for i, (status, test, val) in enumerate(confirmations):
        run = take(lane)
        known = {} if test is None else {"test/accuracy": test, "test/loss": 1.0 + i}
        metrics = {"val/accuracy": val or 0.0, **known}
        comm = {"up_bits": 100.0 * (i + 1), "down_bits": 50.0}
        end(lane, run, val, status, metrics=metrics, comm=comm)
    return summarise_method(lane)


TRIALS = [("complete", 0.5), ("diverged", 0.0), ("complete", 0.6)]


def test_a_method_is_reduced_to_its_counts_winner_and_intervals():
    summary = reduced(TRIALS, [("complete", 0.8, 0.55), ("complete", 0.6, 0.55)])
    assert (summary.trials, summary.pruned, summary.diverged, summary.failed) == (3, 0, 1, 0)
    assert (summary.best, summary.val, summary.winner) == ({"server.lr": 2.0}, 0.6, 2)
    assert summary.client_samples == 30
    assert summary.edges == {"server.lr": "highest"}
    assert [edge.parameter for edge in summary.beyond] == ["server.lr"]
    assert summary.test.mean == pytest.approx(0.7)
    assert summary.metrics["test/loss"].mean == pytest.approx(1.5)
    assert (summary.bits_up, summary.bits_down) == (150.0, 50.0)
    assert summary.seeds_diverged == 0


@pytest.mark.parametrize(
    ("mode", "best", "optimism"), [("max", 0.6, 0.05), ("min", 0.5, -0.05 + 0.1)]
)
def test_optimism_is_positive_where_the_search_was_too_optimistic(mode, best, optimism):
    runs = [("complete", 0.8, 0.55), ("complete", 0.6, 0.55)]
    trials = [("complete", 0.5), ("complete", 0.7 if mode == "min" else 0.4), ("complete", 0.6)]
    summary = reduced(trials, runs, mode=mode)
    assert summary.val == best
    assert summary.optimism == pytest.approx(optimism)
    assert not summary.too_optimistic  # fresh runs that agree do not say how far they spread


def test_a_fresh_seed_that_diverged_counts_in_the_optimism_of_its_winner():
    """Left out, the method would look honest for the seeds on which it was lucky."""
    found = reduced(TRIALS, [("complete", 0.8, 0.6), ("diverged", None, 0.0)])
    assert found.optimism == pytest.approx(0.6 - 0.3)


def test_runs_on_several_seeds_all_cost_and_their_mean_is_less_lucky_than_one_run():
    """0.18 above 0.5, 0.6, 0.7: within 0.497 of one run, beyond 0.351 of the mean of three."""
    lane = make_lanes(seeds=3, confirm_seeds=3)["FedGM"]
    while (run := take(lane)) is not None:
        fresh = {3: 0.5, 4: 0.6, 5: 0.7}.get(run.seed, 0.0)
        end(lane, run, fresh if run.kind == "confirmation" else 1.0, client_samples=10)
    found = summarise_method(lane)
    assert found.client_samples == 3 * 3 * 10  # confirmations are no search
    assert found.optimism == pytest.approx(0.4)
    assert found.too_optimistic


def test_a_seed_that_diverged_has_no_accuracy_and_its_loss_is_left_out():
    runs = [("complete", 0.8, 0.5), ("diverged", None, 0.0), ("complete", 0.7, 0.5)]
    summary = reduced(TRIALS, runs)
    assert summary.seeds_diverged == 1
    assert (summary.test.mean, summary.test.seeds) == (pytest.approx(0.5), 3)
    assert (summary.metrics["test/loss"].mean, summary.metrics["test/loss"].seeds) == (2.0, 2)


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_run_that_broke_off_is_no_part_of_the_mean_traffic(status):
    """It has sent less for it, and its method would look cheaper."""
    found = reduced(TRIALS, [(status, None, 0.0), ("complete", 0.8, 0.5), ("complete", 0.7, 0.5)])
    assert (found.bits_up, found.bits_down) == (250.0, 50.0)  # of 200 and 300
    none = reduced(TRIALS, [(status, None, 0.0)] * 2)
    assert (none.bits_up, none.bits_down) == (None, None)


def test_a_winner_that_diverged_on_every_seed_before_it_was_evaluated_has_no_accuracy():
    lane = make_lanes()["FedGM"]
    for score in (0.5, 0.4, 0.6):
        end(lane, take(lane), score, metrics={"val/accuracy": score})
    for _ in range(2):
        end(lane, take(lane), 0.0, "diverged", metrics={"train/loss": math.nan}, rows=[])
    found = summarise_method(lane)
    assert (found.test.mean, found.test.seeds, found.seeds_diverged) == (0.0, 2, 2)


def test_confirmations_count_for_the_winners_there_are_and_on_seeds_that_are_fresh():
    lane = make_lanes()["FedGM"]
    finish(lane, lambda record: (0.5 + record.number / 10, 0.5))
    assert lane.done_confirmations == 2
    lane.confirmation.runs[0].number = 0  # of an earlier winner
    assert lane.done_confirmations == 1
    lane.confirmation.runs[0].number = 2
    lane.confirmation.runs[1].seed = 0  # an extension may search on it
    assert lane.done_confirmations == 1


def test_a_method_without_a_winner():
    summary = reduced([("diverged", 0.0), ("failed", None), ("diverged", 0.0)], [])
    assert (summary.best, summary.val, summary.test, summary.edges) == ({}, None, None, {})
    assert (summary.bits_up, summary.bits_down, summary.optimism) == (None, None, None)
    assert (summary.diverged, summary.failed) == (2, 1)


def test_where_nothing_is_chosen_the_score_is_that_of_the_fresh_seeds():
    lane = make_lanes(UNTUNED)["FedGM"]
    before = summarise_method(lane)
    assert (before.trials, before.val, before.test) == (0, None, None)
    finish(lane, lambda record: (0.5 + record.seed / 10, 0.4))
    found = summarise_method(lane)
    assert (found.trials, found.client_samples, found.best) == (0, 0, {"server.lr": 2.0})
    assert (found.val, found.test.mean, found.test.seeds) == (pytest.approx(0.65), 0.4, 2)
    assert (found.edges, found.optimism, found.too_optimistic) == ({}, None, False)


def test_a_winner_that_diverged_on_every_seed_counts_as_zero():
    summary = reduced(TRIALS, [("diverged", None, 0.0)] * 2)
    assert (summary.test.mean, summary.test.seeds, summary.seeds_diverged) == (0.0, 2, 2)


def test_methods_are_compared_to_the_best_of_their_cell():
    lanes = make_lanes()
    finish(lanes["FedGM"], lambda r: (0.5, 0.9))
    finish(lanes["FedAvg"], lambda r: (0.5, 0.8 + 0.001 * (r.seed % 7)))
    summary = summarise(lanes, summary_of())
    assert summary.methods["FedGM"].against_best is None
    found = summary.methods["FedAvg"].against_best
    assert found.difference.seeds == 2
    assert found.difference.mean == pytest.approx(-0.1, abs=0.01)
    summary.methods["FedGM"].scenario = {"method": "FedGM", "alpha": "mild"}
    assert list(summary.by_cell()) == ["alpha mild", ""]


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
        (
            False,
            {
                "a": {"loss": 0.1, "seeds_diverged": 3},
                "b": {"loss": 0.9},
                "c": {"val": 0.01, "seeds_diverged": 4},
                "d": {"loss": 0.5, "seeds_failed": 1},
                "e": {"loss": 0.8},
            },
            "ebdac",
        ),
        (True, {"a": {"accuracy": 0.9, "seeds_failed": 1}, "b": {"accuracy": 0.5}}, "ab"),
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
