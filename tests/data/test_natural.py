import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from partitions import assert_clients, assert_disjoint, same

from fltune.data.natural import Natural
from fltune.errors import DataError

IDS = torch.tensor([7, 3, -1, 7, 12, 3, 7])
LABELS = torch.zeros(7, dtype=torch.int64)


def test_clients_are_the_ids_in_ascending_order():
    assignment = Natural().assign(LABELS, 3, 0, IDS)
    assert [c.tolist() for c in assignment.clients] == [[1, 5], [0, 3, 6], [4]]
    assert assignment.notes == ()


@given(st.lists(st.integers(-2, 30), min_size=1, max_size=80), st.integers(0, 9), st.data())
def test_fewer_clients_are_some_of_the_whole_ones(ids, seed, data):
    groups = torch.tensor(ids)
    whole = groups[groups >= 0].unique()
    if not len(whole):
        return
    wanted = data.draw(st.integers(1, len(whole)))
    assignment = Natural().assign(groups, wanted, seed, groups)
    assert_clients(assignment.clients, wanted, len(ids))
    assert_disjoint(assignment.clients)
    for indices in assignment.clients:
        (owner,) = groups[indices].unique()
        assert len(indices) == (groups == owner).sum()
    assert bool(assignment.notes) == (wanted < len(whole))


def test_which_ones_depends_on_the_seed_and_all_are_drawn_alike():
    groups = torch.arange(10)
    draws = [Natural()(groups, 3, seed, groups) for seed in range(1000)]
    assert same(draws[0], Natural()(groups, 3, 0, groups))
    chosen = torch.stack([torch.cat(d) for d in draws]).flatten().bincount(minlength=10)
    # 300 each, sd 14.5: five of them, ten clients, one false alarm in 170,000 seeds
    assert (chosen - 300).abs().max() < 73


def test_more_clients_than_there_are_is_an_error():
    with pytest.raises(DataError, match="4 clients are asked for; the data has 3 of its own"):
        Natural()(LABELS, 4, 0, IDS)


def test_data_without_clients_of_its_own_is_an_error():
    with pytest.raises(DataError, match=r"this one has none; .* \(kind: file\)"):
        Natural()(LABELS, 2, 0)
    with pytest.raises(DataError, match="this one has none"):
        Natural().known_clients(None, 7)
