"""Any participation x partition x method x model that a config accepts runs."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch

import fltune
from fltune.algorithms import ALGORITHMS
from fltune.data import PARTITIONS
from fltune.errors import ConfigError
from fltune.participation import PARTICIPATION

CLIENTS = 6
COMBINATIONS = 60

PATTERNS = {
    "full": {},
    "uniform": {"per_round": 3},
    "cyclic": {"per_round": 4},
    "reshuffled": {"per_round": 4},
    "bernoulli": {"probability": 0.4},
    "sine": {"per_round": 3},
    "biased": {"block": 2},
    "groups": {"groups": 2, "per_round": 2, "formation": "sorted_by_label"},
    "with_replacement": {"per_round": 4, "multiplicity": True},
    "markov": {"probability": 0.4},
    "blocks": {"probability": 0.5},
    "trace": {"rounds": [[0, 1], [], [2, 5]]},
    "asynchronous": {"concurrency": 3, "buffer": 2},
}
DEALS = {
    "iid": {},
    "dirichlet_class": {"alpha": 0.3},
    "dirichlet_client_normalised": {"alpha": 0.3},
    "dirichlet_client_equal": {"alpha": 0.3},
    "dirichlet_client_lognormal": {"alpha": 0.3, "allocation": "reuse"},
    "shards": {"per_client": 2},
    "natural": {},
    "file": {},
}
MODELS = {
    "mlp": {"hidden": [5], "dropout": 0.2},
    "mlp_fedtorch": {},
    "resnet20": {},
}
BATCH_NORM = {"mlp_fedtorch": "batch_statistics"}


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> dict[str, str]:
    """A tiny image data set with writers, and a list of who holds what of its training part."""
    folder = tmp_path_factory.mktemp("images")
    numbers = np.random.default_rng(0)
    y = np.arange(96) % 4
    x = (numbers.random((96, 3, 8, 8)) + y[:, None, None, None]).astype(np.float32)
    np.savez(folder / "tiny.npz", x=x, y=y, x_test=x[:16], y_test=y[:16], clients=np.arange(96) % 6)
    np.save(folder / "owners.npy", np.arange(96) // 16)
    return {"data": str(folder / "tiny.npz"), "owners": str(folder / "owners.npy")}


def world(images: dict[str, str], pattern: str, deal: str, method: str, model: str) -> dict:
    partition = {"kind": deal, **DEALS[deal]}
    if deal == "file":
        partition["path"] = images["owners"]
    return {
        "data": {
            "name": "npz",
            "path": images["data"],
            "clients": CLIENTS,
            "val_fraction": 0.25,
            "partition": partition,
        },
        "model": {"name": model, **MODELS[model]},
        "batch_norm": BATCH_NORM.get(model, "refuse"),
        "participation": {"kind": pattern, **PATTERNS[pattern]},
        "algorithm": method,
        "client": {"lr": 0.01, "steps": 2, "batch_size": 4},
        "rounds": 3,
    }


def combinations(images: dict[str, str]) -> list[fltune.Experiment]:
    """Draw accepted worlds; every pattern, partition, method and model takes its turn."""
    draw = random.Random(4)
    turns = [
        itertools.cycle(draw.sample(list(names), len(list(names))))
        for names in (PATTERNS, DEALS, ALGORITHMS, MODELS)
    ]
    accepted: list[fltune.Experiment] = []
    for _ in range(20 * COMBINATIONS):
        chosen = [next(turn) for turn in turns]
        if (
            chosen[0] == "asynchronous"
        ):  # most methods keep no model that a late client started from
            chosen[2] = draw.choice(["fedbuff", "autonomous"])
        if draw.random() < 0.5:  # else the lists would turn in step with each other
            next(turns[draw.randrange(4)])
        try:
            accepted.append(fltune.Experiment.parse(world(images, *chosen)))
        except ConfigError:
            continue
        if len(accepted) == COMBINATIONS:
            break
    return accepted


def test_the_lists_here_hold_everything_there_is():
    assert set(PATTERNS) == set(PARTICIPATION)
    assert set(DEALS) == set(PARTITIONS)


def test_any_accepted_combination_runs_three_rounds(images):
    worlds = combinations(images)
    assert len(worlds) == COMBINATIONS
    for part, names in (
        (lambda e: e.participation.component_name, PATTERNS),
        (lambda e: e.data.partition.component_name, DEALS),
        (lambda e: e.algorithm.component_name, ALGORITHMS),
        (lambda e: e.model.component_name, MODELS),
    ):
        assert {part(e) for e in worlds} == set(names)
    for experiment in worlds:
        result = fltune.run(experiment)
        said = (experiment.as_params(), result.message)
        assert result.rounds == 3, said
        assert math.isfinite(result.metrics["val/loss"]), said
        assert 0 <= result.participation["coverage"] <= 1, said


def test_the_same_world_twice_is_the_same(images):
    experiment = combinations(images)[0]
    torch.manual_seed(1)  # whatever state the global generator is in
    first = fltune.run(experiment)
    torch.manual_seed(2)
    assert fltune.run(experiment).history == first.history
