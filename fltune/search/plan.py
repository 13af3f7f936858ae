"""The bill before the work: trials, rounds, client samples, time, disk, memory."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.federation.history import Row
from fltune.runner import build, quiet, use_threads
from fltune.search.config import Method, SearchConfig

PROBE_ROUNDS = 5
"""Rounds that are run to time a method; the first is a warm-up."""
START_SECONDS = 15.0
"""Ray's own start and that of its workers, as measured on two cores."""
BYTES_PER_VALUE = 120
"""What one metric value costs in the tracking store, with its indexes."""


@dataclass
class MethodBill:
    """What one method will cost.

    Attributes:
        trials: in the search; confirmation runs come on top.
        exact: whether every cell of the space is run once.
        rounds: communication rounds of all its trials and confirmation runs.
        client_samples: samples its clients will process in them.
        seconds: of one core, extrapolated from a few rounds of the space's first point.
    """

    trials: int
    exact: bool
    rounds: int
    client_samples: int
    seconds: float


@dataclass
class Bill:
    """What a search will cost.

    Attributes:
        methods: by name.
        concurrent: trials at once on this machine.
        wall_seconds: all of it, on this machine.
        disk_bytes: in the tracking store.
        memory_bytes: of one worker.
    """

    methods: dict[str, MethodBill]
    concurrent: int
    wall_seconds: float
    disk_bytes: int
    memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def plan(config: SearchConfig) -> Bill:
    """Work out the bill of a search; runs a few rounds of each method to time them.

    Raises:
        ConfigError, DataError: as the search itself would.
    """
    from fltune.search.search import check_data
    from fltune.search.tuner import concurrency, resources_here

    check_data(config)
    settings = config.settings
    concurrent = concurrency(settings, resources_here())
    use_threads(settings.resources.cpus)
    bills = {name: _bill(method, config) for name, method in config.methods.items()}
    work = sum(b.seconds for b in bills.values())
    evaluations = sum(
        b.rounds / m.experiment(m.first_values()).eval_every
        for b, m in zip(bills.values(), config.methods.values(), strict=True)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Bill(
        methods=bills,
        concurrent=concurrent,
        wall_seconds=work / concurrent + START_SECONDS,
        disk_bytes=int(evaluations * 6 * BYTES_PER_VALUE),
        memory_bytes=peak * (1 if sys.platform == "darwin" else 1024),
    )


def _bill(method: Method, config: SearchConfig) -> MethodBill:
    search = config.settings.search
    experiment = method.experiment(method.first_values())
    times: list[float] = []

    def on_row(row: Row) -> None:
        times.append(time.perf_counter())
        built.trainer.should_stop = built.trainer.should_stop or len(times) == PROBE_ROUNDS

    built = build(experiment.with_values({"eval_every": 1}), on_row)
    with quiet():
        built.trainer.fit(built.module, built.datamodule)
    made = len(times)
    per_round = (times[-1] - times[0]) / max(made - 1, 1)
    trials = method.trials(search)
    runs = trials + search.confirm_seeds
    return MethodBill(
        trials=trials,
        exact=method.exact(search),
        rounds=runs * experiment.rounds,
        client_samples=int(runs * experiment.rounds * built.module.client_samples / made),
        seconds=runs * experiment.rounds * per_round,
    )


def print_bill(bill: Bill, config: SearchConfig, console: Console) -> None:
    """Print the bill."""
    seeds = config.settings.search.confirm_seeds
    table = Table(title=escape(f"{Path(config.source).name}: the bill"), title_justify="left")
    table.add_column("method", style="bold")
    for column in ("trials", "rounds", "client samples", "core minutes"):
        table.add_column(column, justify="right")
    for name, b in bill.methods.items():
        exact = " (exact grid)" if b.exact else ""
        row = [f"{b.trials}{exact}", f"{b.rounds:,}", f"{b.client_samples:,}"]
        table.add_row(escape(name), *row, f"{b.seconds / 60:.1f}")
    console.print(table)
    console.print(
        f"{bill.concurrent} trials at a time, {seeds} confirmation seeds included: about "
        f"{bill.wall_seconds / 60:.1f} minutes here; {bill.disk_bytes / 2**20:.1f} MiB in the "
        f"tracking store; {bill.memory_bytes / 2**20:.0f} MiB per worker.",
        highlight=False,
    )
