from fltune.report.description import description, outcome, searched


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
