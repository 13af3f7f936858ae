import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.errors import ConfigError
from fltune.search.objective import LARGE, Constraint, Judge, Objective, check_metric, natural_mode
from fltune.search.settings import SearchSettings

ACCURACY = Objective("val/accuracy", maximize=True)
LOSS = Objective("val/loss", maximize=False)
VALUES = st.floats(allow_nan=True, allow_infinity=True)


def judge(*objectives, constraints=(), max_loss=50.0, rounds=10):
    return Judge(objectives, constraints, max_loss=max_loss, rounds=rounds)


def scores(judged, key, values):
    return [judged.add({"round": r + 1.0, key: v})[0] for r, v in enumerate(values)]


def mean(k, **own):
    return Objective("val/accuracy", maximize=True, average_last=k, **own)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (ACCURACY, [0.1, 0.5, 0.3, 0.9, 0.4]),
        (mean(3), [0.1, 0.3, 0.3, 1.7 / 3, 1.6 / 3]),
        (mean(1, best=True), [0.1, 0.5, 0.5, 0.9, 0.9]),
        (mean(2, best=True), [0.1, 0.3, 0.4, 0.6, 0.65]),
        (Objective("val/accuracy", False, 1, best=True), [0.1, 0.1, 0.1, 0.1, 0.1]),
    ],
)
def test_the_last_the_best_and_the_mean_of_the_evaluations(objective, expected):
    assert scores(judge(objective), "val/accuracy", [0.1, 0.5, 0.3, 0.9, 0.4]) == pytest.approx(
        expected
    )


def test_the_best_mean_is_no_lucky_mean_of_fewer():
    judged = judge(mean(3, best=True))
    assert scores(judged, "val/accuracy", [0.9, 0.1, 0.2])[-1] == pytest.approx(0.4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_the_worst(bad):
    assert scores(judge(LOSS), "val/loss", [bad, 1.0, bad]) == [50.0, 1.0, 50.0]
    windowed = judge(Objective("val/loss", False, average_last=2))
    assert scores(windowed, "val/loss", [bad, 1.0, 1.0]) == [50.0, 25.5, 1.0]


def test_a_loss_above_the_bound_is_no_worse_than_divergence():
    assert scores(judge(LOSS), "val/loss", [1e9]) == [50.0]
    own = Objective("val/energy", maximize=False)
    assert scores(judge(own), "val/energy", [1e9]) == [1e9]  # of a scale that nobody knows


def test_a_row_without_the_metric_keeps_the_score():
    judged = judge(Objective("train/loss", maximize=False))
    assert judged.add({"round": 1.0, "val/loss": 1.0}) == (50.0,)  # an empty first round
    assert judged.add({"round": 2.0, "train/loss": 2.0}) == (2.0,)
    assert judged.add({"round": 3.0, "val/loss": 1.0}) == (2.0,)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"val/accuracy": VALUES, "val/loss": VALUES, "comm/up_bits": VALUES, "val/own": VALUES}
        ),
        min_size=1,
        max_size=8,
    ),
    k=st.integers(1, 3),
    best=st.booleans(),
    maximize=st.booleans(),
)
def test_scores_and_violations_are_finite_whatever_rows_hold(rows, k, best, maximize):
    objectives = [Objective(key, maximize, k, best) for key in rows[0]]
    objectives.append(Objective("val/accuracy", maximize, target=0.5))
    bounds = [Constraint("comm/up_bits", 0.0, 1e9), Constraint("val/loss", high=0.0)]
    judged = judge(*objectives, constraints=bounds)
    for r, row in enumerate(rows):
        found = judged.add({"round": r + 1.0, **row})
        assert len(found) == len(judged.worst) == len(judged.directions) == 5
        assert all(map(math.isfinite, found))
        assert len(judged.violations(row)) == 3
        assert all(map(math.isfinite, judged.violations(row)))
    # a score is never worse than that of a run that diverged, but on an unknown scale
    for score, worst, direction, o in zip(
        found, judged.worst, judged.directions, objectives, strict=True
    ):
        if o.metric in ("val/accuracy", "val/loss"):
            assert score >= worst if direction == "maximize" else score <= worst


def test_a_record_is_judged_again_as_the_run_was():
    rows = [{"round": r, "val/accuracy": a} for r, a in ((2, 0.3), (4, 0.8), (6, 0.7))]
    objectives = (mean(2), Objective("val/accuracy", True, target=0.75))
    first, again = judge(*objectives), judge(*objectives)
    live = [first.add(row) for row in rows]
    assert [again.add(row) for row in rows] == live
    assert live[-1] == (0.75, 4.0)


@pytest.mark.parametrize(
    ("objective", "values", "expected"),
    [
        (Objective("val/accuracy", True, target=0.5), [0.2, 0.5, 0.1, 0.9], [11, 2, 2, 2]),
        (Objective("val/loss", False, target=0.5), [2.0, 0.6, 0.4], [11, 11, 3]),
        (Objective("val/loss", False, target=0.5), [math.nan, -math.inf], [11, 11]),
        (Objective("val/accuracy", True, target=0.5), [math.inf, 0.4], [11, 11]),
    ],
)
def test_rounds_to_a_target(objective, values, expected):
    judged = judge(objective)
    assert scores(judged, objective.metric, values) == expected
    assert judged.directions == ("minimize",)
    assert judged.worst == (11.0,)


@pytest.mark.parametrize(
    ("metric", "maximize", "worst"),
    [
        ("val/accuracy", True, 0.0),
        ("val/accuracy", False, 1.0),
        ("val/loss", False, 50.0),
        ("train/loss", True, -50.0),
        ("comm/up_bits", False, LARGE),
        ("comm/up_bits", True, 0.0),
        ("clock/seconds", False, LARGE),
        ("val/auc", True, -50.0),
    ],
)
def test_the_worst_score_is_finite_and_on_the_bad_side(metric, maximize, worst):
    assert Objective(metric, maximize).worst(50.0, 10) == worst


def test_a_metric_that_no_run_reports_is_named():
    judged = judge(Objective("val/acuracy2", True))
    judged.add({"round": 1.0, "train/loss": 1.0})  # not evaluated yet
    with pytest.raises(ConfigError, match="no metric 'val/acuracy2'; did you mean 'val/accuracy'"):
        judged.add({"round": 2.0, "val/accuracy": 0.1})
    judged = judge(ACCURACY, constraints=[Constraint("clock/seconds", high=1.0)])
    with pytest.raises(ConfigError, match="reports no metric 'clock/seconds'; it reports: val/acc"):
        judged.add({"round": 2.0, "val/accuracy": 0.1})
    judged = judge(Objective("train/drift", True))
    judged.add({"round": 1.0, "val/loss": 0.1})  # an empty round has no training metrics
    with pytest.raises(ConfigError, match="'train/drift'"):
        judged.add({"round": 2.0, "val/loss": 0.1, "train/loss": 0.1})


# constraints


@pytest.mark.parametrize(
    ("constraint", "value", "violations"),
    [
        (Constraint("a", high=100.0), 100.0, [0.0]),
        (Constraint("a", high=100.0), 150.0, [0.5]),
        (Constraint("a", high=100.0), 50.0, [-0.5]),
        (Constraint("a", low=0.5), 0.25, [0.5]),
        (Constraint("a", low=0.5, high=2.0), 3.0, [-5.0, 0.5]),
        (Constraint("a", high=0.0), 0.25, [0.25]),
        (Constraint("a", low=-2.0), -3.0, [0.5]),
        (Constraint("a", low=0.5, high=2.0), math.nan, [1.0, 1.0]),
        (Constraint("a", high=2.0), math.inf, [1.0]),
    ],
)
def test_a_violation_is_the_excess_in_units_of_the_bound(constraint, value, violations):
    assert list(constraint.violations(value)) == violations


def test_violations_are_of_the_last_row_and_what_it_lacks_of_the_rows_before():
    judged = judge(ACCURACY, constraints=[Constraint("a", high=2.0), Constraint("b", low=1.0)])
    judged.add({"round": 1.0, "a": 8.0, "b": 3.0})
    assert judged.violations({"round": 2.0, "a": 1.0}) == (-0.5, -2.0)
    assert judge(ACCURACY).violations({"round": 2.0}) == ()


# names


@pytest.mark.parametrize(
    "name",
    [
        "val/accuracy",
        "train/loss",
        "comm/up_bits",
        "clock/seconds",
        "val/auc",
        "val/accuracy_top5",
        "val/loss/head",
        "train/accuracy",
        "val/mse",
        "train/lr",
    ],
)
def test_metrics_that_may_be_selected_by(name):
    assert check_metric(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test/accuracy", "select on validation"),
        ("accuracy", r"must be one of .*starts with val/ or train/; did you mean 'val/accuracy'"),
        ("comm/upbits", "did you mean 'comm/up_bits'"),
        ("val/acuracy", "did you mean 'val/accuracy'"),
        ("val/accurracy", "did you mean 'val/accuracy'"),
        ("train/los", "did you mean 'train/loss'"),
        ("val/", "must be one of"),
        ("", "must be one of"),
    ],
)
def test_metrics_that_may_not(name, message):
    with pytest.raises(ValueError, match=message):
        check_metric(name)


def test_the_natural_mode():
    assert natural_mode("val/accuracy") == "max"
    assert natural_mode("train/loss") == natural_mode("comm/up_bits") == "min"
    assert natural_mode("val/auc") is None


def test_the_settings_make_a_judge():
    search = SearchSettings.model_validate(
        {
            "objectives": ["val/accuracy", {"metric": "val/loss", "target": 0.5}],
            "average_last": 2,
            "constraints": {"comm/up_bits": {"max": 100}},
        }
    )
    judged = search.judge(max_loss=50.0, rounds=8)
    assert judged.directions == ("maximize", "minimize")
    assert judged.worst == (0.0, 9.0)
    row = {"round": 1.0, "val/accuracy": 0.2, "val/loss": 0.4, "comm/up_bits": 150.0}
    judged.add(row)
    assert judged.add({**row, "round": 2.0, "val/accuracy": 0.4}) == (pytest.approx(0.3), 1.0)
    assert judged.violations(row) == (0.5,)
    assert [goal.label for goal in search.goals] == ["val/accuracy", "rounds to val/loss <= 0.5"]
