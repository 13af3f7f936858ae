"""Rounds per second of runs that differ in their rates: one after the other, and packed.

    python benchmarks/packing.py
    python benchmarks/packing.py --workload digits --members 4 16 --json

Whole runs through ``fltune.runner.run`` and ``fltune.packing.run_pack``, validation included and
building apart. The candidates take turns, so that a drift of the machine hits them all: trust the
ratios, not the seconds. ``solver`` is the share of the time that is the merged local work; the rest
is Lightning's loop, once for all members, and what each member's method, server and evaluation do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fltune.experiment import Experiment
from fltune.federation.allocation import restart
from fltune.federation.local import LocalSolver
from fltune.packing import run_pack, worth_packing
from fltune.runner import run

ALONE = 0
"""Stands for runs one after the other, where numbers of members are meant."""
TURNS = 5

WORKLOADS: dict[str, dict[str, Any]] = {
    "digits": {  # search_spaces/digits_fedgm.yaml
        "data": {
            "name": "digits",
            "clients": 100,
            "partition": {"kind": "dirichlet", "alpha": 0.5},
        },
        "model": {"name": "mlp", "hidden": [64, 32]},
        "participation": {"kind": "uniform", "per_round": 5},
        "client": {"epochs": 3, "batch_size": 8},
        "rounds": 20,
        "eval_every": 5,
    },
    "W3": {  # benchmarks/rounds.py
        "data": {"name": "synthetic", "clients": 500},
        "model": {"name": "mlp", "hidden": [32]},
        "participation": {"kind": "uniform", "per_round": 50},
        "client": {"epochs": 5, "batch_size": 16},
        "rounds": 10,
        "eval_every": 5,
    },
    "middle": {
        "data": {"name": "digits", "clients": 20},
        "model": {"name": "mlp", "hidden": [512, 64]},
        "participation": {"kind": "uniform", "per_round": 10},
        "client": {"steps": 5, "batch_size": 32},
        "rounds": 10,
        "eval_every": 5,
    },
    "stacked": {  # as a network that is no chain of dense layers would run
        "data": {"name": "digits", "clients": 100},
        "model": {"name": "mlp", "hidden": [64, 32]},
        "participation": {"kind": "uniform", "per_round": 5},
        "client": {"epochs": 3, "batch_size": 8},
        "rounds": 10,
        "eval_every": 5,
        "strategy": "stacked",
    },
}


def experiments(workload: str, count: int) -> list[Experiment]:
    """Return configs that differ in the clients' and the server's rate."""
    base = Experiment.parse({**WORKLOADS[workload], "server": "fedgm", "device": "cpu"})
    return [
        base.with_values({"client.lr": 0.05 + 0.001 * i, "server.lr": 1.0 - 0.005 * i})
        for i in range(count)
    ]


class Stopwatch:
    """Adds up the seconds that local solvers take, while it is entered."""

    def __enter__(self) -> Stopwatch:
        self.seconds = 0.0
        self._solve = solve = LocalSolver.solve

        def timed(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return solve(*args, **options)
            finally:
                self.seconds += time.perf_counter() - started

        LocalSolver.solve = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        LocalSolver.solve = self._solve  # type: ignore[method-assign]


def take_turn(workload: str, members: int) -> tuple[float, float]:
    """Return the seconds of a round of one run, and the solver's share of them."""
    configs = experiments(workload, members or 1)
    with Stopwatch() as watch:
        if members == ALONE:
            results: Sequence[Any] = [run(configs[0], test=False)]
        else:
            results = run_pack(configs)
    failed = [result for result in results if isinstance(result, Exception)]
    if failed:
        raise failed[0]
    seconds = sum(result.seconds for result in results)
    return seconds / sum(result.rounds for result in results), watch.seconds / seconds


def measure(workload: str, sizes: Sequence[int], turns: int) -> dict[int, tuple[float, float]]:
    """Return the median seconds of a round and the median share of the solver, by pack size."""
    seen: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(turns + 1):
        for size in sizes:
            seen[size].append(take_turn(workload, size))
    return {
        size: tuple(statistics.median(column) for column in zip(*turns[1:], strict=True))  # type: ignore[misc]
        for size, turns in seen.items()
    }


def machine() -> str:
    """Describe in one line what the numbers depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    cpu = next(models, platform.processor() or platform.machine())
    return f"{os.cpu_count()} cores of {cpu}, torch {torch.__version__}, 1 thread"


def main() -> None:
    """Measure, print a table, and on demand one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=["digits", "W3"])
    parser.add_argument("--members", nargs="+", type=int, default=[1, 4, 8, 16, 64])
    parser.add_argument("--turns", type=int, default=TURNS, help="of each candidate")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)

    columns = ("workload", "members", "rounds / s of all runs", "ratio to alone", "solver")
    table = Table(*columns, title="Runs that differ in their rates")
    records = []
    for workload in args.workload:
        medians = measure(workload, [ALONE, *args.members], args.turns)
        alone = medians[ALONE][0]
        for members, (seconds, share) in medians.items():
            ratio = alone / seconds
            name = "alone" if members == ALONE else str(members)
            table.add_row(workload, name, f"{1 / seconds:.0f}", f"{ratio:.2f}", f"{share:.0%}")
            records.append(
                {
                    "workload": workload,
                    "members": members,
                    "rounds_per_second": 1 / seconds,
                    "ratio": ratio,
                    "solver": share,
                }
            )
        table.add_section()
    console = Console()
    console.print(table)
    for workload in args.workload:
        worth = worth_packing(experiments(workload, 1)[0])
        console.print(f"worth_packing of {workload}: {worth}", highlight=False)
    console.print(machine(), highlight=False, soft_wrap=True)
    if args.json:
        print(json.dumps(records))


if __name__ == "__main__":
    restart()  # as `fltune run` does
    main()
