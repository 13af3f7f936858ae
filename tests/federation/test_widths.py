"""Clients are cut where padding and groups together cost least."""

from itertools import combinations, pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.federation.batches import BatchPlan
from fltune.federation.widths import LEVELS, alike, cheapest_cuts

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=7)


def cost(widths, cuts, group):
    return sum((end - start) * widths[start] + group for start, end in pairwise(cuts))


@given(SIZES, st.floats(0.1, 100.0))
def test_no_cut_is_cheaper(sizes, group):
    widths = sorted(sizes, reverse=True)
    inner = range(1, len(widths))
    every = [c for k in range(len(widths)) for c in combinations(inner, k)]
    least = min(cost(widths, [0, *c, len(widths)], group) for c in every)
    found = cheapest_cuts(widths, group)
    assert (found[0], found[-1], found) == (0, len(widths), sorted(set(found)))
    assert abs(cost(widths, found, group) - least) < 1e-9


def test_of_many_clients_only_some_places_are_looked_at():
    found = cheapest_cuts(list(range(5000, 0, -1)), 1.0)
    assert len(found) == LEVELS + 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.floats(0.1, 100.0))
def test_each_client_is_in_one_group_that_is_wide_enough(sizes, group):
    count = torch.tensor([sizes])
    most = max(max(sizes), 1)
    plan = BatchPlan(
        torch.zeros(1, len(sizes), most, dtype=torch.int64), count, count[0].clamp(max=1)
    )
    order = torch.randperm(len(sizes))
    groups = alike(order, plan, group)
    place = order.argsort()
    found = [client for clients, _ in groups for client in clients.tolist()]
    assert sorted(found) == list(range(len(sizes)))
    for clients, width in groups:
        assert max(sizes[i] for i in clients.tolist()) <= width
        assert place[clients].tolist() == sorted(place[clients].tolist())  # in the order given
        if any(sizes):
            assert any(sizes[i] for i in clients.tolist())  # somebody works


def test_what_is_even_stays_together_in_its_order():
    plan = BatchPlan(
        torch.zeros(2, 3, 4, dtype=torch.int64), torch.full((2, 3), 4), torch.full((3,), 2)
    )
    order = torch.tensor([2, 0, 1])
    ((clients, width),) = alike(order, plan, 0.5)
    assert (clients.tolist(), width) == ([2, 0, 1], 4)
