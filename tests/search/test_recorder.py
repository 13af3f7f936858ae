"""A store that fails and comes back: nothing is lost, nothing is doubled."""

import io
from pathlib import Path

import pytest
import yaml
from fake_workers import DRAWN, Disk, Night, config_of, well
from rich.console import Console

from fltune.report.summary import Summary, summarise
from fltune.search.record import TrialRecord
from fltune.search.recorder import Recorder
from fltune.tracking import SearchTree, Store, TrackingError

TRIALS = 5


class FakeStore:
    """A store in memory; a call may fail before it writes."""

    def __init__(self, failing=()):
        self.failing = set(failing)
        self.calls = 0
        self.written = {}
        self.finished = 0
        self.failed, self.tags, self.configs = {}, {}, {}

    def call(self):
        self.calls += 1
        if self.calls in self.failing:
            raise TrackingError("the tracking store http://x failed: no server [/answers]")

    def tree(self):
        self.call()
        return FakeTree(self)


class FakeTree:
    def __init__(self, store):
        self.store = store

    def method(self, name, params):
        self.store.call()
        return FakeBranch(self.store, name)

    def finish(self, note, views):
        self.store.call()
        self.store.finished += 1

    def __exit__(self, *error):
        self.store.call()


class FakeBranch:
    def __init__(self, store, name):
        self.store, self.name, self.id, self.sent = store, name, "1", 0

    @property
    def run(self):
        return self

    def log_dict(self, content, file):
        self.store.call()
        assert file == "partition.json"

    def set_tags(self, tags):
        self.store.call()
        self.store.tags[self.name] = tags

    def write(self, key, values):
        self.store.call()
        if key not in self.store.written:
            self.store.written[key] = values
            self.sent += 1

    def trial(self, number, values, rows, **more):
        self.write((self.name, "trial", number, more["seed"]), values)
        self.store.configs["trial"] = more["config_yaml"]

    def confirmation(self, seed, values, rows, final, **more):
        self.write((self.name, "confirmation", seed), values)
        self.store.configs["confirmation"] = more["config_yaml"]

    def finish(self, values, rows, metrics):
        self.store.call()

    def choose(self, numbers, tags):
        self.store.call()

    def fail(self, reason):
        self.store.call()
        self.store.failed[self.name] = reason


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A campaign that has come to its end, and its config."""
    config = config_of({"A": DRAWN}, trials=TRIALS)
    return config, Night(config, Disk(tmp_path_factory.mktemp("searched"))).work()


def recorder_of(config, open_tree):
    out = Console(file=io.StringIO(), width=60)
    return Recorder(config, open_tree, out, "python -m fltune sync night"), out.file


def finish(recorder, campaign):
    summary = summarise(campaign.lanes, Summary("night", "x", "x", "val/accuracy", True))
    confirmed = {name: lane.reported for name, lane in campaign.lanes.items()}
    return recorder.finish(summary, confirmed, "note")


@pytest.mark.parametrize("failing", [*([n] for n in range(1, 16)), [2, 3], [5, 6, 9], range(1, 99)])
def test_a_store_that_fails_at_any_call_gets_all_in_the_end_and_nothing_twice(
    searched, failing, monkeypatch
):
    monkeypatch.setattr("fltune.search.recorder.PATIENCE_SECONDS", -1.0)
    config, campaign = searched
    store = FakeStore(failing)
    recorder, said = recorder_of(config, store.tree)
    recorder.start()
    for record in campaign.records:
        recorder.ended(record)
    done = finish(recorder, campaign)
    recorder.close()
    store.failing = set()
    again, _ = recorder_of(config, store.tree)  # what sync does
    again.start(campaign.records)
    assert len(store.written) == len(campaign.records)
    assert recorder.sent + again.sent == len(campaign.records)
    assert done == (again.sent == 0 and store.finished == 1)
    if min(failing) < store.calls and not done:
        assert "python -m fltune sync night" in said.getvalue()
    failures = said.getvalue().count("the tracking store failed:")
    assert failures <= len(list(failing))
    assert finish(again, campaign)


def test_every_seed_of_a_config_is_a_run_of_its_own(tmp_path):
    config = config_of({"A": DRAWN}, trials=2, seeds=2)
    campaign = Night(config, Disk(tmp_path), end=well).work()
    store = FakeStore()
    recorder, _ = recorder_of(config, store.tree)
    assert recorder.start(campaign.records)
    recorder.close()
    ended = {(r.number, r.seed) for r in campaign.records if r.kind == "trial"}
    assert {seed for _, seed in ended} == {40, 41}
    trials = [key[2:] for key in store.written if key[1] == "trial"]
    assert {(n, 40 if seed is None else seed) for n, seed in trials} == ended


def test_a_confirmation_is_kept_with_the_rounds_that_it_made(tmp_path):
    config = config_of({"A": DRAWN}, trials=2, rounds=4)
    campaign = Night(config, Disk(tmp_path), end=well).work()
    store = FakeStore()
    recorder, _ = recorder_of(config, store.tree)
    assert recorder.start(campaign.records)
    recorder.close()
    made = {kind: yaml.safe_load(text)["rounds"] for kind, text in store.configs.items()}
    assert made == {"trial": 4, "confirmation": 8}


def test_a_store_that_stays_away_is_named_once_and_asked_rarely(searched):
    config, campaign = searched
    store = FakeStore(range(1, 99))
    recorder, said = recorder_of(config, store.tree)
    recorder.start()
    for record in campaign.records:
        recorder.ended(record)
    assert not finish(recorder, campaign)
    assert store.calls == 2  # at the start and at the end: 30 seconds have not passed
    assert said.getvalue().count("the tracking store failed:") == 1
    assert "no server [/answers]" in said.getvalue()
    assert recorder.missing == campaign.records


def test_a_method_that_an_interrupted_search_has_not_come_to_is_no_failed_one(tmp_path):
    config = config_of({"A": DRAWN})
    (tmp_path / "state").mkdir()
    campaign = Night(config, Disk(tmp_path / "state")).campaign
    store = FakeStore()
    recorder, _ = recorder_of(config, store.tree)
    recorder.start()
    calls = store.calls
    assert finish(recorder, campaign)
    assert store.calls == calls + 1  # the search's own end


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        ({"server.lr": {"grid": [1.0]}}, "no run completed"),
        (DRAWN["space"], "no trial completed"),
    ],
)
def test_a_method_of_which_every_run_fails_is_a_failed_one(tmp_path, space, reason):
    config = config_of({"A": {"space": space}})
    night = Night(config, Disk(tmp_path), end=lambda values, seed: ("failed", 2, 0.0))
    store = FakeStore()
    recorder, _ = recorder_of(config, store.tree)
    recorder.start(night.work().records)
    assert finish(recorder, night.campaign)
    assert store.failed == {"A": reason}
    trials = night.campaign.lanes["A"].planned
    counts = {"trials": trials, "pruned": 0, "diverged": 0, "failed": trials}
    assert store.tags == {"A": {f"fltune.{k}": v for k, v in counts.items()}}


SPACE = {
    "server.name": {"choice": ["fedgm", "fedadam"]},
    "server.lr": {"grid": [0.5, 1.0]},
    "client.lr": {"fixed": 0.2},
    "client.batch_size": {"int": [1, 3]},
    "client.momentum": {"tied": "0.1 / (client.batch_size - 2) ** 2"},
}


@pytest.mark.search
def test_a_real_store_shows_what_a_person_wants_to_see(tmp_path):
    config = config_of({"A": {"space": SPACE}})
    store = Store.open(f"sqlite:///{tmp_path / 'mlflow.db'}", "real", tmp_path / "artifacts")
    opened = []

    def open_tree():
        opened.append(1)
        return SearchTree(store, "night", config.as_yaml(), resume=len(opened) > 1)

    point = {"server.name": "fedadam", "server.lr": 0.5, "client.batch_size": 3}
    runs = [
        TrialRecord("A", "trial", 0, point, 40, "complete", [0.5], message="all rounds"),
        TrialRecord("A", "trial", 1, {**point, "client.batch_size": 2}, 40, "failed"),
    ]
    for _ in range(2):  # a second process sends nothing again
        recorder, _ = recorder_of(config, open_tree)
        recorder.start(runs)
        recorder.close()
    assert recorder.sent == 0
    found = {r.tags.get("fltune.trial"): r for r in store.find({"fltune.method": "A"})}
    assert len(found) == 3
    shared = found[None].params
    assert shared["client.lr"] == "0.2"  # fixed for all of them
    assert not [k for k in shared if k.startswith("server.") or (k in SPACE and k != "client.lr")]
    assert found["0"].params == {**{k: str(v) for k, v in point.items()}, "client.momentum": "0.1"}
    assert found["1"].params["client.batch_size"] == "2"  # though its tie has no value there
    file = Path(store.client.download_artifacts(found["0"].id, "experiment.yaml"))
    raw = yaml.safe_load(file.read_text())
    assert (raw["server"], raw["client"]["momentum"], raw["seed"]) == (
        {"name": "fedadam", "lr": 0.5},
        0.1,
        40,
    )


def test_what_clients_said_of_trials_goes_to_the_searchs_own_run(searched):
    config, campaign = searched
    kept = {}

    class Tree(FakeTree):
        @property
        def run(self):
            return self

        def log_dict(self, content, file):
            kept[file] = content

    recorder, _ = recorder_of(config, lambda: Tree(FakeStore()))
    recorder.start()
    said = {"client": [0, 3], "samples": [2, 1], "correct": [1, 1], "loss": [0.5, 0.25]}
    trial = TrialRecord("A", "trial", 2, {"server.lr": 0.5}, seed=7, by_client=said)
    confirmed = TrialRecord("A", "confirmation", 2, {"server.lr": 0.5}, seed=8, by_client=said)
    older = TrialRecord("A", "trial", 1, {"server.lr": 0.1}, seed=7)
    summary = summarise(campaign.lanes, Summary("night", "x", "x", "val/accuracy", True))
    assert recorder.finish(summary, {"A": []}, "note", [older, trial, confirmed])
    name = {"method": "A", "trial": 2, "seed": 7, "values": {"server.lr": 0.5}}
    assert kept == {"evaluation/per_client.json": {"runs": [{**name, **said}]}}
