import pytest
from fabricated import LR, confirmation, curve, trial

from fltune.report.front_figure import front_section, fronts
from fltune.report.page import as_html

OBJECTIVES = ["val/accuracy", {"metric": "comm/up_bits", "mode": "min"}]


@pytest.fixture
def two_goals(make_report):
    """Trials 0 and 1 are on the front, 2 is beaten by both, 3 diverged; B has no trial."""
    records = []
    for number, scores in enumerate(([0.9, 200.0], [0.7, 100.0], [0.6, 300.0])):
        values = {"server.lr": 1.0 + number, "client.lr": 0.1}
        records.append(trial("A", number, values, scores[0], scores=scores))
    lost = {"server.lr": 9.0, "client.lr": 0.9}
    records.append(trial("A", 3, lost, 0.0, "diverged", scores=[0.0, 1e9]))
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records += [confirmation("A", 0, s, one, 0.9, curve(0.9)) for s in (1, 2)]
    methods = {"A": {"space": LR}, "B": {"space": LR}}
    search = {"objectives": OBJECTIVES, "trials": 4, "confirm_seeds": 2}
    return make_report(methods, records, search)


def test_the_front_is_ringed_and_all_trials_are_there(two_goals):
    picture = fronts(two_goals)
    view = next(v for v in picture.views if v.label == "A")
    traces = {t.name: t for t in view.figure.data}
    assert sorted(zip(traces["complete"].x, traces["complete"].y, strict=True)) == [
        (0.6, 300.0),
        (0.7, 100.0),
        (0.9, 200.0),
    ]
    front = traces["Pareto front"]
    assert list(zip(front.x, front.y, strict=True)) == [(0.7, 100.0), (0.9, 200.0)]
    assert "the 2 that are ringed" in view.text
    assert "1 that diverged are left out" in view.text
    assert "less is better" in view.figure.layout.yaxis.title.text
    assert next(v for v in picture.views if v.label == "B").figure is None


def test_the_table_has_the_configs_of_the_front(two_goals):
    section = front_section(two_goals, fronts(two_goals))
    assert section.count("<tr") == 1 + 2
    assert "server.lr = 2" in section
    assert "server.lr = 3" not in section
    assert 'id="front"' in as_html(two_goals)


def test_the_table_has_values_as_people_read_them(make_report):
    space = {
        "server.lr": {"loguniform": [0.1, 10.0]},
        "client.lr": {"tied": "0.01 / server.lr"},
    }
    records = [trial("A", 0, {"server.lr": 2.0}, 0.9, scores=[0.9, 200.0])]
    report = make_report({"A": {"space": space}}, records, {"objectives": OBJECTIVES})
    section = front_section(report, fronts(report))
    assert "client.lr = 0.005" in section
    assert "as the one that is ringed;" not in section
    assert "as the one that is ringed." in section


def test_costs_that_span_decades_are_on_a_log_axis(make_report):
    records = [
        trial("A", n, {"server.lr": 1.0 + n, "client.lr": 0.1}, score, scores=[score, bits])
        for n, (score, bits) in enumerate([(0.9, 1e9), (0.5, 1e6)])
    ]
    report = make_report({"A": {"space": LR}}, records, {"objectives": OBJECTIVES})
    layout = fronts(report).views[0].figure.layout
    assert (layout.xaxis.type, layout.yaxis.type) == ("linear", "log")


def test_one_objective_has_no_front(two_methods):
    assert fronts(two_methods) is None
    assert 'id="front"' not in as_html(two_methods)
