"""What MLflow's table of runs shows of a search."""

import pytest

from fltune.report.statistics import Interval
from fltune.report.summary import MethodSummary, Summary
from fltune.search.table_views import MOST_PARAMS, views_of


def summary_of(metrics, maximize=True, trials=3):
    summary = Summary("first", "x", "x", "val/accuracy", maximize)
    intervals = {name: Interval.of([0.5, 0.6]) for name in metrics}
    counts = dict.fromkeys(("pruned", "diverged", "failed", "seeds_diverged"), 0)
    summary.methods["A"] = MethodSummary(
        {"server.lr": 1.0}, 0.5, intervals, edges={}, client_samples=10, trials=trials, **counts
    )
    return summary


@pytest.mark.parametrize(
    ("metrics", "maximize", "first"),
    [
        (["test/accuracy", "test/loss"], True, "test/accuracy"),
        (["test/loss"], False, "test/loss"),
        ([], False, "search/score"),  # no method is confirmed
    ],
)
def test_the_best_stands_on_top(metrics, maximize, first):
    methods, trials = views_of(summary_of(metrics, maximize), ["server.lr"])
    assert (methods.order_by, methods.ascending) == ("search/rank", True)
    assert (trials.order_by, trials.ascending) == ("score", not maximize)
    assert (*methods.metrics[:2], trials.metrics[0]) == ("search/rank", first, "score")
    assert methods.tags == {"fltune.search": "first", "fltune.kind": "method"}
    assert trials.tags == {"fltune.search": "first", "fltune.kind": "trial"}


def test_a_search_without_trials_has_no_view_of_them():
    (methods,) = views_of(summary_of(["test/accuracy"], trials=0), [])
    assert methods.key == "methods"


def test_each_searched_parameter_has_one_column_and_there_are_not_too_many():
    searched = ["server.lr", "client.lr", "server.lr", *(f"model.width{i}" for i in range(40))]
    for view in views_of(summary_of(["test/accuracy"]), searched):
        assert list(view.params[:3]) == ["server.lr", "client.lr", "model.width0"]
        assert len(view.params) == MOST_PARAMS
