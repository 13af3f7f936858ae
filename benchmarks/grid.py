"""A FedGM grid of 90 trials on digits: fltune beside the script that a careful user writes.

    python benchmarks/grid.py
    python benchmarks/grid.py --rates 2 --rounds 30 --repeats 1 --json

Server learning rate (10) x beta (3) x nu (3) of ``search_spaces/digits_fedgm.yaml``, each cell for
150 rounds, on as many cores: through ``fltune.search`` as it comes, through ``fltune.search`` with
every trial by itself (``search.pack=1``), and by ``benchmarks/careful_script.py``, plain PyTorch
under Ray Tune. All have the same clients' data, cohort size, local work and evaluations. fltune
keeps its journal and its MLflow record meanwhile; the script keeps nothing. The three take turns.

Ray's start and the workers' imports are told apart; what is compared is the time from the first
round until all is done: the last trial has ended, what it left to write is written, and the results
are there. Ray leaves after that, in both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from timed_search import FILE, METHOD, time_search

from fltune.pieces import load_data
from fltune.search.config import SearchConfig

HERE = Path(__file__).parent
COLUMNS = ("ray_start", "imports", "search", "end")
MOMENTA = [0.7, 0.9, 0.95]
SCRIPT, ALONE, PACKED = "careful script", "fltune, pack=1", "fltune"


def by_fltune(rates: Sequence[float], rounds: int, workers: int, pack: str) -> dict[str, float]:
    """Run the grid through a search; return where its time went, in seconds."""
    found = time_search(
        [
            f"rounds={rounds}",
            f"methods.{METHOD}.space.server.lr={json.dumps({'grid': list(rates)})}",
            "search.sampler=grid",
            "search.average_last=1",  # the script reports its last evaluation
            f"search.concurrent={workers}",
            f"search.pack={pack}",
        ]
    )
    packed = re.search(r"packs of up to (\d+)", found.said)
    together = int(packed[1]) if packed else 1
    # the runs of the first pack end together; their seconds are shares of its time
    began = found.ends[0] - sum(r.seconds for r in found.records[:together])
    return {
        "ray_start": found.announced - found.started,
        "imports": began - found.announced,
        "search": found.ends[-1] - began,
        "end": found.told - found.ends[-1],
        "trials": len(found.records),
        "together": together,
        "best": found.summary.val or 0.0,
    }


def _own_environment() -> dict[str, str]:
    """Return this process's environment without what fltune tells Ray in it."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TUNE_"))}


def by_script(rates: Sequence[float], rounds: int, workers: int) -> dict[str, float]:
    """Run the grid by the careful script, in a process of its own."""
    method = SearchConfig.read(FILE, [f"rounds={rounds}"], [METHOD]).methods[METHOD]
    one = method.experiment(method.first_values())
    sgd, data = one.client.build(), load_data(one.data, one.seed)
    with tempfile.TemporaryDirectory(prefix="careful-") as name:
        folder = Path(name)
        np.savez(
            folder / "data.npz",
            x=data.train.x[data.order].flatten(1).numpy(),
            y=data.train.y[data.order].numpy(),
            sizes=data.sizes.numpy(),
            val_x=data.val.x.flatten(1).numpy(),
            val_y=data.val.y.numpy(),
        )
        task: dict[str, Any] = {
            "data": str(folder / "data.npz"),
            "grid": {"lr": list(rates), "beta": MOMENTA, "nu": MOMENTA},
            "rounds": rounds,
            "eval_every": one.eval_every,
            "cohort": one.participation.build().per_round,
            "lr": float(one.as_params()["client.lr"]),
            "epochs": sgd.epochs,
            "batch_size": sgd.batch_size,
            "workers": workers,
        }
        (folder / "task.json").write_text(json.dumps(task))
        argv = [sys.executable, str(HERE / "careful_script.py")]
        out = folder / "times.json"
        subprocess.run(
            [*argv, str(folder / "task.json"), str(out)],
            check=True,
            env={**_own_environment(), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        return json.loads(out.read_text())


def _done(run: dict[str, float]) -> float:
    return run["search"] + run["end"]


def main() -> None:
    """Measure, print a table, and on demand one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=int, default=10, help="server learning rates of the grid")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    rates = [round(float(r), 4) for r in np.geomspace(0.3, 5.0, args.rates)]
    common = (rates, args.rounds, args.workers)
    found: dict[str, list[dict[str, float]]] = {SCRIPT: [], ALONE: [], PACKED: []}
    for _ in range(args.repeats):
        found[SCRIPT].append(by_script(*common))
        found[ALONE].append(by_fltune(*common, "1"))
        found[PACKED].append(by_fltune(*common, "auto"))

    trials = 9 * args.rates
    title = f"{trials} trials of {args.rounds} rounds, {args.workers} workers; medians in seconds"
    table = Table("who", *COLUMNS, "best accuracy", title=title)
    for who, runs in found.items():
        middle = [statistics.median(run[c] for run in runs) for c in (*COLUMNS, "best")]
        table.add_row(who, *(f"{m:.1f}" for m in middle[:-1]), f"{middle[-1]:.3f}")
    console = Console()
    console.print(table)
    ratios = {
        f"{slow} / {quick}": statistics.median(
            _done(a) / _done(b) for a, b in zip(found[slow], found[quick], strict=True)
        )
        for slow, quick in ((SCRIPT, PACKED), (SCRIPT, ALONE), (ALONE, PACKED))
    }
    for what, ratio in ratios.items():
        console.print(f"search and end, {what}: {ratio:.1f} times", highlight=False)
    if args.json:
        print(json.dumps({"runs": found, "ratios": ratios}))


if __name__ == "__main__":
    main()
