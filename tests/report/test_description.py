from fabricated import LR, confirmation, curve, trial

from fltune.report.description import description, outcome, searched
from fltune.report.page import as_html

ONE = {"server.lr": 1.0, "client.lr": 0.1}


def test_the_outcome_comes_first_and_how_to_go_on_last(two_methods):
    text = description(two_methods, ["python -m fltune extend made"])
    lines = text.splitlines()
    assert lines[0].startswith("FedAvg is best of 2, with test/accuracy 0.9200")
    assert "### What was searched" in lines
    assert "- data: digits, 10 clients, partition iid" in lines
    assert lines[-2:] == ["python -m fltune extend made", "```"]
    assert "comparison.html" in text


def test_a_nasty_name_is_no_html(two_methods):
    text = description(two_methods, [])
    assert "<script" not in text
    assert "&lt;script>alert" in text


def test_an_unfinished_search_has_no_winner(in_pieces):
    assert outcome(in_pieces) == ["no method is confirmed so far."]


def test_what_was_searched_names_the_budget_and_the_rule(two_methods):
    found = searched(two_methods)
    assert found["sampler"] == "tpe, 3 trials per method, each on 1 seed"
    assert found["chosen by"] == "val/accuracy"
    assert found["confirmation"] == "3 fresh seeds, on test data"


def test_a_search_that_confirms_nothing_says_so(make_report):
    report = make_report({"A": {"space": {}}}, [], {"confirm_seeds": 0})
    assert searched(report)["confirmation"] == "none"


def test_a_search_without_confirmation_names_the_best_score(make_report):
    records = [trial("A", 0, ONE, 0.5), trial("B", 0, ONE, 0.6)]
    report = make_report({"A": {"space": LR}, "B": {"space": LR}}, records, {"confirm_seeds": 0})
    (said,) = outcome(report)
    assert said == (
        "B has the best val/accuracy of 2 in the search, 0.6000; no winner is run on test data."
    )
    assert "Ranked by val/accuracy in the search; samples" in as_html(report)


def test_the_best_of_some_is_not_called_the_best_of_all(make_report):
    records = [trial(name, 0, ONE, 0.5) for name in "ABC"]
    records += [confirmation(n, 0, s, ONE, 0.5, curve(0.5)) for n in "AB" for s in (1, 2, 3)]
    (said,) = outcome(make_report({name: {"space": LR} for name in "ABC"}, records))
    assert said.startswith("A is best of the 2 confirmed of 3, with")


def test_all_objectives_and_bounds_stand_in_what_was_searched(make_report):
    search = {
        "objectives": ["val/accuracy", {"metric": "comm/up_bits", "mode": "min"}],
        "constraints": {"val/accuracy": {"min": 0.3}, "comm/up_bits": {"max": 1e9}},
    }
    found = searched(make_report({"A": {"space": LR}}, [], search))
    assert found["also judged by"] == "comm/up_bits"
    assert found["constraints"] == "val/accuracy >= 0.3; comm/up_bits <= 1e+09"
