"""Searches without Ray: workers that report what a pure function says, and a process that dies."""

from __future__ import annotations

import contextlib
import json
import math
import random
import tempfile
from collections import deque
from itertools import zip_longest
from pathlib import Path
from unittest import mock

from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.jobs import experiment_of
from fltune.search.packer import Packer
from fltune.search.packs import Packs
from fltune.search.state import Log, SearchState
from fltune.search.trainable import Sender

EXPERIMENT = {
    "data": {"name": "digits", "clients": 10},
    "server": {"name": "fedgm"},
    "rounds": 8,
    "eval_every": 2,
    "seed": 40,
}
DRAWN = {"space": {"server.lr": {"loguniform": [0.1, 10.0]}}}
GRID = {
    "space": {"server.lr": {"grid": [0.25, 0.5, 1.0, 2.0]}, "server.beta": {"grid": [0.5, 0.9]}}
}


def config_of(methods, **search):
    chosen = {"trials": 6, "confirm_seeds": 2, "sampler_options": {"n_startup_trials": 2}}
    raw = {"experiment": EXPERIMENT, "methods": methods, "search": {**chosen, **search}}
    return SearchConfig.parse(raw)


def quality(values):
    return 1 / (1 + abs(math.log(values["server.lr"] / 0.6)) + values.get("server.beta", 0.5) / 10)


def row_at(round, accuracy):
    costs = {"comm/up_bits": 8.0 * round, "comm/down_bits": 8.0 * round}
    return {
        "round": float(round),
        "train/loss": 1 - accuracy,
        "val/accuracy": accuracy,
        "client_samples": 100.0 * round,
        **costs,
    }


def end_of(values, seed):
    """How a run ends, and after which evaluation: a function of its config and seed alone."""
    chance = random.Random(f"{json.dumps(values, sort_keys=True)} {seed}")
    kind = chance.choices(["complete", "diverged", "failed"], [0.75, 0.15, 0.1])[0]
    return kind, chance.randrange(1, 4), chance.uniform(-0.05, 0.05)


def well(values, seed):
    """No run ends badly."""
    return "complete", 0, (seed - 40) / 100


def reports_of(job, search, end=end_of):
    """What a worker reports of a job, one report after the other."""
    experiment = experiment_of(job)
    found: list[dict] = []
    sender = Sender(search, experiment, found.append)
    kind, last, luck = end(job["searched"], job["seed"])
    rounds = range(2, experiment.rounds + 1, 2)
    for n, round in enumerate(rounds, start=1):
        if kind == "failed" and n == last:
            message = "RuntimeError: bad luck"
            return [*found, {"round": 0, "finished": True, "status": kind, "message": message}]
        accuracy = (quality(job["searched"]) + luck) * (1 - 0.5**n)
        row = row_at(round, accuracy)
        if kind == "diverged" and n == last:
            sender.add({**row, "train/loss": math.inf})
            break
        sender.add(row)
    rest = sender.rest(kind == "diverged")
    final = {
        "finished": True,
        "status": kind,
        "message": f"{kind} after {row['round']:g} rounds",
        "metrics": {"val/accuracy": row["val/accuracy"]},
        "comm": {k: row[f"comm/{k}"] for k in ("up_bits", "down_bits")},
        "participation": {},
        "client_samples": row["client_samples"],
        "seconds": 1.0,
        "strategy": "fake",
    }
    return [*found, {**rest, **final}]


def messages_of(jobs, search, end=end_of):
    """What the worker of a pack sends, one message after the other; members are in step."""
    columns = [
        [{"member": job["member"], **report} for report in reports_of(job, search, end)]
        for job in jobs
    ]
    return [[entry for entry in entries if entry] for entries in zip_longest(*columns)]


class KilledError(BaseException):
    """The power went."""


class WatchedLog(Log):
    """A log that the process may die at, just before or just after it is written."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self.disk = disk

    def append(self, entry):
        self.disk.tick()
        super().append(entry)
        self.disk.tick()


class Disk(SearchState):
    """A state folder whose process dies at the n-th moment between two writes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.journal = WatchedLog(self.journal.path, self)
        self.trials = WatchedLog(self.trials.path, self)
        self.left: int | None = None

    def tick(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError

    def decisions(self, event):
        return [e for e in self.journal.read() if e["event"] == event]


class Night:
    """One process of a search: workers that report in any order.

    Attributes:
        jobs: that were handed out, in order; and ``packs`` of (number, seed) that were together.
    """

    name = "the line to workers"

    def __init__(self, config, disk, slots=1, chance=None, end=end_of):
        self.search = config.settings.search
        self.heard = []
        self.campaign = Campaign(config, disk, lambda event, r: self.heard.append((event, key(r))))
        self._packs = Packs(self.campaign, Packer(self.search, slots), self)
        self._told: dict[str, list[int]] = {}
        self.slots = slots
        self.chance = chance or random.Random(0)
        self.end = end
        self.out: dict[str, deque] = {}
        self.jobs: list[dict] = []
        self.packs: list[frozenset] = []
        self.asking = True
        self.waiting = False

    def work(self, steps=None):
        """Go on to the end, or for so many steps."""
        while (steps is None or steps > 0) and self.step():
            steps = None if steps is None else steps - 1
        return self.campaign

    def step(self):
        free = self.asking and not self.waiting and len(self.out) < self.slots
        choices = [*self.out, *([None] if free else [])]
        if not choices:
            assert not self.asking, "all workers wait for a job that never comes"
            return False
        run_id = self.chance.choice(choices)
        self._ask() if run_id is None else self._report(run_id)
        return True

    def _ask(self):
        trial = f"trial{len(self.packs)}"
        found = self._packs.next(trial)
        self.waiting, self.asking = found is None, found != "done"
        if isinstance(found, dict):
            jobs = found["jobs"]
            self.jobs += jobs
            self.packs.append(frozenset((j["method"], j["number"], j["seed"]) for j in jobs))
            self.out[trial] = deque(messages_of(jobs, self.search, self.end))
            self._packs.started(trial)

    def stop(self, trial_id, members):
        """Hear, for a worker, of members that are to stop."""
        self._told.setdefault(trial_id, []).extend(members)

    def _report(self, trial):
        told = self._told.get(trial, [])
        message = [e for e in self.out[trial].popleft() if e["member"] not in told]
        stops = self._packs.stops(trial, {"members": message})
        self._packs.reported(trial, {"members": message})
        if stops or not self.out[trial]:
            del self.out[trial]
            self.waiting = False
            self._packs.ended(trial)


def key(record):
    return record.method, record.kind, record.number, record.seed


def whole(config, **how):
    """A search that nothing disturbs; its campaign and its disk."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        disk = Disk(Path(folder))
        return picture(Night(config, disk, **how).work(), disk)


def disturbed(config, cuts, slots, seed, end=end_of):
    """The same search, killed at ``cuts``: the picture, and what was handed out in each process.

    Args:
        config: the search.
        cuts: per process ``(writes, n)``: it dies at the n-th moment between two writes; or
            ``(steps, n)``: after so many steps.
        slots: runs at once.
        seed: of the order in which workers report.
    """
    chance, ended, repeated = random.Random(seed), set(), []
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        for kind, moment in [*cuts, ("steps", None)]:
            disk = Disk(Path(folder))
            night = Night(config, disk, slots, chance, end)
            disk.left = moment if kind == "writes" else None
            with contextlib.suppress(KilledError):
                night.work(moment if kind == "steps" else None)
            handed = {(j["method"], j["kind"], j["number"], j["seed"]) for j in night.jobs}
            repeated += handed & ended
            ended |= {key(r) for r in disk.records()}
        return picture(night.campaign, disk), repeated


def picture(campaign, disk):
    """All that a search has found, in plain values, by method."""
    return {
        name: {
            "runs": sorted(
                (r.kind, r.number, json.dumps(r.values), r.seed, r.status, tuple(r.scores))
                for r in campaign.records
                if r.method == name
            ),
            "batches": [e["numbers"] for e in disk.decisions("batch") if e["method"] == name],
            "rejected": {c.number for c in lane.candidates.values() if c.rejected},
            "winners": [c.number for c in lane.winners],
            "chosen": lane.chosen and lane.chosen.number,
            "reported": [r.seed for r in lane.reported],
            "open": sorted(c.number for c in lane.candidates.values() if c.missing and not c.runs),
        }
        for name, lane in campaign.lanes.items()
    }
