import itertools

import optuna
import pytest
from areas import hypervolume
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import create_trial

from fltune.search.front import pareto_front

PAIR = st.tuples(st.integers(0, 6), st.integers(0, 6))
DIRECTIONS = st.tuples(*[st.sampled_from(["maximize", "minimize"])] * 2)


def test_the_front_of_accuracy_and_bits():
    scores = [(0.9, 100), (0.8, 50), (0.85, 120), (0.7, 50), (0.9, 100), (0.95, 300)]
    directions = ("maximize", "minimize")
    assert pareto_front(scores, directions) == [0, 1, 4, 5]
    assert pareto_front([], directions) == []
    assert pareto_front([(0.3,), (0.5,), (0.5,)], ["maximize"]) == [1, 2]


@given(scores=st.lists(PAIR, min_size=1, max_size=12), directions=DIRECTIONS)
def test_the_front_is_optunas(scores, directions):
    study = optuna.create_study(directions=directions)
    study.add_trials([create_trial(values=[float(s) for s in own]) for own in scores])
    best = sorted(t.number for t in study.best_trials)
    assert pareto_front(scores, directions) == best


@given(scores=st.lists(PAIR, max_size=8), directions=DIRECTIONS, reference=PAIR)
def test_the_hypervolume_counts_what_some_trial_beats(scores, directions, reference):
    signs = [-1 if d == "maximize" else 1 for d in directions]
    losses = [[s * v for s, v in zip(signs, own, strict=True)] for own in scores]
    limit = [s * v for s, v in zip(signs, reference, strict=True)]
    # unit squares by their lower left corners
    corners = itertools.product(range(-7, 8), repeat=2)
    area = sum(
        any(own[0] <= a and own[1] <= b for own in losses) and a < limit[0] and b < limit[1]
        for a, b in corners
    )
    assert hypervolume(scores, directions, reference) == area


@given(scores=st.lists(PAIR, min_size=1, max_size=8), directions=DIRECTIONS, reference=PAIR)
def test_the_front_has_the_whole_volume(scores, directions, reference):
    front = [scores[i] for i in pareto_front(scores, directions)]
    whole = hypervolume(scores, directions, reference)
    assert hypervolume(front, directions, reference) == whole


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"found scores \[1, 2, 3\]; there are 2 objectives"):
        pareto_front([(1, 2, 3)], ["maximize", "minimize"])
    with pytest.raises(ValueError, match="found direction 'max'; must be maximize or minimize"):
        pareto_front([(1,)], ["max"])
