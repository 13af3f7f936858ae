"""The tree of a search: who is whose child, what a method run shows, and going on after a stop."""

from __future__ import annotations

import json
import uuid

import pytest

from fltune.tracking import SearchTree, View

pytestmark = pytest.mark.search

ROWS = [{"round": t, "val/accuracy": t / 10, "train/loss": 1 / t} for t in (1, 2, 3)]
VALUES = {"server.lr": 2.0, "server.beta": 0.123456}


@pytest.fixture
def name() -> str:
    """A search name of its own, since the tests share one experiment."""
    return f"digits {uuid.uuid4().hex[:6]}"


def test_search_methods_and_trials_are_nested(store, reader, name):
    with SearchTree(store, name, "rounds: 3\n", {"owner": "me"}) as tree:
        branch = tree.method("FedGM", {"algorithm.name": "fedavg"})
        trial = branch.trial(
            12, VALUES, ROWS, "pruned", "below the median", config_yaml="seed: 1\n"
        )
        seed = branch.confirmation(7, VALUES, ROWS, {"test/accuracy": 0.4})
        branch.finish(VALUES, ROWS, {})
        tree.finish("# Result")
    assert reader.parent(tree.run.id) is None
    assert reader.parent(branch.run.id) == tree.run.id
    assert reader.children(branch.run.id) == {trial, seed}
    assert reader.artifact(tree.run.id, "search.yaml") == "rounds: 3\n"
    assert reader.artifact(trial, "experiment.yaml") == "seed: 1\n"
    search = store.get(tree.run.id).tags
    assert (search["fltune.kind"], search["owner"]) == ("search", "me")
    assert search["mlflow.note.content"] == "# Result"
    found = store.get(trial)
    assert found.tags["mlflow.runName"] == "FedGM #12 server.lr=2 server.beta=0.1235"
    assert found.tags["fltune.kind"] == "trial"
    assert found.tags["fltune.method"] == "FedGM"
    assert found.tags["fltune.status"] == "pruned"
    assert found.tags["fltune.stop_reason"] == "below the median"
    assert found.params == {"server.lr": "2.0", "server.beta": "0.123456"}
    assert store.get(seed).tags["fltune.kind"] == "confirmation"
    assert {store.get(run).status for run in (tree.run.id, branch.run.id, trial)} == {"FINISHED"}


def test_views_are_linked_and_those_of_the_newest_search_are_in_the_list(store, name):
    keys = {}
    for search in (f"{name} older", f"{name} newer"):
        view = View("best", "the best", {"fltune.search": search}, "score", False, ("score",))
        with SearchTree(store, search, "") as tree:
            tree.finish("A is best.\n\nThe table.", views=[view])
        keys[search] = f"{tree.run.id}-best"
        link = f"#/experiments/{store.experiment_id}/runs?viewStateShareKey={keys[search]}"
        first, links, rest = store.get(tree.run.id).tags["mlflow.note.content"].split("\n\n")
        assert (first, rest) == ("A is best.", "The table.")
        assert links == f"In the table of runs: [the best]({link})."
    tags = store.client.get_experiment(store.experiment_id).tags
    for search, key in keys.items():
        state = json.loads(tags[f"mlflow.sharedViewState.{key}"])
        assert state["searchFilter"] == f"tags.`fltune.search` = '{search}'"
    saved = json.loads(tags["mlflow.sharedViewState.fltune-best"])
    assert saved["name"] == f"{name} newer: the best"
    assert f"'{name} newer'" in json.loads(saved["state"])["searchFilter"]


def test_trial_curve_ends_in_its_summary(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        summary = {"val/accuracy": 0.25, "comm/up_bits": 64, "strategy": "stacked"}
        trial = branch.trial(0, {}, ROWS, "complete", summary=summary)
        empty = branch.trial(1, {}, [], "failed", summary={"seconds": 2.0})
    assert reader.curve(trial, "val/accuracy") == [(1, 0.1), (2, 0.2), (3, 0.25)]
    assert reader.curve(trial, "comm/up_bits") == [(3, 64.0)]
    assert reader.curve(empty, "seconds") == [(0, 2.0)]


@pytest.mark.parametrize(
    ("status", "shown"), [("complete", "FINISHED"), ("diverged", "FAILED"), ("failed", "FAILED")]
)
def test_status_of_a_trial(store, name, status, shown):
    with SearchTree(store, name, "") as tree:
        trial = tree.method("A", {}).trial(0, {}, ROWS, status)
    assert store.get(trial).status == shown
    assert store.get(trial).tags["fltune.status"] == status


def test_unknown_status_is_refused(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        with pytest.raises(ValueError, match="allowed complete, pruned, diverged, failed"):
            branch.trial(0, {}, ROWS, "done")
        assert reader.children(branch.run.id) == set()


def test_method_run_carries_what_is_compared(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("FedGM", {"algorithm.name": "fedavg"})
        accuracy = {"mean": 0.9, "std": 0.01, "low": 0.88, "high": 0.92}
        branch.finish(VALUES, ROWS, {"test/accuracy": accuracy, "test/loss": 0.3})
        tree.finish()
    data = store.client.get_run(branch.run.id).data
    assert data.params == {
        "algorithm.name": "fedavg",
        "server.lr": "2.0",
        "server.beta": "0.123456",
    }
    assert data.metrics["test/accuracy"] == 0.9
    assert data.metrics["test/accuracy_std"] == 0.01
    assert (data.metrics["test/accuracy_low"], data.metrics["test/accuracy_high"]) == (0.88, 0.92)
    assert data.metrics["test/loss"] == 0.3
    assert reader.curve(branch.run.id, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


def test_winner_replaces_a_fixed_value(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {"server.lr": 1.0, "rounds": 3})
        branch.finish({"server.lr": 5.0}, ROWS, {})
        tree.finish()
    assert store.get(branch.run.id).params == {"server.lr": "5.0", "rounds": "3"}
    assert reader.children(tree.run.id) == {branch.run.id}


def test_method_without_a_result_fails_with_its_reason(store, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        branch.fail("every trial diverged")
        tree.finish()
    found = store.get(branch.run.id)
    assert (found.status, found.tags["fltune.stop_reason"]) == ("FAILED", "every trial diverged")
    with SearchTree(store, name, "", resume=True) as again:
        extended = again.method("A", {})
        extended.finish({"server.lr": 1}, ROWS, {})
    found = store.get(extended.run.id)
    assert (found.status, found.tags["fltune.status"]) == ("FINISHED", "complete")
    assert "fltune.stop_reason" not in found.tags


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_open_runs_are_killed_on_an_error(store, name, error):
    tree = SearchTree(store, name, "")
    done, cut = tree.method("A", {}), tree.method("B", {})
    done.finish({}, ROWS, {})
    with pytest.raises(error), tree:
        raise error
    assert store.get(done.run.id).status == "FINISHED"
    assert store.get(cut.run.id).status == "KILLED"
    assert store.get(tree.run.id).status == "KILLED"


def test_interrupt_while_a_trial_is_written(store, reader, name):
    def rows():
        yield ROWS[0]
        raise KeyboardInterrupt

    tree = SearchTree(store, name, "")
    branch = tree.method("A", {})
    with pytest.raises(KeyboardInterrupt), tree:
        branch.trial(0, {}, rows(), "complete")
    (cut,) = reader.children(branch.run.id)
    assert store.get(cut).status == "KILLED"

    with SearchTree(store, name, "", resume=True) as again:
        branch = again.method("A", {})
        written = branch.trial(0, {}, ROWS, "complete")
    assert reader.children(branch.run.id) == {written}
    assert reader.curve(written, "val/accuracy") == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_resumed_search_repeats_nothing(store, reader, name):
    with SearchTree(store, name, "a: 1\n", {"fltune.source": "mine.yaml"}) as tree:
        branch = tree.method("A", {"rounds": 3})
        trial = branch.trial(0, {"server.lr": 1}, ROWS, "complete")
        seed = branch.confirmation(1, {"server.lr": 1}, ROWS)
    frozen = {"fltune.source": "mlruns/searches/digits/search.yaml"}
    with SearchTree(store, name, "a: 2\n", frozen, resume=True) as again:
        resumed = again.method("A", {"rounds": 3})
        assert resumed.trial(0, {"server.lr": 1}, ROWS, "complete") == trial
        assert resumed.confirmation(1, {"server.lr": 1}, ROWS) == seed
        again_on = resumed.trial(0, {"server.lr": 1}, ROWS, "complete", seed=7)
        other = resumed.confirmation(1, {"server.lr": 9}, ROWS)
        resumed.finish({"server.lr": 1}, ROWS, {})
        again.finish()
    assert (again.run.id, resumed.run.id) == (tree.run.id, branch.run.id)
    assert other != seed  # another winner on the same fresh seed
    assert again_on != trial  # the same config on another seed
    assert reader.children(branch.run.id) == {trial, again_on, seed, other}
    assert len(reader.curve(trial, "val/accuracy")) == 3
    assert reader.artifact(tree.run.id, "search.yaml") == "a: 2\n"
    found = store.get(tree.run.id)
    assert (found.status, found.tags["fltune.source"]) == ("FINISHED", "mine.yaml")


def test_runs_that_a_user_put_below_a_method_are_left_alone(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        own = [store.start_run(f"mine {i}", branch.run).id for i in range(2)]
    with SearchTree(store, name, "", resume=True) as again:
        again.method("A", {})
    assert reader.children(branch.run.id) == set(own)


def test_same_name_without_resume_is_a_new_tree(store, name):
    with SearchTree(store, name, "") as first:
        first.finish()
    with SearchTree(store, name, "") as second:
        second.finish()
    with SearchTree(store, name, "", resume=True) as third:
        third.finish()
    assert first.run.id != second.run.id
    assert third.run.id == second.run.id


def test_extended_search_shows_the_new_winner_once(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {"rounds": 3})
        old_trial = branch.trial(0, {"server.lr": 1}, ROWS, "complete")
        branch.finish({"server.lr": 1}, ROWS, {"test/accuracy": 0.5})
        tree.finish()
    with SearchTree(store, name, "", resume=True) as again:
        extended = again.method("A", {"rounds": 3})
        new_trial = extended.trial(1, {"server.lr": 4}, ROWS, "complete")
        extended.finish({"server.lr": 4}, ROWS, {"test/accuracy": 0.7})
        again.finish()
    assert reader.children(tree.run.id) == {extended.run.id}
    assert reader.children(extended.run.id) == {old_trial, new_trial}
    assert store.get(extended.run.id).params == {"rounds": "3", "server.lr": "4"}
    assert reader.curve(extended.run.id, "test/accuracy") == [(3, 0.7)]
    assert len(reader.curve(extended.run.id, "val/accuracy")) == 3


def test_chosen_trials_are_tagged_and_those_chosen_before_no_longer(store, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        runs = [branch.trial(n, {"x": n}, ROWS, "complete") for n in range(3)]
        again = branch.trial(1, {"x": 1}, ROWS, "complete", seed=8)
        fresh = branch.confirmation(7, {"x": 1}, ROWS)
        branch.choose({1}, {"fltune.edge": "x highest"})
    with SearchTree(store, name, "", resume=True) as tree:
        tree.method("A", {}).choose({2}, {"fltune.edge": "none"})
    tags = [store.get(run).tags for run in (*runs, again, fresh)]
    confirmed = [t.get("fltune.confirmed") for t in tags]
    assert confirmed == [None, None, "true", None, None]
    assert [t.get("fltune.edge") for t in tags] == [None, None, "none", None, None]
    assert {t["fltune.status"] for t in tags} == {"complete"}


def test_cut_off_while_one_method_run_replaces_another(store, reader, name):
    with SearchTree(store, name, "") as tree:
        branch = tree.method("A", {})
        trial = branch.trial(0, {}, ROWS, "complete")
        newer = store.start_run("A", tree.run, tags=store.get(branch.run.id).tags)
    with SearchTree(store, name, "", resume=True) as again:
        resumed = again.method("A", {})
        assert resumed.trial(0, {}, ROWS, "complete") == trial
    assert reader.children(tree.run.id) == {newer.id}
    assert reader.children(newer.id) == {trial}
