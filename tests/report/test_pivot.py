import io

import pytest
from fabricated import confirmation, curve, trial
from rich.console import Console

from fltune.report.page import as_html
from fltune.report.pivot import pivot, pivot_section, print_pivot

TESTED = {"A @ mild": 0.5, "B @ mild": 0.6, "A @ harsh": 0.4, "B @ harsh": None, "C @ harsh": 0.1}


@pytest.fixture
def scenarios(make_report):
    """C is in one cell alone; B is not confirmed in the other."""
    methods, records = {}, []
    for name, tested in TESTED.items():
        own, cell = name.split(" @ ")
        methods[name] = {"space": {}, "scenario": {"method": own, "alpha": cell}}
        records.append(trial(name, 0, {}, 0.5))
        if tested is not None:
            records += [confirmation(name, 0, s, {}, tested, curve(0.5)) for s in (1, 2)]
    return make_report(methods, records, {"confirm_seeds": 2})


def test_a_method_is_a_row_and_a_cell_a_column(scenarios):
    found = {title: (texts, best) for title, texts, best in pivot(scenarios)}
    assert found["A"] == (["0.5000 ± 0.0000 (2)", "0.4000 ± 0.0000 (1)"], [False, True])
    assert found["B"] == (["0.6000 ± 0.0000 (1)", "-"], [True, False])
    assert found["C"] == (["-", "0.1000 ± 0.0000 (2)"], [False, False])


def test_methods_stand_in_the_order_of_their_mean_rank(scenarios):
    assert [title for title, _, _ in pivot(scenarios)] == ["A", "B", "C"]


def test_the_page_and_the_terminal_have_it(scenarios):
    page = as_html(scenarios)
    assert "All scenarios: test/accuracy" in page
    assert "0.6000 ± 0.0000 (1) ◂" in page
    out = Console(file=io.StringIO(), width=120)
    print_pivot(scenarios, out)
    assert "alpha harsh" in out.file.getvalue()
    assert "0.4000 ± 0.0000 (1)" in out.file.getvalue()


def test_a_search_without_scenarios_has_none(two_methods):
    assert pivot_section(two_methods) == ""
    assert "All scenarios" not in as_html(two_methods)
