"""A Ray trial that carries several runs: each has its own end, whatever becomes of the others."""

import pytest
from fake_workers import GRID, Disk, config_of, key

from fltune.search.campaign import Campaign
from fltune.search.packer import Packer
from fltune.search.packs import Packs
from fltune.search.record import CONFIRMATION, TRIAL


class Line:
    name = "the line"

    def __init__(self):
        self.told = []

    def stop(self, trial_id, members):
        self.told.append((trial_id, members))


class Search:
    """A campaign of a grid of eight in packs, as the hooks of Ray drive it."""

    def __init__(self, folder, pack=3, **search):
        config = config_of({"A": GRID}, trials=8, pack=pack, **search)
        self.heard = []
        self.disk = Disk(folder)
        self.line = Line()
        self.campaign = Campaign(config, self.disk, lambda event, r: self.heard.append((event, r)))
        self.packs = Packs(self.campaign, Packer(config.settings.search, 2), self.line)

    def begin(self, trial):
        found = self.packs.next(trial)
        self.packs.started(trial)
        return found

    def send(self, trial, *entries):
        result = {"members": list(entries), "hostname": "here", "node_ip": "10.0.0.1"}
        stops = self.packs.stops(trial, result)
        self.packs.reported(trial, result)
        return stops

    @property
    def ended(self):
        return {(r.kind, r.number): r for r in self.disk.records()}


@pytest.fixture
def search(tmp_path):
    return Search(tmp_path)


def row(member, score, round=2):
    return {
        "member": member,
        "round": round,
        "scores": [score],
        "rows": [{"round": float(round), "val/accuracy": score}],
    }


def final(member, score, status="complete", **more):
    own = {"metrics": {}, "comm": {}, "participation": {}, "client_samples": 100}
    own |= {"message": status, "seconds": 1.0, "strategy": "fake"}
    return {**row(member, score, 8), "finished": True, "status": status, **own, **more}


def test_every_member_is_a_run_of_its_own(search):
    found = search.begin("t0")
    assert [(j["member"], j["number"]) for j in found["jobs"]] == [(0, 0), (1, 1), (2, 2)]
    assert found["verdicts"] == ""  # nothing stops them early
    assert not search.send("t0", row(0, 0.1), row(1, 0.2), row(2, 0.3))
    assert search.ended == {}
    diverged = {"scores": [0.0], "rows": []}
    search.send("t0", final(1, 0.0, "diverged", **diverged))
    assert [k[1] for k in search.ended] == [1]  # it is known before the pack is over
    failed = {"member": 2, "round": 0, "finished": True, "status": "failed", "message": "E: no"}
    search.send("t0", final(0, 0.7), failed)
    search.packs.ended("t0")
    found = {n: (r.status, r.scores, r.node) for (_, n), r in search.ended.items()}
    here = "here (10.0.0.1)"
    assert found == {
        0: ("complete", [0.7], here),
        1: ("diverged", [0.0], here),
        2: ("failed", [], here),
    }
    events = [(event, key(r)) for event, r in search.heard if event != "progress"]
    assert sorted(events) == sorted(
        (event, ("A", TRIAL, n, 40)) for n in range(3) for event in ("start", "end")
    )


def test_a_member_is_stopped_alone_and_its_later_rows_do_not_count(tmp_path):
    search = Search(tmp_path, scheduler="asha", grace=6, reduction=2)
    assert search.begin("t0")["verdicts"] == "the line"
    assert not search.send("t0", row(0, 0.9), row(1, 0.1), row(2, 0.95))
    assert search.ended == {}
    assert not search.send("t0", row(0, 0.9, 6), row(1, 0.1, 6), row(2, 0.95, 6))
    assert search.line.told == [("t0", [1])]
    (stopped,) = search.ended.values()
    assert (stopped.number, stopped.status) == (1, "pruned")
    assert stopped.message == "stopped early by the scheduler after 6 rounds"
    assert not search.send("t0", row(1, 0.99, 7))
    assert [r["round"] for r in search.ended[TRIAL, 1].rows] == [2.0, 6.0]
    search.send("t0", final(0, 0.9), final(1, 0.99), final(2, 0.95))
    assert {n: r.status for (_, n), r in search.ended.items()} == {
        0: "complete",
        1: "pruned",
        2: "complete",
    }


def test_a_pack_of_which_none_goes_on_is_stopped_by_ray(tmp_path):
    search = Search(tmp_path, pack=2, scheduler="asha", grace=2, reduction=2)
    search.begin("t0")
    search.begin("t1")
    assert not search.send("t0", row(0, 0.8), row(1, 0.9))
    assert search.line.told == [("t0", [0])]  # the two are judged together
    assert search.send("t1", row(0, 0.1), row(1, 0.2))
    assert search.line.told == [("t0", [0])]  # the trial itself ends
    search.packs.ended("t1")
    assert {n: r.status for (_, n), r in search.ended.items()} == dict.fromkeys([0, 2, 3], "pruned")


def test_a_lost_worker_costs_only_members_that_had_not_ended(search):
    search.begin("t0")
    search.send("t0", row(0, 0.1), final(1, 0.5), row(2, 0.3))
    left = search.packs.left("t0")
    assert [j["member"] for j in left["jobs"]] == [0, 2]
    search.packs.started("t0")
    search.send("t0", row(0, 0.4), row(2, 0.6))
    search.send("t0", final(0, 0.45), final(1, 0.9), final(2, 0.65))
    search.packs.ended("t0")
    assert {n: r.scores for (_, n), r in search.ended.items()} == {0: [0.45], 1: [0.5], 2: [0.65]}
    assert [r["round"] for r in search.ended[TRIAL, 0].rows] == [2.0, 8.0]  # once
    assert search.disk.trials.path.read_text().count("\n") == 3
    assert search.packs.left("t0")["jobs"] == []


def test_members_that_start_again_each_alone_lose_what_they_sent_together(search):
    search.begin("t0")
    search.send("t0", row(0, 0.1), row(1, 0.2), row(2, 0.3))
    again = [{"member": m, "again": True} for m in (0, 1, 2)]
    assert not search.send("t0", *again)
    search.send("t0", final(0, 0.7))
    assert [r["round"] for r in search.ended[TRIAL, 0].rows] == [8.0]


def test_a_pack_that_lost_its_worker_again_and_again_is_run_one_by_one(search):
    search.begin("t0")
    search.send("t0", row(0, 0.1), final(1, 0.5), row(2, 0.3))
    search.packs.ended("t0", "lost its worker 3 times")
    assert [n for _, n in search.ended] == [1]
    alone = [search.begin(f"t{n}")["jobs"] for n in (1, 2)]
    assert sorted(job["number"] for (job,) in alone) == [0, 2]
    search.packs.ended("t1", "lost its worker 3 times")
    lost = search.ended[TRIAL, alone[0][0]["number"]]
    assert (lost.status, lost.message) == ("failed", "lost its worker 3 times")
    assert len(search.begin("t3")["jobs"]) == 3
    started = [key(r) for event, r in search.heard if event == "start"]
    assert len(started) == len(set(started))


def test_confirmations_of_one_seed_go_together_and_a_lost_one_fails(tmp_path):
    search = Search(tmp_path, pack=8, confirm_seeds=2, confirm_top=2)
    search.begin("t0")
    search.send("t0", *(final(n, n / 10) for n in range(8)))
    search.packs.ended("t0")
    jobs = search.begin("t1")["jobs"]
    assert [(j["kind"], j["number"], j["seed"]) for j in jobs] == [
        (CONFIRMATION, 7, 41),
        (CONFIRMATION, 6, 41),
    ]
    search.packs.ended("t1", "lost its worker 3 times")
    lost = [r.status for r in search.disk.records() if r.kind == CONFIRMATION]
    assert lost == ["failed", "failed"]  # Ray may have heard already that no more jobs come


def test_a_search_that_is_stopping_begins_no_new_pack_but_takes_what_is_out(search):
    search.begin("t0")
    search.campaign.stopping = True
    assert search.packs.next("t1") == "done"
    search.send("t0", final(0, 0.1), final(1, 0.2), final(2, 0.3))
    assert len(search.ended) == 3
