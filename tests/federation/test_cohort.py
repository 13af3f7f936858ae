"""Shares in the aggregation of cohorts that are planned together are those of each alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.federation.cohort import shares

CLIENT = st.tuples(st.integers(1, 5), st.integers(1, 10**6))
COHORTS = st.lists(st.lists(CLIENT, max_size=6), min_size=1, max_size=4)


@given(COHORTS)
def test_shares_of_a_cohort_are_its_own(cohorts):
    times = torch.tensor([t for cohort in cohorts for t, _ in cohort], dtype=torch.int64)
    sizes = torch.tensor([n for cohort in cohorts for _, n in cohort], dtype=torch.int64)
    counts = [len(cohort) for cohort in cohorts]
    found = shares(times, sizes, counts)
    assert found.dtype == torch.float64
    for cohort, own in zip(cohorts, found.split(counts, 1), strict=True):
        draws, samples = sum(t for t, _ in cohort), sum(t * n for t, n in cohort)
        assert own.tolist() == [
            [t / draws for t, _ in cohort],
            [t * n / samples for t, n in cohort],
        ]
