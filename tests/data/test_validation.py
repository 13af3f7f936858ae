"""Which samples are held out, of the pool and of every client, and who is on a panel."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data.validation import (
    check_growth,
    growing_panel,
    hold_out_of_each,
    panel,
    split_validation,
)
from fltune.errors import DataError


@settings(max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=200), st.floats(0.01, 0.99), st.data())
def test_validation_is_stratified_and_disjoint(labels, fraction, data):
    count = round(fraction * len(labels))
    y = torch.tensor(labels)
    if not 0 < count < len(labels):
        with pytest.raises(DataError, match="each needs at least one"):
            split_validation(y, fraction, 0)
        return
    kept, held_out = split_validation(y, fraction, data.draw(st.integers(0, 1000)))
    assert len(held_out) == count
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(len(y)))
    quota = y.bincount() * count / len(labels)
    assert (y[held_out].bincount(minlength=len(quota)) - quota).abs().max() < 1


@settings(max_examples=100)
@given(st.lists(st.integers(-1, 9), min_size=2, max_size=200), st.floats(0.01, 0.99), st.data())
def test_validation_by_client_takes_a_share_of_each_but_never_its_last_sample(ids, fraction, data):
    clients = torch.tensor(ids)
    owned = clients[clients >= 0]
    sizes = owned.bincount(minlength=10)
    count = round(fraction * len(owned))
    y = torch.zeros(len(ids), dtype=torch.int64)
    if count == 0 or not (sizes > 1).any():
        with pytest.raises(DataError, match="each needs at least one"):
            split_validation(y, fraction, 0, clients)
        return
    kept, held_out = split_validation(y, fraction, data.draw(st.integers(0, 1000)), clients)
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(len(ids)))
    given = clients[held_out].bincount(minlength=10)
    assert (given < sizes)[sizes > 0].all()
    quota = sizes * count / len(owned)
    assert ((given - quota).abs() <= 1)[sizes - 1 > quota].all()
    assert len(held_out) <= count
    if (sizes - 1 >= quota.ceil())[sizes > 0].all():  # nobody is too small to give its share
        assert len(held_out) == count


def test_no_class_gives_more_because_it_comes_first():
    """Ten classes of one sample each give five; in 60 draws each gives and each keeps."""
    times = torch.zeros(10)
    for seed in range(60):
        times[split_validation(torch.arange(10), 0.5, seed)[1]] += 1
    assert times.sum() == 300
    assert ((times > 0) & (times < 60)).all()


def test_validation_by_client_keeps_what_belongs_to_nobody():
    clients = torch.tensor([-1] * 5 + [3] * 10 + [7] * 10)
    kept, held_out = split_validation(torch.zeros(25), 0.2, 0, clients)
    assert clients[held_out].bincount(minlength=8)[[3, 7]].tolist() == [2, 2]
    assert kept[:5].tolist() == [0, 1, 2, 3, 4]


def test_validation_depends_on_its_seed_alone():
    y = torch.tensor([0, 1] * 50)
    torch.manual_seed(1)
    first = split_validation(y, 0.2, seed=5)[1]
    torch.manual_seed(2)
    assert torch.equal(first, split_validation(y, 0.2, seed=5)[1])
    assert not torch.equal(first, split_validation(y, 0.2, seed=6)[1])


def test_validation_of_a_regression():
    kept, held_out = split_validation(torch.zeros(10, 1), 0.3, 0)
    assert (len(kept), len(held_out)) == (7, 3)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_validation_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match=r"must be in \(0, 1\)"):
        split_validation(torch.tensor([0, 1]), fraction, 0)


def dealt(sizes, seed=0):
    mixed = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in mixed.split(sizes)]


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.floats(0.01, 0.99),
    st.integers(0, 1000),
)
def test_every_client_of_two_samples_holds_out_one_and_keeps_one(sizes, fraction, seed):
    clients = dealt(sizes)
    if max(sizes) == 1:
        with pytest.raises(DataError, match="has two samples, one to train and one to validate"):
            hold_out_of_each(clients, fraction, seed)
        return
    kept, held_out = hold_out_of_each(clients, fraction, seed)
    for own, a, b in zip(clients, kept, held_out, strict=True):
        assert torch.equal(torch.cat([a, b]).sort().values, own)
        assert torch.equal(a, a.sort().values)
        assert torch.equal(b, b.sort().values)
        if len(own) > 1:
            assert len(b) == min(max(round(fraction * len(own)), 1), len(own) - 1)
        else:
            assert len(b) == 0


def test_every_sample_of_a_client_is_held_out_as_often():
    # 500 seeds, 3 of 12 each: a sample's share is off 1/4 by 0.1 with p < 5e-4 / 12 (Hoeffding)
    clients = dealt([12, 5])
    drawn = torch.cat([hold_out_of_each(clients, 0.25, seed)[1][0] for seed in range(500)])
    shares = drawn.bincount(minlength=17)[clients[0]] / 500
    assert (shares - 0.25).abs().max() < 0.1


@settings(max_examples=50)
@given(st.sets(st.integers(0, 500), min_size=1, max_size=40), st.integers(0, 1000), st.data())
def test_panels_are_nested_and_do_not_mind_who_else_is_there(clients, seed, data):
    owner = torch.tensor(sorted(clients)).repeat(2)
    panels = [set(panel(owner, k, seed).tolist()) for k in range(1, len(clients) + 1)]
    assert [len(p) for p in panels] == [*range(1, len(clients) + 1)]
    assert all(a < b for a, b in pairwise(panels))
    assert panels[-1] == clients
    gone = data.draw(st.sampled_from(sorted(clients)))
    for k, before in enumerate(panels[:-1], start=1):
        if gone not in before:
            assert set(panel(owner[owner != gone], k, seed).tolist()) == before


def test_every_client_is_on_a_panel_as_often():
    # 2000 seeds, 5 of 20: a client's share is off 1/4 by 0.05 with p < 20 * 1e-4 (Hoeffding)
    owner = torch.arange(20)
    drawn = torch.cat([panel(owner, 5, seed) for seed in range(2000)])
    assert (drawn.bincount(minlength=20) / 2000 - 0.25).abs().max() < 0.05


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=80),
    st.sets(st.integers(1, 60), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 1000),
)
def test_the_first_samples_of_a_growing_panel_are_those_of_the_fixed_ones(ids, counts, all_, seed):
    owner = torch.tensor(ids)
    there = len(owner.unique())
    stages = [min(min(counts), there), *(k for k in sorted(counts)[1:] if k > there or k > 1)]
    stages = sorted(set(stages))
    growth = {1 + 10 * i: k for i, k in enumerate(stages)} | ({100: None} if all_ else {})
    order, samples = growing_panel(owner, growth, seed)
    assert [first for first, _ in samples] == list(growth)
    assert len(order.unique()) == len(order) == samples[-1][1]
    for (_, count), k in zip(samples, growth.values(), strict=True):
        asked = panel(owner, there if k is None else min(k, there), seed)
        mine = torch.isin(owner, asked).nonzero()[:, 0]
        assert torch.equal(order[:count].sort().values, mine)


def test_a_growing_panel_starts_with_clients_that_there_are():
    with pytest.raises(DataError, match="a panel of 3 clients is asked for; 2 hold validation"):
        growing_panel(torch.tensor([4, 4, 7]), {1: 3, 5: None}, 0)


@pytest.mark.parametrize(
    ("growth", "problem"),
    [
        ({}, "a panel that is empty; must start at round 1, such as {1: 5, 31: 15}"),
        ({2: 5}, "a panel that starts at round 2; must start at round 1"),
        ({1: 5, 9: 5}, "5 clients from round 9 on, after 5 from round 1 on; must be more"),
        ({9: 4, 1: 5}, "4 clients from round 9 on, after 5 from round 1 on; must be more"),
        ({1: None, 9: 5}, "5 clients from round 9 on, after all from round 1 on; must be more"),
        ({1: None, 9: None}, "all clients from round 9 on, after all from round 1 on"),
    ],
    ids=str,
)
def test_a_panel_that_does_not_grow_is_refused(growth, problem):
    with pytest.raises(ValueError, match=problem.replace("{", r"\{")):
        check_growth(growth)
