from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.participation.groups import Groups
from fltune.participation.trace import record
from fltune.participation.uniform import Uniform


@settings(max_examples=40)
@given(st.integers(1, 30), st.data())
def test_groups_are_even_and_everybody_has_one(n, data):
    groups = data.draw(st.integers(1, n))
    formation = data.draw(st.sampled_from(["shuffled", "contiguous"]))
    members = Groups(groups, 1, formation).bind(n, 3).members
    assert torch.cat(members).sort().values.tolist() == list(range(n))
    sizes = [len(group) for group in members]
    assert (len(sizes), max(sizes) - min(sizes)) in {(groups, 0), (groups, 1)}


@settings(max_examples=40)
@given(st.integers(1, 30), st.data())
def test_a_client_is_away_for_a_cycle(n, data):
    groups = data.draw(st.integers(1, n))
    per_round = data.draw(st.integers(1, n // groups))
    pattern = Groups(groups, per_round).bind(n, data.draw(st.integers(0, 99)))
    cohorts = record(pattern, 4 * groups)
    for t, cohort in enumerate(cohorts):
        assert len(cohort) == per_round
        assert set(cohort) <= set(pattern.members[t % groups].tolist())
    for i in range(n):
        visits = [t for t, cohort in enumerate(cohorts) if i in cohort]
        assert all(b - a >= groups for a, b in pairwise(visits))


def test_a_cycle_of_whole_groups_visits_everybody_once():
    cohorts = record(Groups(4, 3).bind(12, 0), 8)
    assert sorted(i for cohort in cohorts[:4] for i in cohort) == list(range(12))
    assert cohorts[4:] == cohorts[:4]  # the order of the groups is fixed for the whole run


def test_one_group_is_uniform_sampling():
    one = Groups(1, 4, "contiguous").bind(11, 5)
    assert record(one, 20) == record(Uniform(4).bind(11, 5), 20)


def test_groups_depend_on_the_seed_and_nothing_else():
    one, again, other = (Groups(3, 2).bind(12, seed) for seed in (0, 0, 1))
    record(one, 5)
    assert [g.tolist() for g in one.members] == [g.tolist() for g in again.members]
    assert [g.tolist() for g in one.members] != [g.tolist() for g in other.members]
    contiguous = Groups(3, 2, "contiguous").bind(8, 0)
    assert [g.tolist() for g in contiguous.members] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_clients_are_sorted_by_majority_label():
    """Labels 2, 0, 1, 0 (a tie: the lower), 2, 0; ties of clients by id."""
    held = torch.tensor([[0, 1, 5], [3, 0, 0], [1, 4, 2], [2, 0, 2], [0, 0, 1], [9, 8, 7]])
    pattern = Groups(3, 1, "sorted_by_label").bind(6, 0, held)
    assert [g.tolist() for g in pattern.members] == [[1, 3], [5, 2], [0, 4]]


def test_every_client_of_a_group_is_drawn_equally_often():
    """Binomial(1000, 1/2) for each of 12 clients; five standard deviations are 79."""
    pattern = Groups(3, 2).bind(12, 0)
    record(pattern, 3000)
    assert float((pattern.turns.counts - 500).abs().max()) < 79


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (Groups(groups=6, per_round=1), "groups = 6 is more than the 5 clients there are"),
        (
            Groups(groups=2, per_round=3),
            "per_round = 3 is more than the 2 clients of the smallest of 2 groups of 5 clients",
        ),
        (Groups(2, 2, "sorted_by_label"), "needs classes, and the data has none"),
    ],
)
def test_groups_that_do_not_fit_are_refused(pattern, message):
    with pytest.raises(ValueError, match=message):
        pattern.bind(5, 0)
