import math

import optuna
import pytest
from fabricated import LR, NASTY, confirmation, curve, trial

from fltune.report import figures, space_figures
from fltune.report.figures import learning_curves, partition_picture, search_history, shown
from fltune.report.space_figures import importances, parallel_coordinates, slices, stability_map
from fltune.search.candidate import Candidate

SPACES = (importances, parallel_coordinates, slices, stability_map)


def view(picture, name):
    return next(v for v in picture.views if v.label == name)


def traces(figure):
    return {t.name: t for t in figure.data if t.name}


def test_a_curve_is_the_mean_and_its_band_the_extremes(two_methods):
    accuracy, loss = learning_curves(two_methods)
    assert [v.label for v in accuracy.views] == ["rounds", "uplink bits of a run"]
    rounds, bits = (v.figure for v in accuracy.views)
    line = traces(rounds)["FedAvg"]
    assert list(line.x) == [2, 4]
    assert list(line.y) == pytest.approx([2.0 / 3, 2.35 / 3])  # of 0.7 0.8 0.5, 0.85 0.9 0.6
    band = rounds.data[0]
    assert list(band.y) == [0.8, 0.9, 0.6, 0.5]
    assert list(traces(bits)["FedAvg"].x) == [8 * 2**20, 2 * 8 * 2**20]
    assert "FedAvg ends at 0.7833 (0.6000 to 0.9000) over 3 seeds" in accuracy.views[0].text
    assert rounds.layout.shapes[0].y0 == 0.8  # the target
    assert loss.title == "train/loss"
    assert not loss.views[0].figure.layout.shapes


def test_simulated_time_is_an_axis_where_there_is_a_clock(one_seed):
    views = learning_curves(one_seed)[0].views
    assert [v.label for v in views][-1] == "simulated seconds"
    assert list(traces(views[-1].figure)["A"].x) == [7.0, 7.0]


def test_seeds_that_diverged_are_left_out_of_the_curve_and_named(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 0.5), confirmation("A", 0, 1, one, 0.5, curve(0.4, 0.5))]
    records.append(
        confirmation("A", 0, 2, one, 0.1, curve(0.1, math.nan), status="diverged", scores=[0.0])
    )
    shown_view = learning_curves(make_report({"A": {"space": LR}}, records))[0].views[0]
    assert list(traces(shown_view.figure)["A"].y) == [0.4, 0.5]
    assert "1 that diverged left out" in shown_view.text


def test_many_methods_have_each_a_line_of_its_own_and_no_bands(make_report):
    names = [f"M{n}" for n in range(32)]
    records = [confirmation(n, 0, s, {}, 0.5, curve(0.4, 0.5)) for n in names for s in (1, 2)]
    report = make_report({n: {"space": {}} for n in names}, records, {"confirm_seeds": 2})
    shown_view = learning_curves(report)[0].views[0]
    assert [t.name for t in shown_view.figure.data] == [row.title for row in report.rows]
    assert len({(t.line.color, t.line.dash) for t in shown_view.figure.data}) == 32
    assert "band" not in shown_view.text
    assert shown_view.figure.layout.height > 600  # room for the legend


def test_rounds_and_trials_are_whole_numbers(two_methods):
    drawn = [learning_curves(two_methods)[0].views[0], search_history(two_methods).views[0]]
    assert [v.figure.layout.xaxis.dtick for v in drawn] == [1, 1]


@pytest.fixture
def wide_losses(make_report):
    """Losses from 0.1 to 1000 in the search and on fresh seeds, one trial diverged."""
    values = [{"server.lr": lr, "client.lr": 0.1} for lr in (1.0, 2.0, 3.0, 4.0)]
    records = [
        trial("A", n, v, score, rows=[{"round": 2, "val/loss": score}])
        for n, (v, score) in enumerate(zip(values, (10.0, 0.1, 1000.0), strict=False))
    ]
    records.append(trial("A", 3, values[3], 1e6, "diverged"))
    rows = curve(900.0, 0.1, metric="val/loss")
    records.append(confirmation("A", 1, 1, values[1], 0.1, rows, metric="test/loss"))
    return make_report({"A": {"space": LR}}, records, {"metric": "val/loss", "trials": 4})


def test_losses_that_span_decades_are_drawn_on_log_axes(wide_losses):
    loss = learning_curves(wide_losses)[0].views[0].figure
    history = search_history(wide_losses).views[0].figure
    below = slices(wide_losses).views[0].figure
    kinds = [figure.layout.yaxis.type for figure in (loss, history, below)]
    assert kinds == ["log"] * 3
    assert 1000.0 < traces(history)["diverged"].y[0] < 3000.0
    marker = traces(stability_map(wide_losses).views[0].figure)["complete"].marker
    assert list(marker.color) == pytest.approx([1.0, -1.0, 3.0])
    assert (marker.colorbar.ticktext[0], marker.colorbar.ticktext[-1]) == ("0.1", "1000")
    lost, worst, middle, best = parallel_coordinates(wide_losses).views[0].figure.data
    assert [line.y[0] for line in (worst, middle, best)] == pytest.approx([1.0, 0.5, 0.0])
    assert lost.y[0] > 1.0  # on the bad side of a loss


def test_accuracies_are_never_on_a_log_axis(make_report):
    records = [
        trial("A", n, {"server.lr": 1.0 + n, "client.lr": 0.1}, score)
        for n, score in enumerate((0.001, 0.9))
    ]
    (only,) = search_history(make_report({"A": {"space": LR}}, records)).views
    assert only.figure.layout.yaxis.type == "linear"


def test_runs_that_failed_are_told_apart_from_those_that_diverged(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 0.5), confirmation("A", 0, 1, one, 0.5, curve(0.5))]
    lost = {"diverged": 2, "failed": 3}
    records += [
        confirmation("A", 0, seed, one, 0.1, curve(0.1), status=s) for s, seed in lost.items()
    ]
    text = learning_curves(make_report({"A": {"space": LR}}, records))[0].views[0].text
    assert "over 1 seed; 1 that diverged and 1 that failed left out" in text


def test_what_breaks_a_constraint_is_no_best_so_far(make_report):
    records = [
        trial("A", n, {"server.lr": 1.0 + n, "client.lr": 0.1}, score, violations=[broken])
        for n, (score, broken) in enumerate([(0.5, 0.0), (0.9, 1.0), (0.6, 0.0)])
    ]
    search = {"constraints": {"comm/up_bits": {"max": 1.0}}}
    (only,) = search_history(make_report({"A": {"space": LR}}, records, search)).views
    assert list(traces(only.figure)["best so far"].y) == [0.5, 0.6]
    assert "The best val/accuracy, 0.6, came with trial 2" in only.text
    assert "1 that break a constraint are no best ones" in only.text
    assert list(traces(only.figure)["breaks a constraint"].y) == [0.9]
    assert list(traces(only.figure)["complete"].y) == [0.5, 0.6]


def test_heights_compare_no_trial_with_another(two_methods, monkeypatch):
    """A page of thousands of trials would spend its time on it."""
    lane = two_methods.lanes["FedAvg"]
    monkeypatch.setattr(Candidate, "__eq__", lambda one, other: pytest.fail("compared"))
    assert figures.heights(lane, list(lane.candidates.values()))[:2] == [0.9, 0.4]


def test_the_history_has_every_trial_and_the_best_so_far(two_methods):
    views = search_history(two_methods)
    found = traces(view(views, "FedAvg").figure)
    assert list(found["complete"].y) == [0.9, 0.4]
    assert list(found["best so far"].y) == [0.9, 0.9]
    assert found["diverged"].y[0] < 0.4  # on the bad side of all scores
    assert found["diverged"].marker.symbol != found["complete"].marker.symbol
    assert "pruned" in traces(view(views, NASTY).figure)
    assert "came with trial 0" in view(views, "FedAvg").text
    assert "diverged or failed have no score" in view(views, "FedAvg").text
    assert "diverged or failed have no score" not in view(views, NASTY).text
    assert "A pruned trial stands at" in view(views, NASTY).text


def test_a_loss_that_diverged_is_drawn_above(one_seed):
    lane = one_seed.lanes["A"]
    lost = trial("A", 2, {"server.lr": 1.0}, 1e6, "diverged")
    candidates = list(lane.candidates.values())
    candidates[0].runs.append(lost)
    assert figures.heights(lane, candidates)[0] > 2.0


def test_slices_mark_the_ends_and_the_edge_of_the_winner(two_methods):
    winner = view(slices(two_methods), NASTY)
    lines = [(s.x0, s.line.width) for s in winner.figure.layout.shapes]
    assert lines == [(0.1, 1), (10.0, 2), (0.01, 1), (1.0, 1)]
    (note,) = winner.figure.layout.annotations
    assert (note.x, note.xanchor) == (1.0, "right")  # the logarithm of 10
    assert "the best server.lr is the highest of its space" in winner.text
    assert winner.figure.layout.xaxis.type == "log"
    assert "no winning value is on an end" in view(slices(two_methods), "FedAvg").text


def test_the_stability_map_shows_scores_and_what_diverged(two_methods):
    shown_view = view(stability_map(two_methods), "FedAvg")
    found = traces(shown_view.figure)
    assert list(found["complete"].marker.color) == [0.9, 0.4]
    assert (list(found["diverged"].x), list(found["diverged"].y)) == ([9.0], [0.9])
    assert shown_view.figure.layout.xaxis.title.text == "server.lr"
    assert "1 diverged (crosses), with server.lr from 9, client.lr from 0.9" in shown_view.text
    low, high = shown_view.figure.layout.xaxis.range
    assert low < -1 < 1 < high  # all of the space, 0.1 to 10
    pruned = traces(view(stability_map(two_methods), NASTY).figure)["pruned"]
    assert pruned.marker.color == figures.GREY  # blue is a good score


def test_parallel_lines_go_through_score_and_values(two_methods):
    wild, other, best = view(parallel_coordinates(two_methods), "FedAvg").figure.data
    assert list(best.y) == pytest.approx([1.0, 0.5, 0.5])  # 1 in 0.1 .. 10, 0.1 in 0.01 .. 1
    assert list(other.y)[:2] == pytest.approx([0.0, 1.0])
    assert wild.line.dash == "dot"
    assert wild.y[0] < 0


def test_importances_need_trials(two_methods):
    few = view(importances(two_methods), "FedAvg")
    assert few.figure is None
    assert "2 completed trials; an importance from fewer than 10" in few.text


def test_importances_need_more_than_one_parameter(one_seed):
    assert "searches 1 parameter" in importances(one_seed).views[0].text


def test_the_parameter_that_moves_the_score_is_the_important_one(make_report):
    records = [
        trial(
            "A", n, {"server.lr": 0.1 + n / 2, "client.lr": 0.01 + (7 * n % 12) / 12}, 0.2 + n / 20
        )
        for n in range(12)
    ]
    (only,) = importances(make_report({"A": {"space": LR}}, records, {"trials": 12})).views
    bar = only.figure.data[0]
    assert list(bar.y)[-1] == "server.lr"  # the longest is on top
    assert sum(bar.x) == pytest.approx(1.0)


def test_importances_are_optunas_on_the_same_trials(make_report):
    values = [
        {"server.lr": 0.1 * 1.4**n, "client.lr": 0.01 + 0.9 * (5 * n % 13) / 13} for n in range(13)
    ]
    scores = [0.9 / (1 + abs(math.log(v["server.lr"]))) + 0.1 * v["client.lr"] for v in values]
    records = [
        trial("A", n, v, score) for n, (v, score) in enumerate(zip(values, scores, strict=True))
    ]
    (only,) = importances(make_report({"A": {"space": LR}}, records, {"trials": 13})).views
    kinds = {
        "server.lr": optuna.distributions.FloatDistribution(0.1, 10.0, log=True),
        "client.lr": optuna.distributions.FloatDistribution(0.01, 1.0, log=True),
    }
    study = optuna.create_study(direction="maximize")
    for v, score in zip(values, scores, strict=True):
        study.add_trial(optuna.trial.create_trial(params=v, distributions=kinds, value=score))
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=space_figures.TREES, seed=0)
    expected = optuna.importance.get_param_importances(study, evaluator=evaluator)
    bar = only.figure.data[0]
    assert dict(zip(bar.y, bar.x, strict=True)) == pytest.approx(expected)


def test_importances_of_many_trials_are_told_from_some_of_them(make_report, monkeypatch):
    monkeypatch.setattr(space_figures, "MOST_WEIGHED", 10)
    values = [
        {"server.lr": 0.1 * 1.2**n, "client.lr": 0.01 + 0.9 * (5 * n % 25) / 25} for n in range(25)
    ]
    records = [trial("A", n, v, 0.03 * n) for n, v in enumerate(values)]
    report = make_report({"A": {"space": LR}}, records, {"trials": 25})
    some = space_figures._some_of(space_figures.study_of(report.lanes["A"]))
    assert [t.params["server.lr"] for t in some.trials] == pytest.approx(
        [values[n]["server.lr"] for n in (0, 2, 5, 7, 10, 12, 15, 17, 20, 22)]
    )
    (only,) = importances(report).views
    assert "from 10 of 25 completed trials, spread evenly" in only.text


def test_the_study_of_a_grid_holds_its_trials(one_seed):
    study = space_figures.study_of(one_seed.lanes["A"])
    assert [t.values for t in study.trials] == [[3.0], [2.0]]


@pytest.mark.parametrize("draw", [*SPACES, search_history])
def test_methods_without_a_result_say_so(in_pieces, draw):
    picture = draw(in_pieces)
    assert [v.label for v in picture.views] == [row.name for row in in_pieces.rows]
    for name in ("Lost", "Empty"):
        assert view(picture, name).figure is None
        assert name in view(picture, name).text


@pytest.mark.parametrize("draw", [search_history, importances, *SPACES])
def test_a_config_that_is_confirmed_without_a_trial(make_report, draw):
    one = {"server.lr": {"grid": [2.0]}}
    records = [confirmation("A", 0, seed, {"server.lr": 2.0}, 0.6, curve(0.5)) for seed in (1, 2)]
    (only,) = draw(make_report({"A": {"space": one}}, records)).views
    assert only.figure is None
    assert only.text.startswith("A")


@pytest.mark.parametrize("draw", SPACES)
def test_a_method_that_searches_nothing(make_report, draw):
    records = [trial("A", 0, {}, 0.5)]
    (only,) = draw(make_report({"A": {"space": {}}}, records)).views
    assert only.figure is None
    assert only.text.startswith("A")


@pytest.mark.parametrize("draw", [parallel_coordinates, slices, stability_map])
def test_choices_of_no_numbers_are_categories(make_report, draw):
    space = {**LR, "model.hidden": {"choice": [[4], [8, 8]]}}
    records = [
        trial("A", n, {"server.lr": 1.0, "client.lr": 0.1, "model.hidden": hidden}, 0.5)
        for n, hidden in enumerate([[8, 8], [4]])
    ]
    (only,) = draw(make_report({"A": {"space": space}}, records)).views
    assert only.figure is not None


@pytest.mark.parametrize("draw", [parallel_coordinates, slices, stability_map])
def test_values_that_an_extension_took_out_of_the_space_have_no_place(make_report, draw):
    space = {**LR, "model.hidden": {"choice": [[4], [8, 8]]}}
    records = [
        trial("A", n, {"server.lr": lr, "client.lr": 0.1, "model.hidden": hidden}, 0.5)
        for n, (lr, hidden) in enumerate([(1.0, [8, 8]), (0.0, [2])])
    ]
    (only,) = draw(make_report({"A": {"space": space}}, records)).views
    assert only.figure is not None
    if draw is parallel_coordinates:
        whole, taken_out = only.figure.data
        assert (list(whole.x), list(taken_out.x)) == ([0, 1, 2, 3], [0, 2])


def test_each_partition_is_drawn_once(two_methods):
    (only,) = partition_picture(two_methods).views
    assert only.label == "all methods"
    assert "digits" in only.text
    assert "10 clients" in only.text


def test_whose_partition_is_drawn_stands_below_it(make_report):
    methods = {f"A{n}": {"data": {"clients": n // 2}, "space": {}} for n in (10, 11, 12)}
    first, second = partition_picture(make_report(methods, [])).views
    assert first.text.endswith("Of A10, A11.")
    assert second.text.endswith("Of A12.")


def test_partitions_that_are_too_many_are_counted(make_report, monkeypatch):
    monkeypatch.setattr(figures, "MOST_PARTITIONS", 1)
    methods = {f"A{n}": {"data": {"clients": n}, "space": {}} for n in (5, 6, 7)}
    (only,) = partition_picture(make_report(methods, [])).views
    assert only.text.endswith("2 more partitions are not drawn here.")


def test_data_that_are_not_here_are_no_reason_to_fail(make_report, tmp_path):
    methods = {"A": {"data": {"name": "mnist", "root": str(tmp_path)}, "space": {}}}
    (only,) = partition_picture(make_report(methods, [])).views
    assert only.figure is None
    assert "cannot be loaded here" in only.text


def test_labels_are_shown_literally():
    assert shown("<b>x</b> & y") == "&lt;b&gt;x&lt;/b&gt; &amp; y"
