import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_by_hand import accuracies, claim, evidence, run, series

from fltune.reproduce.judge import NOT_SHOWN, OPPOSITE, SHOWN, judge, judge_computed, worst
from fltune.reproduce.statistics import by_seed

SPREAD = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6)


def test_statistics_are_paired_by_seed():
    found = evidence(
        accuracies("A", [0.5, 0.7], eta="low"),
        accuracies("A", [0.9, 0.8], eta="high"),
        accuracies("B", [0.4, 0.5], eta="low"),
        accuracies("B", [0.6, 0.4], eta="high"),
    )
    low, none = {"eta": "low"}, {}
    expected = [
        (claim("level"), low, (0.5, 0.7)),
        (claim("difference", than="B"), low, (0.1, 0.2)),
        (claim("ratio", than="B"), low, (1.25, 1.4)),
        (claim("smallest_step", along="eta"), none, (0.4, 0.1)),
        (claim("spread", along="eta"), none, (0.4, 0.1)),
        (claim("growth", than="B", along="eta"), none, (0.2, 0.2)),
        (claim("ratio_growth", than="B", along="eta"), none, (1.2, 0.8 / 0.7 / 0.8)),
        (claim("largest_step", along="eta", labels=["high", "low"]), none, (-0.4, -0.1)),
    ]
    for made, cell, values in expected:
        assert by_seed(found, made, cell) == {
            seed: pytest.approx(v) for seed, v in enumerate(values, start=1)
        }


def test_two_that_never_come_to_the_target_are_not_told_apart():
    never, late, soon = (0.1, 0.2), (0.1, 0.6), (0.6, 0.7)
    a = [run(1, curve=never), run(2, curve=late), run(3, curve=soon), run(4, curve=never)]
    b = [run(1, curve=never), run(2, curve=never), run(3, curve=late), run(4, curve=late)]
    made = claim("ratio", than="B", metric="val/accuracy", take="rounds", target=0.5, below=1)
    found = by_seed(evidence(series("A", a), series("B", b)), made, {})
    assert math.isnan(found.pop(1))
    assert found == {2: pytest.approx(2 / 11), 3: pytest.approx(1 / 2), 4: pytest.approx(11 / 2)}
    walk = claim("largest_step", along="e", metric="val/accuracy", take="rounds", target=0.5)
    curves = {"p": late, "q": never, "r": never}
    steps = [series("A", [run(1, curve=curve)], e=label) for label, curve in curves.items()]
    assert math.isnan(by_seed(evidence(*steps), walk, {})[1])


def test_what_no_seed_tells_is_not_shown():
    runs = [run(i, curve=(0.1, 0.2)) for i in (1, 2, 3)]
    made = claim("ratio", than="B", metric="val/accuracy", take="rounds", target=0.5, below=1)
    judged = judge("c", made, evidence(series("A", runs), series("B", runs)))
    assert judged.verdict == NOT_SHOWN
    assert [finding.text for finding in judged.findings] == ["cannot be told"]


def test_a_seed_that_one_side_lacks_is_left_out():
    found = evidence(series("A", [run(1, 0.5), run(2, 0.6)]), series("B", [run(2, 0.1)]))
    assert by_seed(found, claim("difference", than="B"), {}) == {2: pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("values", "threshold", "verdict"),
    [
        ([0.10, 0.11, 0.12], {"above": 0.05}, SHOWN),
        ([0.10, 0.11, 0.12], {"above": 0.10}, NOT_SHOWN),  # 0.11 with an interval of 0.025
        ([-0.10, -0.11, -0.12], {"above": 0.05}, OPPOSITE),
        ([0.01, 0.02, 0.03], {"above": 0.05}, NOT_SHOWN),  # right direction, too small
        ([-0.10, -0.11, -0.12], {"below": -0.05}, SHOWN),
        ([0.001, 0.002, 0.003], {"above": -0.01, "below": 0.01}, SHOWN),
        ([0.101, 0.102, 0.103], {"above": -0.01, "below": 0.01}, OPPOSITE),
        ([-0.02, -0.021, -0.022], {"above": -0.01}, OPPOSITE),
    ],
)
def test_the_interval_decides(values, threshold, verdict):
    found = evidence(accuracies("A", [0.5 + v for v in values]), accuracies("B", [0.5] * 3))
    assert judge("c", claim("difference", than="B", **threshold), found).verdict == verdict


@given(SPREAD, st.floats(-0.5, 0.5))
def test_what_is_shown_is_opposite_the_other_way_round(values, threshold):
    """Swapping the methods and mirroring the threshold changes nothing; no claim is both."""
    found = evidence(accuracies("A", values), accuracies("B", [0.5] * len(values)))
    one = judge("c", claim("difference", than="B", above=threshold), found).verdict
    other = judge("c", claim("difference", of="B", than="A", below=-threshold), found).verdict
    assert one == other
    against = judge("c", claim("difference", than="B", below=threshold), found).verdict
    assert (one, against) != (SHOWN, SHOWN) or len(set(values)) == 1


def test_a_claim_has_to_hold_in_every_cell():
    found = evidence(
        accuracies("A", [0.9, 0.91, 0.92], eta="low"), accuracies("A", [0.1, 0.2, 0.3], eta="high")
    )
    judged = judge("c", claim(above=0.8), found)
    assert [(f.cell, f.verdict) for f in judged.findings] == [("low", SHOWN), ("high", OPPOSITE)]
    assert judged.verdict == OPPOSITE
    assert judge("c", claim(above=0.8, where={"eta": "low"}), found).verdict == SHOWN
    assert worst([SHOWN, NOT_SHOWN]) == NOT_SHOWN
    assert worst([NOT_SHOWN, OPPOSITE, SHOWN]) == OPPOSITE
    assert worst([]) == NOT_SHOWN


def test_a_method_that_diverged_in_the_search_is_the_worst_on_every_seed():
    lost = series("B", [], lost=True)
    found = evidence(accuracies("A", [0.8, 0.81, 0.82]), lost)
    judged = judge("c", claim("difference", than="B", above=0.5), found)
    assert judged.verdict == SHOWN
    loss = claim("difference", than="B", metric="test/loss", below=0)
    runs = [run(seed, **{"test/loss": 1.0}) for seed in (1, 2)]
    judged = judge("c", loss, evidence(series("A", runs), lost))
    assert (judged.verdict, judged.findings[0].mean) == (SHOWN, -math.inf)


def test_a_run_that_broke_off_is_no_budget_for_the_others():
    """It has sent three rounds, and is the worst anyway; the others are compared after four."""
    short = [run(s, status="diverged", curve=(0.1,) * 3) for s in (3,)]
    a = series("A", [*(run(s, curve=(0.1, 0.2, 0.3, 0.9)) for s in (1, 2)), *short])
    b = series("B", [run(s, curve=(0.1, 0.2, 0.3, 0.5, 0.8)) for s in (1, 2, 3)])
    made = claim("difference", than="B", metric="val/accuracy", take="equal_bits")
    expected = {1: pytest.approx(0.4), 2: pytest.approx(0.4), 3: pytest.approx(-0.5)}
    assert by_seed(evidence(a, b), made, {}) == expected


def test_a_step_between_two_runs_that_diverged_is_not_known():
    ends = {"p": 1.0, "q": None, "r": None, "s": 2.0}
    walk = [
        series("A", [run(1, **{"test/loss": v}) if v else run(1, status="diverged")], e=label)
        for label, v in ends.items()
    ]
    for statistic in ("smallest_step", "largest_step"):
        made = claim(statistic, along="e", metric="test/loss")
        assert math.isnan(by_seed(evidence(*walk), made, {})[1])


@pytest.mark.parametrize(
    "made",
    [
        claim(above=0.5),
        claim(below=0.5),
        claim("difference", than="B", above=0.1, below=0.9),
        claim("difference", of="B", than="A", above=0),
        claim("difference", than="lost", metric="test/loss", below=0),
    ],
)
def test_one_seed_of_what_is_trained_tells_nothing(made):
    a, b = (series(name, [run(1, v, **{"test/loss": 1.0})]) for name, v in (("A", 0.9), ("B", 0.4)))
    judged = judge("c", made, evidence(a, b, series("lost", [], lost=True)))
    (finding,) = judged.findings
    assert (judged.verdict, len(finding.values)) == (NOT_SHOWN, 1)
    assert finding.text.endswith(" (one seed tells nothing)")


@pytest.mark.parametrize(
    ("made", "diverged", "verdict"),
    [
        (claim(metric="comm/up_bits", above=100, below=100), False, SHOWN),
        (claim("ratio", than="B", metric="comm/up_bits", above=1), False, SHOWN),
        (claim(metric="comm/up_bits", above=200), False, OPPOSITE),
        (claim(metric="server.lr", take="setting", below=1), False, SHOWN),
        (claim(metric="comm/up_bits", above=100), True, NOT_SHOWN),  # another seed may not diverge
    ],
)
def test_what_is_counted_or_set_needs_no_second_seed(made, diverged, verdict):
    status = "diverged" if diverged else "complete"
    a = series("A", [run(1, status=status, values={"server.lr": 0.5})])
    judged = judge("c", made, evidence(a, series("B", [run(1, bits=100.0)])))
    assert judged.verdict == verdict


def test_one_number_of_several_seeds_shows_nothing():
    """On the other seeds both diverged: there is no spread, and so no interval."""
    a = series("A", [run(1, 0.9), *(run(s, status="diverged") for s in (2, 3))])
    b = series("B", [run(1, 0.5), *(run(s, status="diverged") for s in (2, 3))])
    lower = claim("difference", than="B", metric="test/loss", below=0)
    for one, loss in ((a, 1.0), (b, 2.0)):
        one.runs[0].metrics["test/loss"] = loss
    (found,) = judge("c", lower, evidence(a, b)).findings
    assert (found.values, found.verdict) == ({"1": -1.0}, NOT_SHOWN)


@pytest.mark.parametrize("made", [{"below": -0.001}, {"above": 0.001}, {"above": -1, "below": 1}])
def test_the_same_number_on_every_seed_shows_nothing(made):
    """One sample of 360, whatever float32 makes of it: the next seed is as free as ever."""
    correct = (342, 339, 345)
    a = accuracies("A", [float(np.float32((n - 1) / 360)) for n in correct])
    b = accuracies("B", [float(np.float32(n / 360)) for n in correct])
    (found,) = judge("c", claim("difference", than="B", **made), evidence(a, b)).findings
    assert found.verdict == NOT_SHOWN
    assert found.text == "-0.002778 (the same on every seed: no interval)"


def test_a_number_of_runs_that_never_came_to_the_target_is_a_bound():
    never, late, soon = (0.1, 0.1, 0.1), (0.1, 0.1, 0.6), (0.6, 0.7, 0.7)
    cells = {"p": ([soon, late], [never, never]), "q": ([late, soon], [late, late])}
    parts = [
        series(name, [run(i, curve=c) for i, c in enumerate(curves, start=1)], e=cell)
        for cell, both in cells.items()
        for name, curves in zip("AB", both, strict=True)
    ]
    rounds = {"metric": "val/accuracy", "take": "rounds", "target": 0.5, "below": 9}

    def texts(statistic, of, than=None, **keys):
        made = claim(statistic, of=of, than=than, **rounds, **keys)
        return [finding.text for finding in judge("c", made, evidence(*parts)).findings]

    p, q = {"where": {"e": "p"}}, {"where": {"e": "q"}}
    assert texts("ratio", "A", "B", **p)[0].startswith("≤ 0.1818 [")  # of 1 / 11 and 3 / 11
    assert texts("ratio", "B", "A", **p)[0].startswith("≥ 7.333 [")
    assert texts("difference", "B", "A", **p)[0].startswith("≥ 9 [")
    assert texts("level", "B", **p) == ["≥ 11 (the same on every seed: no interval)"]
    assert texts("ratio", "A", "B", **q)[0].startswith("0.6667 [")
    assert texts("level", "A", **p)[0].startswith("2 [")
    assert texts("smallest_step", "B", along="e", labels=["q", "p"])[0].startswith("≥ 8 (")
    mixed = [series("A", [run(1, curve=never), run(2, curve=late)])]
    mixed += [series("B", [run(1, curve=late), run(2, curve=never)])]
    (found,) = judge("c", claim("ratio", than="B", **rounds), evidence(*mixed)).findings
    assert found.text.startswith("≶ 1.97 [")


def test_whole_rounds_that_coincide_show_nothing():
    a = [run(i, curve=(0.1, 0.6)) for i in (1, 2)]
    b = [run(i, curve=(0.1, 0.1, 0.6)) for i in (1, 2)]
    made = claim("ratio", than="B", metric="val/accuracy", take="rounds", target=0.5, below=1)
    assert judge("c", made, evidence(series("A", a), series("B", b))).verdict == NOT_SHOWN


@pytest.mark.parametrize(("coverage", "verdict"), [((1.0, 1.0), SHOWN), ((0.9, 0.9), OPPOSITE)])
def test_a_claim_that_a_number_is_exactly_so_is_about_every_run(coverage, verdict):
    runs = [run(i) for i in (1, 2)]
    for one, share in zip(runs, coverage, strict=True):
        one.participation["coverage"] = share
    made = claim(metric="participation/coverage", above=1, below=1)
    assert judge("c", made, evidence(series("A", runs))).verdict == verdict


def test_that_every_run_diverged_is_no_coincidence():
    runs = [run(i, status="diverged") for i in (1, 2)]
    assert judge("c", claim(below=0.5), evidence(series("A", runs))).verdict == SHOWN
    both = evidence(series("A", runs), series("B", runs))
    made = claim("difference", than="B", above=0)  # neither is better for it
    assert judge("c", made, both).verdict == NOT_SHOWN


def test_a_number_alone_is_its_own_interval():
    exact = claim("computed", of="wrong numbers", above=0, below=0)
    assert judge_computed("c", exact, [0.0]).verdict == SHOWN
    assert judge_computed("c", exact, [1.0]).verdict == OPPOSITE
    assert judge_computed("c", exact, [0.0]).findings[0].text == "0"
    assert judge_computed("c", exact, []).verdict == NOT_SHOWN
