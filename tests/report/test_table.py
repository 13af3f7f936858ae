import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from fltune.report.markdown import literal
from fltune.report.statistics import Comparison
from fltune.report.summary import Interval, MethodSummary, Summary
from fltune.report.table import (
    caps_warning,
    interval_text,
    markdown,
    print_summary,
    short,
    warnings_of,
)
from fltune.search.edges import Edge

TREND = [(0.5, 0.7), (1.23456, 0.91)]
EDGE = Edge("server.lr", "highest", 1.23456, TREND, True, {"grid": [1, 2]})


def summary(**changes):
    fedgm = {
        "shown": {"server.lr": 1.23456, "server.beta": 0.95, "model.hidden": ["relu", "tanh"]},
        "val": 0.91,
        "metrics": {"test/accuracy": Interval.of([0.9, 0.92, 0.94])},
        "best": {"server.lr": 1.23456},
        "trials": 12,
        "pruned": 0,
        "diverged": 3,
        "failed": 0,
        "seeds_diverged": 0,
        "edges": {"server.lr": "highest"},
        "beyond": [EDGE],
        "client_samples": 1_250_000,
    }
    fedavg = {
        **fedgm,
        "shown": {"server.lr": 0.5},
        "edges": {},
        "beyond": [],
        "val": 0.8,
        "diverged": 0,
    }
    fedavg["metrics"] = {"test/accuracy": Interval.of([0.7])}
    methods = {"FedAvg": MethodSummary(**fedavg), "Multistage FedGM": MethodSummary(**fedgm)}
    for name, change in changes.items():
        for method in methods.values():
            setattr(method, name, change)
    return Summary("digits-1", "sqlite:///m.db", "digits", "val/accuracy", True, methods)


def printed(outcome, width=80, seeds=3):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_summary(outcome, console, "python -m fltune ui", seeds)
    return console.file.getvalue()


def test_a_narrow_table_breaks_no_number():
    """Folded anywhere, 19.96 would be read as 19."""
    outcome = summary(shown={"algorithm.clip_norm_of_all": 19.96, "server.lr": 0.5})
    outcome.methods["A name as long as names are"] = outcome.methods.pop("FedAvg")
    lines = [line.split("│")[2].strip() for line in printed(outcome).splitlines() if "│" in line]
    assert "algorithm.clip_norm_of_all=19.96" not in lines  # its column is narrower
    assert "19.96" in lines
    assert "server.lr=0.5" in lines


def test_a_budget_that_many_methods_had_is_said_once():
    outcome = summary()
    one = outcome.methods["FedAvg"]
    outcome.methods |= {f"M{n}": replace(one) for n in range(3)}
    outcome.methods["Twice"] = replace(one, trials=24, client_samples=2000)
    outcome.methods["Inherits"] = replace(one, trials=0, client_samples=0)
    text = " ".join(printed(outcome).split())
    assert (
        "Budget (trials, client samples): Twice 24 trials, 2k, Inherits none, each of the other 5 "
        "12 trials, 1.25M."
    ) in text


def test_the_table_fits_80_columns_with_every_method_and_its_values():
    text = printed(summary())
    for part in ("FedAvg", "Multistage", "FedGM", "server.lr=1.235", "server.beta=0.95", "0.9100"):
        assert part in text
    assert "0.9200 ± 0.0497" in text
    assert "0.7000 (1 seed)" in text
    assert text.index("Multistage") < text.index("FedAvg")  # the best comes first
    assert "Budget of each method: 12 trials, 1.25M client samples." in " ".join(text.split())
    table = [line for line in text.splitlines() if "│" in line or "━" in line]
    assert table
    assert max(map(len, table)) <= 80
    assert "python -m fltune ui" in text


def test_a_winner_is_named_by_the_number_that_explain_takes():
    outcome = summary()
    outcome.methods["FedAvg"].winner, outcome.methods["Multistage FedGM"].winner = 11, 3
    text = printed(outcome)
    rows = text.splitlines()
    below = [rows[i + 1] for i, row in enumerate(rows) if row.startswith("│ FedAvg ")]
    assert [row.split()[1] for row in below] == ["#11"]
    assert "#3 " in text
    assert "for explain digits-1/METHOD#NUMBER." in " ".join(text.split())
    assert "#" not in printed(summary()).split("warning")[0]


def test_scores_of_different_origin_are_told():
    plain = " ".join(printed(summary()).split())
    assert "winner's trial" not in plain
    outcome = summary()
    outcome.trial_rounds = 1000
    short = " ".join(printed(outcome).split())
    assert "val/accuracy: in the winner's trial of at most 1,000 rounds. Budget" in short
    outcome.methods["FedAvg"].trials = 0
    mixed = "; over the fresh seeds where nothing was to be chosen."
    assert f"at most 1,000 rounds{mixed}" in " ".join(printed(outcome).split())
    outcome.trial_rounds = None
    assert f"val/accuracy: in the winner's trial{mixed}" in " ".join(printed(outcome).split())
    assert outcome.origin in markdown(outcome, "")
    for method in outcome.methods.values():
        method.trials = 0
    assert outcome.origin == ""


def test_brackets_of_values_are_no_markup():
    assert "[relu, tanh]" in printed(summary(), width=140)
    broken = summary(shown={"[/x]": 1.0}, beyond=[])
    broken.experiment = "[bold]digits"
    text = printed(broken, width=140)
    assert "[/x]=1" in text
    assert "[bold]digits" in text


def test_brackets_of_a_method_s_name_are_no_markup_below_the_table_either():
    outcome = summary(beyond=[])
    names = ("FedGM [no decay]", "[/b]")
    outcome.methods = dict(zip(names, outcome.methods.values(), strict=True))
    outcome.methods["[/b]"].client_samples = 7
    text = " ".join(printed(outcome, width=140).split())
    assert "FedGM [no decay] 12 trials, 1.25M, [/b] 12 trials, 7" in text


@pytest.mark.parametrize("metric", ["val/accuracy", "val/loss"])
def test_before_anything_is_confirmed_the_test_column_is_as_in_the_search(metric):
    outcome = summary(metrics={})
    outcome.metric = metric
    text = " ".join(printed(outcome).split())
    assert f"{metric.replace('val/', 'test ')}: mean" in text
    assert "0 fresh seeds" not in text


def test_a_search_that_confirms_nothing_says_so():
    text = " ".join(printed(summary(metrics={}), seeds=0).split())
    assert "no winner is run on the test split (search.confirm_seeds: 0)" in text
    assert "over 0 fresh seeds" not in text


def test_trials_that_did_not_complete_are_counted():
    text = printed(summary())
    assert "12 (3)" in text
    assert "pruned" not in text
    assert "4 pruned" in printed(summary(pruned=4))


def test_budgets_that_differ_are_told_apart():
    outcome = summary()
    outcome.methods["FedAvg"].client_samples = 950
    text = " ".join(printed(outcome, width=140).split())
    assert "FedAvg 12 trials, 950, Multistage FedGM 12 trials, 1.25M" in text


def test_a_task_without_classes_is_headed_by_its_loss():
    text = printed(summary(metrics={"test/loss": Interval.of([0.5, 0.7])}))
    assert "test loss" in text
    assert "test accuracy" not in text


def test_warnings_say_what_to_distrust():
    assert warnings_of(summary(beyond=[])) == []
    (edge,) = warnings_of(summary())
    assert edge == (
        "Multistage FedGM: the winner's server.lr=1.235 is the highest of its space, where the "
        "score still gets better (0.7 at 0.5, 0.91 at 1.235); the best value may lie beyond, widen "
        "it with --set 'methods.Multistage FedGM.space.server.lr={\"grid\": [1, 2]}'"
    )
    outcome = summary()
    outcome.extend = "python -m fltune extend digits-1"
    (edge,) = warnings_of(outcome)
    assert ": python -m fltune extend digits-1 --set 'methods.Multistage FedGM.space" in edge
    assert "--set 'methods.Multistage" in printed(outcome)  # in one piece, to be copied
    drawn = replace(outcome, methods={"FedGM": outcome.methods["Multistage FedGM"]})
    drawn.methods["FedGM"].beyond = [replace(EDGE, trials=12)]
    (edge,) = warnings_of(drawn)
    assert ": python -m fltune extend digits-1 --trials 12 --set methods.FedGM" in edge.replace(
        "'", ""
    )
    drawn.extend = ""  # a new search has its trials
    assert "--trials" not in warnings_of(drawn)[0]
    text = "\n".join(warnings_of(summary(beyond=[], failed=2, seeds_diverged=1, seeds_failed=3)))
    assert "FedAvg: 2 of 12 trials failed with an error" in text
    assert "FedAvg: 3 confirmation runs failed with an error" in text
    assert "FedAvg: the winner diverged on 1 of its fresh seeds; its accuracy counts as 0" in text
    losses = {"test/loss": Interval.of([0.5, 0.7])}
    (text, _) = warnings_of(summary(beyond=[], seeds_diverged=1, metrics=losses))
    assert "1 of its fresh seeds; its loss leaves them out, and it ranks behind" in text


def test_beside_a_loss_stands_which_seeds_it_is_without():
    losses = {"test/loss": Interval.of([0.5, 0.7])}
    outcome = summary(beyond=[], metrics=losses)
    assert "without" not in printed(outcome) + markdown(outcome, "")
    unstable = outcome.methods["FedAvg"]
    unstable.seeds_diverged, unstable.seeds_failed = 2, 1
    unstable.against_best = Comparison(Interval.of([-0.2, -0.25]), 0.01)
    lines = [" ".join(line.strip("│ ").split()) for line in printed(outcome).splitlines()]
    assert any("without 2 diverged, 1 failed" in line for line in lines)
    assert max(len(line) for line in printed(outcome).splitlines() if "│" in line) <= 80
    (row,) = [line for line in markdown(outcome, "").splitlines() if line.startswith("| FedAvg")]
    assert "| 0.6000 ± 1.2706 without 2 diverged, 1 failed |" in row
    assert "| -0.2250 (p 0.010) without 2 diverged, 1 failed |" in row
    unstable.metrics = {}
    assert "| - 2 diverged, 1 failed |" in markdown(outcome, "")
    accuracies = summary(beyond=[], seeds_diverged=1)  # they count as 0
    assert "without" not in markdown(accuracies, "")


def test_a_cap_that_was_spent_is_named_with_what_it_cost():
    caps = ["search.max_seconds (60)"]
    done = {"A": (12, 20), "B": (0, 20), "C": (20, 20)}
    text = "search.max_seconds (60) was spent: A ran 12 of 20 trials, B none of 20"
    assert caps_warning(caps, done) == text
    both = caps_warning([*caps, "search.max_bytes (1000)"], {"B": (0, 20)})
    assert both == "search.max_seconds (60) and search.max_bytes (1000) were spent: B none of 20"
    assert caps_warning(caps, {"C": (20, 20)}) == caps_warning([], done) == ""
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    cut = replace(summary(beyond=[]), short_of=text)
    print_summary(cut, console, "", 3)
    assert f"warning: {text}\n" in console.file.getvalue()
    assert f"- {literal(text)}\n" in markdown(cut, "")


def test_a_method_without_a_winner_is_shown_as_such():
    lost = summary(beyond=[], best={}, shown={}, val=None, metrics={}, diverged=12)
    assert "FedAvg: no trial completed; nothing to confirm" in warnings_of(lost)
    going = summary(beyond=[], best={}, shown={}, val=None, metrics={}, diverged=5)
    assert not [w for w in warnings_of(going) if "nothing to confirm" in w]  # seven still run
    assert "no trial completed" in printed(lost, width=120)
    assert "| FedAvg | no trial completed | - | - |  | 12 | 12 |" in markdown(lost, "hint")


def test_markdown_holds_the_same_table():
    lines = markdown(summary(), "python -m fltune ui").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2].startswith("| Multistage FedGM | server.lr=1.235  server.beta=0.95")
    assert "0.9200 ± 0.0497" in rows[2]
    assert rows[3].startswith("| FedAvg |")
    assert any(line.startswith("- Multistage FedGM: the winner's server.lr") for line in lines)
    assert lines[-1] == "Open the UI: `python -m fltune ui`"


def test_a_name_is_no_markup_in_markdown():
    outcome = summary()
    outcome.methods = {"A|<img src=x>*": outcome.methods["FedAvg"], "B*": outcome.methods["FedAvg"]}
    text = markdown(outcome, "hint")
    assert r"| A\|&lt;img src=x>\* |" in text
    assert "<img" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456, "0.1235"), (3, "3"), (True, "True"), ([1, 0.123456], "[1, 0.1235]"), ("a", "a")],
)
def test_values_are_short(value, text):
    assert short(value) == text


def test_no_interval_is_a_dash():
    assert interval_text(None) == "-"


def test_a_gap_that_the_spread_does_not_explain_is_a_warning():
    assert warnings_of(summary(beyond=[], optimism=0.1)) == []
    text = warnings_of(summary(beyond=[], optimism=0.1234567, too_optimistic=True))[0]
    assert "FedAvg: the winner's val/accuracy was 0.1235 better in the search than on fresh" in text


@pytest.mark.parametrize(("p", "text"), [(0.0123, "p 0.012"), (1e-9, "p < 0.001"), (math.nan, "")])
def test_the_difference_to_the_best_stands_below_the_result(p, text):
    outcome = summary()
    outcome.methods["FedAvg"].against_best = Comparison(Interval.of([-0.2, -0.25]), p)
    shown = printed(outcome)
    assert "-0.2250" in shown
    assert text in shown
    assert ("(p " in shown) == bool(text)
    assert max(len(line) for line in shown.splitlines() if "│" in line) <= 80
    assert "-0.2250" in markdown(outcome, "hint")


def test_a_difference_that_is_the_same_on_every_seed_has_no_p_and_says_why():
    outcome = summary()
    outcome.methods["FedAvg"].against_best = Comparison(Interval.of([-0.25, -0.25]), math.nan)
    why = "all equal: the same difference on every seed, so there is no p"
    shown = printed(outcome)
    assert "-0.2500 (all equal)" in shown
    assert why in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines() if "│" in line) <= 80
    assert "| -0.2500 (all equal) |" in markdown(outcome, "")
    assert why in markdown(outcome, "")
    outcome.methods["FedAvg"].against_best = Comparison(Interval.of([-0.25]), math.nan)
    assert "all equal" not in printed(outcome) + markdown(outcome, "")


def test_methods_are_grouped_by_scenario_under_their_own_names():
    outcome = summary()
    for cell, (name, m) in zip(("harsh", "mild"), outcome.methods.items(), strict=True):
        m.scenario = {"method": name, "alpha": cell}
    outcome.methods = {f"{k} @ x": m for k, m in outcome.methods.items()}
    text = printed(outcome)
    assert "@ x" not in text.split("warning")[0]
    assert text.index("alpha harsh") < text.index("FedAvg") < text.index("alpha mild")
    lines = markdown(outcome, "hint").splitlines()
    assert lines.index("**alpha harsh**") < lines.index("**alpha mild**")


def test_several_objectives_have_a_table_of_their_front():
    front = [{"shown": {"server.lr": 0.5}, "scores": [0.9, 1e6]}]
    outcome = summary(front=front)
    assert "Pareto" not in printed(outcome)
    outcome.objectives = ["val/accuracy", "comm/up_bits"]
    text = printed(outcome)
    assert "Pareto front of each method" in text
    assert "1e+06" in text
    assert "| FedAvg | 0.9 | 1e+06 | server.lr=0.5 |" in markdown(outcome, "hint")


def test_the_seeds_of_the_search_are_stated():
    outcome = summary()
    assert "in the search" not in printed(outcome)
    outcome.seeds = 5
    assert "Each config was run on 5 seeds" in " ".join(printed(outcome).split())


def test_a_search_of_nothing_has_no_budget():
    text = " ".join(printed(summary(trials=0, client_samples=0)).split())
    assert "Nothing was to be chosen: no trials." in text
    assert "Budget" not in text


def test_a_method_that_searches_nothing_has_a_winner_all_the_same():
    plain = summary(best={}, shown={}, edges={}, beyond=[])
    assert "nothing to search" in printed(plain, width=120)
    assert "nothing to search" in markdown(plain, "")
    assert not [w for w in warnings_of(plain) if "no trial completed" in w]
