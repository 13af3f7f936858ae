import pytest
import yaml
from made_by_hand import accuracies, claim, evidence
from pydantic import ValidationError

from fltune.errors import ConfigError
from fltune.reproduce.claims import Claim, read_claims

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
    ],
)
def test_a_claim_that_does_not_go_together_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({**GOOD, **change})


def test_all_problems_of_a_file_come_at_once_with_dotted_keys(tmp_path):
    path = tmp_path / "wrong.yaml"
    wrong = {"one": {**GOOD, "statistics": "level"}, "two": {**GOOD, "above": "much"}}
    path.write_text(yaml.safe_dump({"claims": wrong, "figure": {"x": "time"}}))
    with pytest.raises(ConfigError) as caught:
        read_claims(path)
    text = str(caught.value)
    assert "claims.one.statistics" in text
    assert "did you mean 'statistic'?" in text
    assert "claims.two.above" in text
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


def test_a_claim_about_what_is_there_has_no_problems():
    found = evidence(accuracies("A", [], eta="eta 1"), accuracies("B", [], eta="eta 1"))
    assert found.problems("c", claim("difference", than="B")) == []
    assert found.problems("c", claim("difference", of="A @ eta 1", than="B @ eta 1")) == []
