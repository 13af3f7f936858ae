"""Turns are the same numbers, whenever somebody asks for them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.participation.turns import AT_ONCE, Turns

CLIENTS = 6
ROUND = st.tuples(st.lists(st.integers(0, CLIENTS - 1), max_size=8), st.booleans())


def expected(cohorts):
    """Counts, longest and mean absence, and how even the counts are, by the definitions."""
    last, absences = [-1] * CLIENTS, []
    for t, cohort in enumerate(cohorts):
        last = [t if i in cohort else a for i, a in enumerate(last)]
        absences.append(max(t - a for a in last))
    counts = [sum(c.count(i) for c in cohorts) for i in range(CLIENTS)]
    mean = np.mean(counts) or 1.0
    even = np.mean([c > 0 for c in counts]), np.abs(counts - np.mean(counts)).max() / mean
    average = np.mean(absences) if absences else 0.0
    return counts, max(absences, default=0), average, (*even, np.std(counts) / mean)


def said(turns):
    even = turns.coverage, turns.fairness, turns.count_cv
    return turns.counts.tolist(), turns.tau_max, pytest.approx(turns.tau_avg), pytest.approx(even)


@given(st.lists(ROUND, max_size=3 * AT_ONCE))
def test_turns_are_counted_whenever_they_are_asked_for(rounds):
    turns, cohorts = Turns(CLIENTS), []
    for cohort, ask in rounds:
        cohorts.append(cohort)
        turns.add(torch.tensor(cohort, dtype=torch.int64))
        if ask:
            assert expected(cohorts) == said(turns)
    assert expected(cohorts) == said(turns)


@given(st.lists(ROUND, max_size=2 * AT_ONCE), st.data())
def test_turns_go_on_from_where_they_were_saved(rounds, data):
    cohorts = [cohort for cohort, _ in rounds]
    cut = data.draw(st.integers(0, len(cohorts)))
    first, second = Turns(CLIENTS), Turns(CLIENTS)
    for cohort in cohorts[:cut]:
        first.add(torch.tensor(cohort, dtype=torch.int64))
    second.add(torch.tensor([0]))  # what was before is forgotten
    second.load_state_dict(first.state_dict(), cut)
    for cohort in cohorts[cut:]:
        second.add(torch.tensor(cohort, dtype=torch.int64))
    assert expected(cohorts) == said(second)
    assert expected(cohorts[:cut]) == said(first)
