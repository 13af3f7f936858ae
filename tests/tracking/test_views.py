"""Views of the table of runs, in the words of MLflow's UI."""

import json

import pytest

from fltune.tracking import View

VIEW = View(
    key="methods",
    title="best first",
    tags={"fltune.search": "first", "fltune.kind": "method"},
    order_by="test/accuracy",
    ascending=False,
    metrics=("test/accuracy", "score"),
    params=("server.lr",),
    marks=("fltune.edge",),
)


def test_a_view_says_which_runs_in_which_order_with_which_columns():
    columns = ["metrics.`test/accuracy`", "metrics.`score`", "params.`server.lr`"]
    columns.append("tags.`fltune.edge`")
    assert json.loads(VIEW.state()) == {
        "searchFilter": "tags.`fltune.search` = 'first' and tags.`fltune.kind` = 'method'",
        "orderByKey": "metrics.`test/accuracy`",
        "orderByAsc": False,
        "selectedColumns": columns,
        "columnOrder": columns,
    }


@pytest.mark.parametrize(("name", "quoted"), [("Ada's", '"Ada\'s"'), ('"5"', "'\"5\"'")])
def test_a_name_with_a_quote_is_put_between_the_other_ones(name, quoted):
    view = View("all", "all", {"fltune.search": name}, "score", True)
    assert json.loads(view.state())["searchFilter"] == f"tags.`fltune.search` = {quoted}"


def test_a_saved_view_has_a_name_and_a_time():
    saved = json.loads(VIEW.saved("first: best first", 1700))
    state = saved.pop("state")
    assert state == VIEW.state()
    assert saved == {"name": "first: best first", "createdAt": 1700, "updatedAt": 1700}
