"""What a round costs as populations, cohorts and models grow, and whether memory grows with rounds.

    python benchmarks/scale.py
    python benchmarks/scale.py --turns 16 --rounds 200 --json

Each table changes one thing of the workload W3 (``benchmarks/rounds.py``); its candidates take
turns in blocks of rounds, and a ratio is the median over turns, to the table's first row. Rounds go
through ``Trainer.fit``. Clients are alike in every population, so that equal work is compared.
Memory is the resident set after ``--rounds`` rounds less that after a tenth of them, of a method
without and of one with client state whose clients have all been seen.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console
from rich.table import Table
from rounds import WORKLOADS, Product, Workload, machine, mlp

from fltune.algorithms.base import Algorithm
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.scaffold import Scaffold
from fltune.federation.allocation import restart

BASE = WORKLOADS["W3"]
TABLES: dict[str, dict[str, Workload]] = {
    "population": {f"N = {n:,}": replace(BASE, clients=n) for n in (500, 2_000, 10_000)},
    "cohort": {f"{c} clients": replace(BASE, per_round=c) for c in (10, 20, 50, 100, 200)},
    "model": {
        f"60-{'-'.join(map(str, hidden))}-10": replace(BASE, network=mlp(60, *hidden))
        for hidden in ((32,), (64,), (128,), (256,), (256, 256))
    },
}
POPULATION_BOUND = 1.10
"""What a round of the largest population may take of one of the smallest."""
MEMORY_BOUND = 20 * 2**20
"""Bytes by which memory may grow."""


def compare(workloads: dict[str, Workload], turns: int, block: int) -> list[dict[str, Any]]:
    """Return the median milliseconds of a round of each workload, and its ratio to the first."""
    runs = {name: Product(w, w.data(), "auto") for name, w in workloads.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns + 1):
        for name, run in runs.items():
            seconds = statistics.median(run.time_rounds(block))
            if turn:  # the first is a warm-up
                taken[name].append(seconds)
    first = taken[next(iter(taken))]
    return [
        {
            "row": name,
            "ms": 1e3 * statistics.median(seconds),
            "ratio": statistics.median(a / b for a, b in zip(seconds, first, strict=True)),
        }
        for name, seconds in taken.items()
    ]


@dataclass
class Resident(L.Callback):
    """Notes the resident set at the end of some rounds."""

    at: tuple[int, ...]

    def __post_init__(self) -> None:
        self.bytes: list[int] = []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch + 1 in self.at:
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.bytes.append(pages * os.sysconf("SC_PAGE_SIZE"))


def growth(make: Callable[[], Algorithm], rounds: int) -> int:
    """Return the bytes by which memory grows in the last nine tenths of the rounds."""
    workload = replace(BASE, clients=60)  # all have been seen after a few rounds
    run = Product(workload, workload.data(), "auto", algorithm=make())
    resident = Resident((max(1, rounds // 10), rounds))
    run.trainer.callbacks.append(resident)
    run.time_rounds(rounds - 1)
    before, after = resident.bytes
    return after - before


def main() -> int:
    """Measure, print tables, and on demand one line of JSON; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--block", type=int, default=6, help="timed rounds in a turn")
    parser.add_argument("--rounds", type=int, default=200, help="of which memory is watched")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)

    console = Console()
    found: dict[str, Any] = {}
    for title, workloads in TABLES.items():
        found[title] = compare(workloads, args.turns, args.block)
        table = Table(title, "ms / round", "ratio")
        for row in found[title]:
            table.add_row(row["row"], f"{row['ms']:.2f}", f"{row['ratio']:.2f}")
        console.print(table)
    found["growth"] = {"fedavg": growth(FedAvg, args.rounds)}
    found["growth"]["scaffold"] = growth(Scaffold, args.rounds)
    for name, size in found["growth"].items():
        console.print(f"{name}: {size / 2**20:+.1f} MiB over {args.rounds} rounds")
    load = os.getloadavg()[0]
    console.print(f"{machine()}, load {load:.1f}", highlight=False, soft_wrap=True)
    if args.json:
        print(json.dumps(found))
    missed = found["population"][-1]["ratio"] > POPULATION_BOUND
    return int(missed or max(found["growth"].values()) > MEMORY_BOUND)


if __name__ == "__main__":
    restart()  # as `fltune run` does
    sys.exit(main())
