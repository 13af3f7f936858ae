import gc
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fltune.federation.client_state import LARGE, ClientState

TEMPLATE = {"c": torch.tensor([1.0, 2.0]), "last": torch.tensor(-1)}


def ids(*clients):
    return torch.tensor(clients, dtype=torch.int64)


@pytest.fixture(params=[LARGE, 100, 0], ids=["memory", "both", "files"])
def state(request):
    """One in memory, one that goes on in files after some rows, one in files alone."""
    return ClientState(TEMPLATE, num_clients=1000, in_memory=request.param)


def test_a_client_never_seen_has_the_template(state):
    rows = state.gather(ids(3, 999))
    assert rows["c"].tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert rows["last"].tolist() == [-1, -1]
    assert rows["last"].dtype == torch.int64
    assert state.seen == 0


def test_rows_come_back_by_client_whatever_the_order(state):
    state.scatter(ids(7, 2), {"c": torch.tensor([[7.0, 7], [2, 2]]), "last": ids(7, 2)})
    state.scatter(ids(2, 500), {"c": torch.tensor([[22.0, 22], [5, 5]]), "last": ids(22, 5)})
    rows = state.gather(ids(500, 2, 3, 7))
    assert rows["c"][:, 0].tolist() == [5, 22, 1, 7]
    assert rows["last"].tolist() == [5, 22, -1, 7]
    assert state.seen == 3


def test_gathered_rows_are_copies(state):
    state.scatter(ids(1), {"c": torch.tensor([[9.0, 9]]), "last": ids(0)})
    for client in (1, 2):
        state.gather(ids(client))["c"].zero_()
    assert state.gather(ids(1, 2))["c"].tolist() == [[9, 9], [1, 2]]


def test_other_clients_keep_their_rows_bit_for_bit(state):
    start = torch.rand(50, 2)
    state.scatter(torch.arange(50), {"c": start, "last": torch.zeros(50, dtype=torch.int64)})
    active = torch.arange(0, 200, 3)
    state.scatter(active, {"c": torch.rand(len(active), 2), "last": active})
    inactive = torch.tensor([i for i in range(50) if i % 3])
    assert torch.equal(state.gather(inactive)["c"], start[inactive])
    assert state.seen == len(set(range(50)) | set(active.tolist()))


def test_memory_grows_with_the_clients_seen_only(state):
    for i in range(0, 100, 10):
        cohort = torch.arange(i, i + 10)
        state.scatter(cohort, {"c": cohort.view(-1, 1).expand(-1, 2).float(), "last": cohort})
    assert sum(block.count for block in state._blocks) < 250
    assert state.gather(torch.arange(100))["last"].tolist() == list(range(100))


def test_there_is_no_room_for_more_clients_than_there_are():
    state = ClientState(TEMPLATE, num_clients=5)
    for clients in (ids(0, 1, 2), ids(3), ids(4)):
        state.scatter(clients, state.gather(clients))
    assert [block.count for block in state._blocks] == [3, 2]


def test_an_empty_cohort_and_no_state_at_all(state):
    state.scatter(ids(), {"c": torch.empty(0, 2), "last": ids()})
    assert state.seen == 0
    nothing = ClientState({}, 5)
    nothing.scatter(ids(1), {})
    assert nothing.gather(ids(1)) == {}


def test_restored_state_holds_rows_and_template(state):
    """The template is the first run's: a resumed run no longer has the initial model."""
    state.scatter(ids(7), {"c": torch.tensor([[7.0, 7]]), "last": ids(4)})
    later = {"c": torch.tensor([50.0, 50.0]), "last": torch.tensor(-1)}
    restored = ClientState(later, num_clients=1000)
    restored.load_state_dict(state.state_dict())
    assert restored.gather(ids(7, 8))["c"].tolist() == [[7, 7], [1, 2]]
    restored.scatter(ids(8), {"c": torch.tensor([[8.0, 8]]), "last": ids(5)})
    assert restored.gather(ids(7, 8))["last"].tolist() == [4, 5]
    assert state.seen == 1


@pytest.mark.parametrize("other", [ClientState(TEMPLATE, 999), ClientState({}, 1000)])
def test_a_checkpoint_of_another_run_is_refused(state, other):
    with pytest.raises(ValueError, match="the checkpoint holds"):
        state.load_state_dict(other.state_dict())


@pytest.mark.parametrize("in_memory", [2**60, 3000, 0], ids=["memory", "both", "files"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_in_files_are_those_in_memory_bit_for_bit(in_memory, dtype):
    """Odd shapes, scalars and truth values; a checkpoint taken and restored on the way."""
    random = torch.Generator().manual_seed(0)
    template = {
        "vector": torch.zeros(7, dtype=dtype),
        "matrix": torch.ones(2, 3, dtype=dtype),
        "round": torch.tensor(-1),
        "flag": torch.tensor(False),
    }
    state = ClientState(template, 60, in_memory=in_memory)
    truth = {k: v.expand(60, *v.shape).clone() for k, v in template.items()}
    for t in range(12):
        cohort = torch.randperm(60, generator=random)[:9]
        rows = state.gather(cohort)
        for name, value in truth.items():
            assert torch.equal(rows[name], value[cohort])
            assert rows[name].dtype == value.dtype
        rows["vector"] = torch.randn(9, 7, generator=random, dtype=dtype)
        rows["matrix"] = torch.randn(9, 2, 3, generator=random, dtype=dtype)
        rows["round"], rows["flag"] = torch.full((9,), t), ~rows["flag"]
        state.scatter(cohort, rows)
        for name, value in rows.items():
            truth[name][cohort] = value
        if t == 6:
            saved, state = state.state_dict(), ClientState(template, 60, in_memory=in_memory)
            state.load_state_dict(saved)
    everyone = state.gather(torch.arange(60))
    assert all(torch.equal(everyone[name], value) for name, value in truth.items())


def test_files_are_deleted_with_the_state():
    state = ClientState(TEMPLATE, 1000, in_memory=0)
    assert state._folder is None
    state.scatter(ids(1), {"c": torch.tensor([[9.0, 9]]), "last": ids(0)})
    folder = Path(state._folder.name)
    assert sorted(path.name for path in folder.iterdir()) == ["c-0", "last-0"]
    del state
    gc.collect()
    assert not folder.exists()


def test_growing_copies_nothing():
    state = ClientState(TEMPLATE, 1000)
    places = []
    for i in range(0, 200, 10):
        cohort = torch.arange(i, i + 10)
        state.scatter(cohort, {"c": torch.rand(10, 2), "last": cohort})
        places.append([block.rows("c").data_ptr() for block in state._blocks])
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(places))
    assert [block.count for block in state._blocks] == [10, 10, 20, 40, 80, 160]
