"""Shares in the aggregation of cohorts that are planned together are those of each alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quadratics import A, B, quadratics

from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.cohort import shares
from fltune.participation.trace import Trace

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


def test_a_client_that_comes_twice_has_other_batches_each_time():
    """24 samples in two batches: two orders are alike once in a million."""
    pattern = Trace([[1, 1, 2]], repeats=True).bind(3, 0)
    sgd = LocalSGD(epochs=1, batch_size=12)
    source = FederatedDataModule(quadratics(A, B, [1, 24, 24]), pattern, sgd, 0, torch.float64)
    cohort = source.cohort(0, [1, 1, 2])
    assert len(set(cohort.keys.tolist())) == 3
    first, second, _ = (batch.sort().values for batch in cohort.plan.index[0])
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("sgd", "steps"),
    [
        (LocalSGD(epochs=2, batch_size=12), 2 * (1 + 2 + 3) / 3),
        (LocalSGD(epochs=2, batch_size=None), 2.0),
        (LocalSGD(steps=5, batch_size=12), 5.0),
    ],
)
def test_the_nominal_steps_are_the_mean_over_all_clients(sgd, steps):
    data = quadratics(A, B, [1, 24, 25])
    source = FederatedDataModule(data, Trace([[0]]).bind(3, 0), sgd, 0, torch.float64)
    assert source.cohort(0, [0]).nominal_steps == pytest.approx(steps)
