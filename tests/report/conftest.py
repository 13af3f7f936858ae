"""Folders of searches that were never run, and the comparisons made of them."""

import itertools
import json

import pytest
from fabricated import EXPERIMENT, LR, NASTY, confirmation, curve, trial

from fltune.search.config import SearchConfig
from fltune.search.search import compare


@pytest.fixture
def make_report(tmp_path):
    """Write a search's folder, and compare it."""

    def make(methods, records, search=None, target=None):
        raw = {
            "experiment": EXPERIMENT,
            "methods": methods,
            "search": {"trials": 3, "confirm_seeds": 3, **(search or {})},
            "tracking": {"uri": "http://user:secret@mlflow.invalid", "root": str(tmp_path)},
        }
        folder = tmp_path / "searches" / "made"
        folder.mkdir(parents=True)
        yaml = SearchConfig.parse(raw).as_yaml("made")
        (folder / "search.yaml").write_text(yaml, encoding="utf-8")
        ended = [(r.method, r.number, r.values) for r in records if r.kind == "trial"]
        decided = [
            {"event": "proposed", "method": m, "number": n, "values": v, "attrs": {}}
            for m, n, v in ended
        ]
        written = {"journal": decided, "trials": [r.as_json() for r in records]}
        for name, entries in written.items():
            lines = "".join(json.dumps(entry) + "\n" for entry in entries)
            (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        return compare("made", [f"tracking.root={tmp_path}"], target)

    return make


@pytest.fixture
def two_methods(make_report):
    """A finished search: FedAvg is better than one with a nasty name, by 0.02 in the mean.

    Paired by seed the differences are -0.02, -0.03, -0.01: std 0.01, t = -2 sqrt(3) at 2 degrees
    of freedom, for which p = 1 - |t| / sqrt(2 + t^2) = 0.0742.
    """
    best, other = {"server.lr": 1.0, "client.lr": 0.1}, {"server.lr": 10.0, "client.lr": 0.2}
    wild = {"server.lr": 9.0, "client.lr": 0.9}
    records = [
        trial("FedAvg", 0, best, 0.9),
        trial("FedAvg", 1, other, 0.4),
        trial("FedAvg", 2, wild, 0.0, "diverged", client_samples=10),
        trial(NASTY, 0, best, 0.5),
        trial(NASTY, 1, other, 0.8),
        trial(NASTY, 2, wild, 0.3, "pruned"),
    ]
    scores = (0.7, 0.85), (0.8, 0.9), (0.5, 0.6)
    for seed, (a, b, score) in enumerate(
        zip((0.90, 0.92, 0.94), (0.88, 0.89, 0.93), scores, strict=True), start=1
    ):
        records.append(confirmation("FedAvg", 0, seed, best, a, curve(*score)))
        records.append(confirmation(NASTY, 1, seed, other, b, curve(0.1, 0.2)))
    return make_report({"FedAvg": {"space": LR}, NASTY: {"space": LR}}, records, target=0.8)


@pytest.fixture
def wild(make_report):
    """Losses of two methods on four fresh seeds; the lower one is known of one seed alone."""
    methods = {name: {"space": {}} for name in ("Wild", "Steady")}
    search = {"metric": "val/loss", "confirm_seeds": 4}
    ends = {"Wild": {1: 0.01}, "Steady": {1: 0.08, 2: 0.09, 3: 0.10, 4: 0.09}}
    records = []
    for name, seed in itertools.product(methods, (1, 2, 3, 4)):
        loss = ends[name].get(seed)
        rows = curve(3.0, loss or 3.0, metric="val/loss")
        lost = {} if loss else {"status": "diverged", "metrics": {}}
        records.append(confirmation(name, 0, seed, {}, loss, rows, metric="test/loss", **lost))
    return make_report(methods, records, search)


@pytest.fixture
def in_pieces(make_report):
    """A search that was interrupted: one method all diverged, one not begun, one under way."""
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("Lost", n, {**one, "server.lr": n + 1.0}, 0.0, "diverged") for n in range(3)]
    records.append(trial("Under way", 0, one, 0.5))
    methods = {name: {"space": LR} for name in ("Lost", "Empty", "Under way")}
    return make_report(methods, records, target=0.8)


@pytest.fixture
def one_seed(make_report):
    """A task without classes (losses alone) on one fresh seed, of a grid."""
    grid = {"server.lr": {"grid": [0.5, 1.0]}}
    records = [
        trial("A", 0, {"server.lr": 0.5}, 3.0, rows=curve(4.0, 3.0, metric="val/loss")),
        trial("A", 1, {"server.lr": 1.0}, 2.0, rows=curve(4.0, 2.0, metric="val/loss")),
        confirmation(
            "A",
            1,
            1,
            {"server.lr": 1.0},
            2.5,
            curve(4.0, 2.0, metric="val/loss", **{"clock/seconds": 7.0}),
            metric="test/loss",
        ),
    ]
    return make_report(
        {"A": {"space": grid}},
        records,
        {"metric": "val/loss", "confirm_seeds": 1},
        target=2.0,
    )
