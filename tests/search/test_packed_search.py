"""Searches through Ray whose trials carry packs: the same runs as one by one."""

import io
import json

import pytest
from rich.console import Console
from searched_here import search_here

from fltune.search.search import search
from fltune.tracking import Store

GRID = {
    "server": {"name": "fedgm"},
    "space": {
        "client.lr": {"grid": [0.1, 0.2, 0.4]},
        "server.lr": {"grid": [0.5, 1.0]},
        "server.beta": {"grid": [0.5, 0.9]},
    },
}


class Found:
    """What a search left: its summary, its runs by kind, number and seed, and its store."""

    def __init__(self, root, raw, name):
        own = {**raw, "tracking": {"root": str(root), "experiment": "packs"}}
        out = io.StringIO()
        self.summary = search(own, name=name, console=Console(file=out, width=200))
        self.printed = out.getvalue()
        self.runs = runs_of(root, name)
        self.name = name
        self._store = Store.open(f"sqlite:///{root / 'mlflow.db'}", "packs", root / "artifacts")

    @property
    def children(self):
        """Tags and parameters of every run in MLflow, whose values are plain."""
        kept = ("kind", "method", "trial", "seed", "status")
        return sorted(
            (*(run.tags.get(f"fltune.{k}", "") for k in kept), sorted(run.params.items()))
            for run in self._store.find({"fltune.search": self.name})
            if run.tags["fltune.kind"] in ("trial", "confirmation")
        )


def runs_of(root, name):
    """The records of a search by kind, number and seed."""
    text = (root / "searches" / name / "trials.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    runs = {(r["kind"], r["number"], r["seed"]): r for r in lines}
    assert len(runs) == len(lines)  # none is there twice
    return runs


def trials(runs):
    return {number: r for (kind, number, _), r in runs.items() if kind == "trial"}


def numbers(record):
    """All that was measured in a run."""
    rows = [value for row in record["rows"] for _, value in sorted(row.items())]
    return [*record["scores"], *rows, *record["comm"].values(), record["client_samples"]]


@pytest.fixture(scope="module")
def raw(own_config):
    base = {**own_config["experiment"], "model": {"name": "mlp", "hidden": [8]}, "rounds": 6}
    return {
        "experiment": {**base, "eval_every": 2},
        "methods": {"FedGM": GRID},
        "search": {"trials": 12, "confirm_seeds": 1, "concurrent": 1},
    }


@pytest.mark.search
def test_a_packed_grid_finds_and_keeps_what_an_unpacked_one_does(raw, tmp_path):
    found = {
        pack: Found(tmp_path, {**raw, "search": {**raw["search"], "pack": pack}}, f"in{pack}")
        for pack in (1, 4)
    }
    one, four = found[1], found[4]
    assert one.runs.keys() == four.runs.keys()
    for run, record in one.runs.items():
        other = four.runs[run]
        for key in ("values", "status", "message"):
            assert record[key] == other[key]
        assert numbers(record) == pytest.approx(numbers(other), rel=1e-5, abs=1e-6)
    assert "12 trials, 1 at a time (1 core, 0 GPUs each), then" in one.printed
    assert "(1 core, 0 GPUs each), in packs of up to 4 trials, then" in four.printed
    assert all(f"({n}/12) complete" in four.printed for n in range(1, 13))  # a line each
    assert one.children == four.children
    assert len(four.children) == 12 + 1
    assert one.summary.methods["FedGM"].best == four.summary.methods["FedGM"].best


@pytest.mark.search
def test_one_that_diverges_one_that_is_stopped_and_the_others_share_a_pack(raw, tmp_path):
    space = {"server.lr": {"grid": [1.0, 1e30, 1e-6, 0.5]}}
    settings = {"trials": 4, "pack": 4, "scheduler": "asha", "grace": 2, "reduction": 2}
    method = {"FedGM": {**GRID, "space": space}}
    base = {**raw["search"], "metric": "val/loss"}
    own = {**raw, "methods": method, "search": {**base, **settings}}
    together = trials(Found(tmp_path, own, "together").runs)
    assert together[0]["status"] == "complete"
    assert together[1]["status"] == "diverged"
    assert together[1]["scores"] == [1e4]
    assert together[2]["status"] == "pruned"
    assert [row["round"] for row in together[2]["rows"]] == [2]
    kept = {n: r for n, r in together.items() if r["status"] == "complete"}
    assert sorted(kept) == [0, 3]
    search_here({**own, "search": {**base, "trials": 4}}, tmp_path, "alone")
    alone = trials(runs_of(tmp_path, "alone"))
    for number, record in kept.items():
        assert numbers(record) == pytest.approx(numbers(alone[number]), rel=1e-5, abs=1e-6)
