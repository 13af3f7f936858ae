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
    """Counts, longest and mean absence, by the definitions."""
    last, absences = [-1] * CLIENTS, []
    for t, cohort in enumerate(cohorts):
        last = [t if i in cohort else a for i, a in enumerate(last)]
        absences.append(max(t - a for a in last))
    counts = [sum(c.count(i) for c in cohorts) for i in range(CLIENTS)]
    return counts, max(absences, default=0), np.mean(absences) if absences else 0.0


def said(turns):
    return turns.counts.tolist(), turns.tau_max, pytest.approx(turns.tau_avg)


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
