"""A FedGM grid on digits as a careful user writes it without fltune: plain PyTorch under Ray Tune.

    python benchmarks/grid.py        runs it beside fltune; alone it wants what grid.py gives it

One trial per process, processes reused between trials, one thread each, data shared through Ray's
object store, an ``nn.Module`` and a ``torch.optim.SGD`` for every client's local steps, and a
report to Ray after every evaluation. It knows nothing of fltune.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LAYERS = (64, 64, 32, 10)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(LAYERS):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def local_update(model, start, x, y, task, shuffle):
    """Train one client from the global model; leaves its weights in ``model``."""
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=task["lr"])
    model.train()
    for _ in range(task["epochs"]):
        order = torch.randperm(len(x), generator=shuffle)
        for chosen in order.split(task["batch_size"]):
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
        return float((out.argmax(1) == y).float().mean()), float(F.cross_entropy(out, y))


def trial(config, arrays, task):
    """One run of FedGM (Sun et al. 2024, Algorithm 1)."""
    from ray import tune

    torch.set_num_threads(1)
    began = time.time()
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    sizes = tensors["sizes"].tolist()
    clients = list(zip(tensors["x"].split(sizes), tensors["y"].split(sizes), strict=True))
    model = make_model()
    start = copy.deepcopy(model.state_dict())
    momentum = {name: torch.zeros_like(value) for name, value in start.items()}
    shuffle = torch.Generator().manual_seed(0)
    cohorts = np.random.default_rng(0)
    for round in range(1, task["rounds"] + 1):
        cohort = cohorts.choice(len(clients), task["cohort"], replace=False)
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for client in cohort:
            local_update(model, start, *clients[client], task, shuffle)
            for name, value in model.state_dict().items():
                total[name] += start[name] - value
        for name in start:
            step = total[name] / len(cohort)
            momentum[name].mul_(config["beta"]).add_(step, alpha=1 - config["beta"])
            step = (1 - config["nu"]) * step + config["nu"] * momentum[name]
            start[name] = start[name] - config["lr"] * step
        if round % task["eval_every"] == 0:
            model.load_state_dict(start)
            accuracy, loss = evaluate(model, tensors["val_x"], tensors["val_y"])
            tune.report({"accuracy": accuracy, "loss": loss, "began": began, "at": time.time()})


def main() -> None:
    """Run the grid; write when Ray was up, when training began and when it was over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", type=Path, help="JSON: data, grid, rounds, ...")
    parser.add_argument("out", type=Path, help="where the times are written")
    args = parser.parse_args()
    task = json.loads(args.task.read_text())
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    import ray
    from ray import tune

    started = time.time()
    ray.init(
        num_cpus=task["workers"],
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    up = time.time()
    arrays = dict(np.load(task["data"]))
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(trial, arrays=arrays, task=task), {"cpu": 1}),
            param_space={name: tune.grid_search(values) for name, values in task["grid"].items()},
            tune_config=tune.TuneConfig(metric="accuracy", mode="max", reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        results = tuner.fit()
    ended = time.time()
    ray.shutdown()
    found = [result.metrics for result in results]
    times = {
        "ray_start": up - started,
        "imports": min(m["began"] for m in found) - up,
        "search": max(m["at"] for m in found) - min(m["began"] for m in found),
        "end": ended - max(m["at"] for m in found),
        "trials": len(found),
        "best": max(m["accuracy"] for m in found),
    }
    args.out.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
