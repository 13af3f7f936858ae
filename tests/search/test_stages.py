import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.dimension import Dimension
from fltune.search.stages import (
    Drops,
    Lengths,
    PerStage,
    SolvedBetas,
    equal_ends,
    free_ends,
    parse_stages,
    shares_of,
)
from fltune.server.multistage import MultistageFedGM

VALUES = {"s.stages": 3, "s.lr": 2.0, "s.lrs": None, "rounds": 30}


def look(**changes):
    values = {**VALUES, **{k.replace("_", "."): v for k, v in changes.items()}}
    return values.__getitem__


@given(data=st.data(), stages=st.integers(1, 8))
def test_ends_increase_to_the_last_round_whatever_is_drawn(data, stages):
    rounds = data.draw(st.integers(stages, 3000))
    shares = data.draw(st.lists(st.floats(0, 1), min_size=stages - 1, max_size=stages - 1))
    ends = free_ends(shares, rounds)
    assert len(ends) == stages
    assert sorted({0, *ends}) == [0, *ends]
    assert ends[-1] == rounds
    assert free_ends(shares_of(ends, rounds), rounds) == ends  # and every list can be drawn
    server = MultistageFedGM(lrs=[0.5**s for s in range(stages)], stage_ends=ends)
    server.prepare(rounds)


def test_every_list_of_ends_is_equally_likely():
    """Exactly: over all cells of a fine lattice of shares each of the 36 lists has its share.

    The first length's quantiles change at multiples of 1/36, the second's at multiples of 1/k with
    k <= 8, which divides 840: the mid-points of 36 x 840 cells never meet a border.
    """
    first, second = 36, 840
    counts: dict[tuple[int, ...], float] = {}
    for i, j in itertools.product(range(first), range(second)):
        ends = tuple(free_ends([(i + 0.5) / first, (j + 0.5) / second], 10))
        counts[ends] = counts.get(ends, 0.0) + 1 / (first * second)
    assert len(counts) == math.comb(9, 2)
    assert all(p == pytest.approx(1 / 36, rel=1e-9) for p in counts.values())


def test_long_runs_are_uniform_on_the_simplex():
    """Means 1/S, and P(the first stage is longer than half the run) = (1/2)^(S-1) = 1/8.

    4,000 draws: the false alarm bound of four standard errors is 7e-5 per assertion.
    """
    random.seed(0)
    n, stages, rounds = 4000, 4, 1000
    draws = [free_ends([random.random() for _ in range(stages - 1)], rounds) for _ in range(n)]
    lengths = [[b - a for a, b in itertools.pairwise([0, *ends])] for ends in draws]
    for s in range(stages):
        mean = sum(row[s] for row in lengths) / n / rounds
        assert abs(mean - 1 / stages) < 4 * math.sqrt(3 / 80 / n)  # Var of a Dirichlet(1) share
        longer = sum(row[s] > rounds / 2 for row in lengths) / n
        assert abs(longer - 1 / 8) < 4 * math.sqrt(7 / 64 / n)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.floats(0, 1))
def test_a_larger_share_is_a_longer_stage(shares, other):
    low, high = sorted((shares[0], other))
    shorter, longer = free_ends([low, *shares[1:]], 200), free_ends([high, *shares[1:]], 200)
    assert shorter[0] <= longer[0]


def test_equal_lengths_are_rounded_half_up():
    assert equal_ends(4, 10) == [3, 5, 8, 10]
    assert equal_ends(1, 7) == [7]
    assert equal_ends(3, 3) == [1, 2, 3]


@pytest.mark.parametrize("make", [lambda: free_ends([0.5] * 4, 4), lambda: equal_ends(5, 4)])
def test_more_stages_than_rounds_are_refused(make):
    with pytest.raises(ValueError, match="5 stages need as many rounds; there are 4"):
        make()


def test_a_share_outside_is_refused():
    with pytest.raises(ValueError, match=r"found 1.5; a share lies in \[0, 1\]"):
        free_ends([1.5], 10)


@pytest.mark.parametrize(
    ("name", "raw", "drawn", "value"),
    [
        ("s.stage_ends", "free", {"s.stage_ends.1": 0.5, "s.stage_ends.2": 0.5}, [9, 19, 30]),
        ("s.stage_ends", "equal", {}, [10, 20, 30]),
        ("s.stage_ends", "w2", {}, None),
        ("s.betas", "w1", {}, None),
        ("s.lrs", {"drop": {"choice": [0.5, 0.25]}}, {"s.lrs.1": 0.5, "s.lrs.2": 0.25}, None),
        ("s.nus", {"choice": [0.5, 0.9]}, {f"s.nus.{s}": 0.5 for s in (1, 2, 3)}, [0.5] * 3),
    ],
)
def test_entries_of_three_stages(name, raw, drawn, value):
    entry = parse_stages(name, raw)
    assert list(entry.draws(name, look())) == list(drawn)
    expected = [2.0, 1.0, 0.25] if isinstance(entry, Drops) else value
    assert entry.value(name, drawn, look()) == expected
    assert parse_stages(name, entry.to_yaml()["stages"]) == entry


def test_as_many_stages_as_rates_are_listed():
    entry = PerStage("s", Dimension.parse({"uniform": [0, 1]}))
    assert len(entry.draws("s.betas", look(s_lrs=[2.0, 1.0]))) == 2
    drops = Drops("s", Dimension.parse({"choice": [0.5]}))
    assert list(drops.draws("s.lrs", look(s_lrs=[9.0]))) == ["s.lrs.1", "s.lrs.2"]  # its own list


@pytest.mark.parametrize("ends", [[10, 30], [10, 10, 30], [0, 10, 30], [10, 20, 29], [1.5, 2, 30]])
def test_ends_that_do_not_fit_the_run_are_refused(ends):
    with pytest.raises(ValueError, match=r"found .*belong there|the last stage ends with the run"):
        Lengths("s", "free").split("s.stage_ends", ends, look())


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("rounds", "free", "found stages: 'free'; it belongs to a list of the server's stages"),
        ("s.betas", "free", "found stages: free; that belongs to s.stage_ends"),
        ("s.stage_ends", "w1", "found stages: w1; that belongs to s.betas"),
        ("s.stage_ends", "eqal", "found stages: 'eqal'; write free, .*; did you mean 'equal'"),
        ("s.betas", {"drop": {"choice": [0.5]}}, "drops belong to s.lrs"),
        ("s.lrs", {"drop": {"choice": [0.5, 2]}}, r"found drop: .*; drops lie in \(0, 1\]"),
        ("s.lrs", {"drop": {"uniform": [0, 1]}}, r"drops lie in \(0, 1\]"),
        ("s.lrs", {"uniform": [0, 1]}, "found stages: .*; write free, equal or w2"),
        ("s.betas", {"unifrm": [0, 1]}, "unknown kind 'unifrm'; .*did you mean 'uniform'"),
        ("s.betas", 3, "found 3; write one of"),
    ],
)
def test_a_wrong_entry_says_what_is_allowed(name, raw, message):
    with pytest.raises(ValueError, match=message):
        parse_stages(name, raw)


@pytest.mark.parametrize(
    ("stages", "message"), [(2.5, "is 2.5; a whole"), ("x", "is 'x'; a whole")]
)
def test_a_number_of_stages_that_is_none_is_refused(stages, message):
    with pytest.raises(ValueError, match=f"s.stages {message}"):
        PerStage("s", Dimension.parse({"choice": [1]})).draws("s.nus", look(s_stages=stages))


def test_w1_and_w2_leave_the_lists_to_the_server():
    assert SolvedBetas().value("s.betas", {}, look()) is None
    server = MultistageFedGM(betas=None, stage_ends=None)
    server.prepare(1000)
    assert server.ends == [143, 429, 1000]
