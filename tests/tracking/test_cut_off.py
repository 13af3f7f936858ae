"""What a killed process leaves in the store is found again, completed, and never doubled."""

from __future__ import annotations

import uuid

import pytest

from fltune.tracking import SearchTree

pytestmark = pytest.mark.search

ROWS = [{"round": t, "val/accuracy": t / 10} for t in (1, 2, 3)]


@pytest.fixture
def name() -> str:
    return f"cut off {uuid.uuid4().hex[:6]}"


def test_a_run_has_all_its_tags_from_the_first_moment(store, name, monkeypatch):
    def killed(*args, **entries):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.client, "log_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        store.start_run("cut", params={"client.lr": 0.1}, tags={"fltune.search": name, "n": 3})
    (found,) = store.find({"fltune.search": name})
    assert (found.tags["n"], found.params) == ("3", {})


def test_a_method_run_cut_off_as_it_began_gets_its_params(store, name):
    with SearchTree(store, name, "") as tree:
        tags = {"mlflow.parentRunId": tree.run.id, "fltune.kind": "method", "fltune.method": "A"}
        cut = store.client.create_run(store.experiment_id, tags=tags).info.run_id
    with SearchTree(store, name, "", resume=True) as tree:
        assert tree.method("A", {"client.lr": 0.1, "rounds": 3}).run.id == cut
    assert store.get(cut).params == {"client.lr": "0.1", "rounds": "3"}


@pytest.mark.parametrize("whole_first", [True, False])
def test_of_a_run_that_was_made_twice_the_whole_one_stays(store, reader, name, whole_first):
    """A call is repeated where its answer was lost with the connection."""
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        tags = {"mlflow.parentRunId": branch.run.id, "fltune.key": "trial 0"}
        if not whole_first:
            store.client.create_run(store.experiment_id, tags=tags)
        whole = branch.trial(0, {}, ROWS, "complete")
        if whole_first:
            store.client.create_run(store.experiment_id, tags=tags)
    with SearchTree(store, name, "", resume=True) as tree:
        branch = tree.method("A", {})
        assert branch.trial(0, {}, ROWS, "complete") == whole
    assert branch.sent == 0
    assert reader.children(branch.run.id) == {whole}


def test_a_result_that_is_there_already_is_left(store, reader, name):
    def finish(rows):
        with SearchTree(store, name, "", resume=True) as tree:
            branch = tree.method("A", {"rounds": 3})
            branch.finish({"server.lr": 2.0}, rows, {"test/accuracy": 0.5})
            tree.finish()
        assert store.get(branch.run.id).status == "FINISHED"
        return branch.run.id

    first = finish(ROWS)
    assert finish(ROWS) == first
    assert reader.curve(first, "val/accuracy") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert finish(ROWS[:2]) != first
