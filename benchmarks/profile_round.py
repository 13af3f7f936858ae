"""Where the time of a round goes: local work, and everything around it.

    python benchmarks/profile_round.py
    python benchmarks/profile_round.py --workload W3 --rounds 60 --json

Parts of a round through ``Trainer.fit``: drawing the cohort and planning its batches, the local
solver, the algorithm's and server's steps, and the rest, which is Lightning's loop with its
callbacks. Cohorts are made some rounds in advance, so medians are over means of as many rounds.
Seconds are processor time of the one process and its one thread, so that other programs matter
less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rounds import WORKLOADS, Product, Workload, machine

from fltune.federation.allocation import restart
from fltune.federation.datamodule import TOGETHER

PARTS = ("cohort and batches", "local solver", "aggregation and server", "Lightning and the rest")


class Meter:
    """Adds up the seconds spent in some methods, from one reading to the next."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PARTS, 0.0)

    def watch(self, owner: Any, method: str, part: str, inner: str | None = None) -> None:
        """Measure an object's method; what it spends in the part ``inner`` is not its own."""
        original: Callable[..., Any] = getattr(owner, method)

        def measured(*args: Any, **kwargs: Any) -> Any:
            before = self.spent[inner] if inner else 0.0
            started = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                within = (self.spent[inner] - before) if inner else 0.0
                self.spent[part] += time.process_time() - started - within

        setattr(owner, method, measured)

    def read(self) -> dict[str, float]:
        """Return what was spent since the last reading."""
        found, self.spent = self.spent, dict.fromkeys(PARTS, 0.0)
        return found


class Rounds:
    """A stopwatch that reads a meter at every round's end."""

    def __init__(self, product: Product) -> None:
        self.meter, self.rows = Meter(), []  # type: ignore[var-annotated]
        solver, cohorts, aggregation, rest = PARTS[1], PARTS[0], PARTS[2], PARTS[3]
        self.meter.watch(product.module.solver, "solve", solver)
        self.meter.watch(product.datamodule, "cohorts", cohorts)
        self.meter.watch(product.datamodule.participation, "upcoming", cohorts)
        self.meter.watch(product.module, "training_step", aggregation, solver)
        server = product.trainer.callbacks[0]
        self.meter.watch(server, "on_train_batch_end", aggregation)
        original = product.stopwatch.on_train_epoch_end
        began = [time.process_time()]

        def ended(*args: Any) -> None:
            original(*args)
            now = time.process_time()
            row = self.meter.read()
            row[rest] = now - began[0] - sum(row.values())
            self.rows.append({**row, "round": now - began[0]})
            began[0] = now

        product.stopwatch.on_train_epoch_end = ended  # type: ignore[method-assign]


def measure(workload: Workload, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of the parts of a round, and of the whole."""
    product = Product(workload, workload.data(), "auto")
    watched = Rounds(product)
    product.time_rounds(max(rounds, TOGETHER) + 2)
    rows = watched.rows[3:]  # the first hold the warm-up
    means = [
        {part: statistics.fmean(row[part] for row in block) for part in (*PARTS, "round")}
        for block in zip(*[iter(rows)] * TOGETHER, strict=False)
    ]
    return {part: 1e3 * statistics.median(m[part] for m in means) for part in (*PARTS, "round")}


def main() -> None:
    """Measure, print a table, and on demand one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=["W1", "W3"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)

    found = {name: measure(WORKLOADS[name], args.rounds) for name in args.workload}
    table = Table("part", *args.workload, title="Milliseconds of a round, median")
    for part in (*PARTS, "round"):
        table.add_row(part, *(f"{found[name][part]:.2f}" for name in args.workload))
    around = {name: sum(v[p] for p in PARTS if p != PARTS[1]) for name, v in found.items()}
    shares = (f"{around[n]:.2f} ({around[n] / found[n]['round']:.0%})" for n in args.workload)
    table.add_row("all but the solver", *shares)
    console = Console()
    console.print(table)
    load = os.getloadavg()[0]
    console.print(f"{machine()}, load {load:.1f}", highlight=False, soft_wrap=True)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    restart()  # as `fltune run` does
    main()
