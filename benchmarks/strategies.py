"""How good the choice of ``strategy: auto`` is: its time beside the best forced strategy's.

    python benchmarks/strategies.py
    python benchmarks/strategies.py --row mlp_small conv_28 --turns 9 --json
    python benchmarks/strategies.py --row residual_small layer_norm conv_8 --compiled

Twenty rows of models (chains, other dense networks, convolutions, mixtures), cohort sizes and
client sizes. One round's local work of a few steps, without Lightning; all strategies that a
network allows take turns, and a row's ratio is the median over turns of auto's time by the best
one's of the same turn, the best one being that with the smallest median. 1.10 is the bound.
``--compiled`` times ``compiled`` too, which auto never takes and best never is, and its first call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rounds import machine, mlp
from torch import Tensor, nn

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, LocalSolver
from fltune.federation.allocation import restart
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.strategies import COMPILED, STRATEGIES, candidates
from fltune.randomness import client_keys

BOUND = 1.10
"""What auto may take of the best strategy's time."""


class Residual(nn.Module):
    """A dense network that is no chain."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(features, width), nn.Linear(width, width)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.last(hidden + self.inner(hidden).relu())


def residual(features: int, width: int) -> Callable[[], nn.Module]:
    """Return a builder of residual dense networks."""
    return lambda: Residual(features, width)


def conv(channels: int, width: int, pixels: int) -> Callable[[], nn.Module]:
    """Return a builder of networks of two convolutions and two dense layers."""
    return lambda: nn.Sequential(
        *(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(width * (pixels // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def normed(features: int, width: int) -> Callable[[], nn.Module]:
    """Return a builder of dense networks with LayerNorm."""
    return lambda: nn.Sequential(
        *(nn.Linear(features, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 10))
    )


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        network: builds the model.
        shape: of one sample.
        clients: in the cohort.
        samples: the fewest and the most samples of a client.
        batch_size: None for full batches.
        steps: local steps of every client; None for one epoch.
    """

    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    clients: int
    samples: tuple[int, int]
    batch_size: int | None
    steps: int | None = None


ROWS = {
    # chains of dense layers
    "softmax": Row(mlp(60), (60,), 30, (10, 60), 10),
    "mlp_tiny": Row(mlp(60, 32), (60,), 50, (10, 50), 16),
    "mlp_tiny_few": Row(mlp(60, 32), (60,), 3, (40, 60), 16),
    "mlp_small": Row(mlp(784, 64, 30), (784,), 10, (100, 200), 32),
    "mlp_large": Row(mlp(784, 200, 200), (784,), 10, (150, 150), 32),
    "mlp_large_few": Row(mlp(784, 200, 200), (784,), 2, (300, 300), 64),
    "mlp_large_many": Row(mlp(784, 200, 200), (784,), 60, (40, 60), 20),
    "mlp_uneven": Row(mlp(784, 64), (784,), 20, (5, 400), 32),
    "mlp_full_batch": Row(mlp(784, 64), (784,), 10, (20, 300), None, 2),
    "mlp_one_client": Row(mlp(784, 64), (784,), 1, (300, 300), 32),
    "mlp_batch_of_one": Row(mlp(64, 32), (64,), 10, (10, 20), 1),
    # other dense networks
    "residual_small": Row(residual(60, 32), (60,), 50, (10, 50), 16),
    "residual_few": Row(residual(60, 32), (60,), 2, (60, 60), 16),
    "residual_784": Row(residual(784, 64), (784,), 10, (100, 200), 32),
    "residual_large": Row(residual(784, 200), (784,), 10, (100, 100), 32),
    "layer_norm": Row(normed(64, 64), (64,), 20, (30, 60), 16),
    # convolutions
    "conv_8": Row(conv(1, 4, 8), (1, 8, 8), 20, (20, 40), 10),
    "conv_28": Row(conv(1, 16, 28), (1, 28, 28), 10, (60, 60), 20),
    "conv_32": Row(conv(3, 32, 32), (3, 32, 32), 5, (64, 64), 32),
    "conv_28_many": Row(conv(1, 8, 28), (1, 28, 28), 40, (10, 20), 10),
}


def solvers(row: Row, compiled: bool = False) -> tuple[dict[str, Callable[[], Any]], str]:
    """Return the call that solves a row's local problems by strategy, and what auto takes.

    ``compiled`` adds that strategy where ``stacked`` is allowed.
    """
    torch.manual_seed(0)
    network = row.network()
    random = torch.Generator().manual_seed(0)
    low, high = row.samples
    sizes = torch.randint(low, high + 1, (row.clients,), generator=random)
    total = int(sizes.sum())
    y = torch.randint(10, (total,), generator=random)
    data = Split(torch.randn(total, *row.shape, generator=random), y)
    sgd = LocalSGD(lr=0.05, batch_size=row.batch_size, steps=row.steps)
    keys = client_keys(0, 0, torch.arange(row.clients))
    held = Holdings(torch.arange(total), sizes.cumsum(0) - sizes, sizes)
    amount = torch.full_like(sizes, sgd.amount)
    plan = plan_batches(held, keys, amount, sgd.unit, sgd.batch_size)
    flat = FlatNetwork(network)
    problem = LocalProblem(flat.read())
    calls = {}
    names = candidates(network, cross_entropy)
    for name in [*names, *([COMPILED] if compiled and "stacked" in names else [])]:
        solve = LocalSolver(flat, cross_entropy, sgd, name).solve
        calls[name] = partial(solve, problem, data, plan, sgd.lr, keys)
    auto = LocalSolver(flat, cross_entropy, sgd, "auto")
    auto.solve(problem, data, plan, sgd.lr, keys)
    return calls, auto.strategy


def seconds(solve: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one call, the mean of a few in a row."""
    started = time.perf_counter()
    for _ in range(repeats):
        solve()
    return (time.perf_counter() - started) / repeats


def measure(row: Row, turns: int, compiled: bool = False) -> dict[str, Any]:
    """Time all strategies that a row's network allows, in turns."""
    calls, auto = solvers(row, compiled)
    first = {name: seconds(call, 1) for name, call in calls.items()}  # warm-up
    repeats = max(1, int(0.03 / min(first.values())))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            taken[name].append(seconds(call, repeats))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    best = min((n for n in medians if n != COMPILED), key=medians.__getitem__)
    pairs = zip(taken[auto], taken[best], strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    found = {"seconds": medians, "auto": auto, "best": best, "ratio": ratio}
    return {**found, "compiling": first[COMPILED]} if compiled and COMPILED in first else found


def main() -> int:
    """Measure, print a table, and on demand one line of JSON; 1 if auto misses the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--compiled", action="store_true", help="time that strategy, too")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)

    names = [n for n in STRATEGIES if n != COMPILED or args.compiled]
    table = Table("row", *names, "auto", "best", "auto / best", title="Milliseconds a round")
    records = []
    for name in args.row:
        found = measure(ROWS[name], args.turns, args.compiled)
        records.append({"row": name, **found})
        taken = [found["seconds"].get(s) for s in names]
        cells = ["" if t is None else f"{1e3 * t:.1f}" for t in taken]
        table.add_row(name, *cells, found["auto"], found["best"], f"{found['ratio']:.2f}")
    console = Console()
    console.print(table)
    for record in records:
        if "compiling" in record:
            seconds = f"{record['compiling']:.0f} s until {record['row']} is compiled"
            console.print(seconds, highlight=False)
    load = os.getloadavg()[0]
    console.print(f"{machine()}, load {load:.1f}", highlight=False, soft_wrap=True)
    if args.json:
        print(json.dumps(records))
    return int(max(record["ratio"] for record in records) > BOUND)


if __name__ == "__main__":
    restart()  # as `fltune run` does
    sys.exit(main())
