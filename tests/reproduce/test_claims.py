import pytest
import yaml
from made_by_hand import accuracies, claim, evidence, series
from pydantic import ValidationError

from fltune.errors import ConfigError
from fltune.participation.full import Full
from fltune.reproduce.claims import ENDS, OF_A_RUN, Claim, read_claims

GOOD = {"says": "A is good", "statistic": "level", "of": "A", "above": 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"above": None}, "give a threshold"),
        ({"below": 0.4}, "above 0.5 leaves nothing below 0.4"),
        ({"than": "B"}, "level knows no than"),
        ({"statistic": "difference"}, "difference needs than"),
        ({"statistic": "spread"}, "spread needs along"),
        ({"along": "eta"}, "level knows no along"),
        ({"take": "rounds"}, "rounds needs a target"),
        ({"target": 0.9}, "last has no use for a target"),
        ({"take": "sd", "over": 1, "metric": "val/accuracy"}, "found 1; a deviation needs two"),
        ({"take": "rounds", "target": 90, "metric": "val/accuracy"}, "found 90; an accuracy is a"),
        ({"take": "best", "metric": "val/acuracy"}, "did you mean 'val/accuracy'"),
        ({"take": "mean", "metric": "participation/coverage"}, "must be one of val/accuracy"),
        ({"metric": "accuracy"}, "found 'accuracy'; did you mean .*; must be one of test/accuracy"),
        ({"metric": "test/acuracy"}, "did you mean 'test/accuracy'"),
        ({"metric": "comm/bits"}, "found 'comm/bits'"),
    ],
)
def test_a_claim_that_does_not_go_together_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({**GOOD, **change})


@pytest.mark.parametrize(
    "take", [{"take": t} for t in ("mean", "sd", "best", "equal_bits", "equal_uplink")]
    + [{"take": "rounds", "target": 0.5}],
)  # fmt: skip
def test_the_rounds_of_a_run_hold_no_test_data(take):
    """Which is what is read if a claim names no metric."""
    with pytest.raises(ValidationError, match=r"metric\n.*found 'test/accuracy'; take: "):
        Claim.model_validate({**GOOD, **take})


@pytest.mark.parametrize("metric", [*ENDS, "test/f1", "val/accuracy_top5"])
def test_a_run_may_end_with_many_metrics(metric):
    assert Claim.model_validate({**GOOD, "metric": metric}).metric == metric


def test_what_a_run_says_of_participation_is_known():
    assert set(Full().bind(2, 0).report()) == set(OF_A_RUN)


def test_all_problems_of_a_file_come_at_once_with_dotted_keys(tmp_path):
    path = tmp_path / "wrong.yaml"
    wrong = {
        "one": {**GOOD, "statistics": "level"},
        "two": {**GOOD, "above": "much"},
        "three": {**GOOD, "take": "equal_bits"},
    }
    path.write_text(yaml.safe_dump({"claims": wrong, "figure": {"x": "time"}}))
    with pytest.raises(ConfigError) as caught:
        read_claims(path)
    text = str(caught.value)
    assert "claims.one.statistics" in text
    assert "did you mean 'statistic'?" in text
    assert "claims.two.above" in text
    assert "claims.three.metric: found 'test/accuracy'" in text
    assert "figure.x" in text


def test_claims_are_not_taken_over_from_the_file_that_is_extended(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"claims": {"one": GOOD}}))
    (tmp_path / "child.yaml").write_text("extends: base.yaml\n")
    assert list(read_claims(tmp_path / "base.yaml").claims) == ["one"]
    assert read_claims(tmp_path / "child.yaml").claims == {}


def test_the_words_say_statistic_and_threshold():
    made = claim("ratio", than="B", metric="val/accuracy", take="rounds", target=0.9, below=1)
    assert made.formula == "A / B: rounds until val/accuracy is 0.9"
    assert made.threshold == "at most 1"
    assert claim(above=0, below=0).threshold == "exactly 0"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (claim(of="Aa"), "c.of: no method 'Aa'; did you mean 'A'"),
        (claim("difference", than="C"), "c.than: no method 'C'"),
        (claim("spread", along="etas"), "c.along: no axis 'etas'; did you mean 'eta'"),
        (claim("spread", along="eta", labels=["eta 9"]), "c.along: no label 'eta 9'"),
        (claim(where={"eta": "eta 3"}), "c.where.eta: no label 'eta 3'"),
        (claim("difference", than="B", where={"eta": "eta 2"}), "there is no 'B' at eta 2"),
    ],
)
def test_what_a_claim_names_must_be_there(made, message):
    found = evidence(
        accuracies("A", [], eta="eta 1"),
        accuracies("A", [], eta="eta 2"),
        accuracies("B", [], eta="eta 1"),
    )
    assert any(message in problem for problem in found.problems("c", made))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (claim(metric="server.lrs", take="setting"), "c.metric: found 'server.lrs'; did you mean"),
        (
            claim(of="B", metric="server.lr", take="setting"),
            "c.metric: found 'server.lr'; the numbers that a search always sets for 'B @ e': none",
        ),
        (claim(metric="val/loss", take="sd"), "c.take: found sd, a deviation of two evaluations"),
        (claim(metric="clock/seconds"), "c.metric: found 'clock/seconds'; 'A @ e' has no clock"),
    ],
)
def test_what_no_run_of_a_method_has_is_refused(made, message):
    plan = {"every": 10, "timed": False, "settings": ["server.lr"]}
    planned = evidence(series("A", [], plan=plan, eta="e"), series("B", [], eta="e"))
    (problem,) = planned.problems("c", made)
    assert problem.startswith(message)
    assert planned.problems("c", claim(metric="server.lr", take="setting")) == []


def test_a_claim_about_what_is_there_has_no_problems():
    found = evidence(accuracies("A", [], eta="eta 1"), accuracies("B", [], eta="eta 1"))
    assert found.problems("c", claim("difference", than="B")) == []
    assert found.problems("c", claim("difference", of="A @ eta 1", than="B @ eta 1")) == []
