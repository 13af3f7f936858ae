"""Seconds per communication round: fltune's strategies beside a plain PyTorch loop.

    python benchmarks/rounds.py
    python benchmarks/rounds.py --workload W3 W3x20
    python benchmarks/rounds.py --workload W2 --strategy loop --processes 2 --json

FedAvg with plain SGD on synthetic tensors; nothing is evaluated. fltune runs through its own
``Trainer.fit``, with the callbacks that ``fltune.runner`` gives it. The plain loop is what a
careful researcher writes by hand; it sees the same cohorts and makes the same number of steps.

The candidates take turns in blocks of rounds, so that a drift of the machine hits them all: trust
the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

from fltune.algorithms.base import Algorithm
from fltune.algorithms.fedavg import FedAvg
from fltune.data.federated import FederatedData, Split
from fltune.federation import DivergenceGuard, FederatedDataModule, FederatedModule, History
from fltune.federation.allocation import restart
from fltune.federation.datamodule import TOGETHER
from fltune.federation.local import LocalSGD
from fltune.federation.losses import cross_entropy
from fltune.federation.processes import Number, Processes
from fltune.federation.quiet import NoProfiler, quiet
from fltune.federation.strategies import STRATEGIES, candidates
from fltune.models.mlp import MLP
from fltune.participation.base import Participation
from fltune.participation.uniform import Uniform
from fltune.server.fedgm import FedSGD

SEED = 0
CLASSES = 10
BLOCKS = 4
"""Turns that each candidate gets; a turn begins with a round that is not timed."""


def mlp(features: int, *hidden: int) -> Callable[[], nn.Module]:
    """Return a builder of multilayer perceptrons."""
    return lambda: MLP((features,), CLASSES, list(hidden))


def cnn() -> nn.Module:
    """Build conv32-pool-conv32-pool-256-64-10 for images 3x32x32."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()),
        nn.Linear(64, CLASSES),
    )


@dataclass(frozen=True)
class Workload:
    """A federated task, by its shapes alone.

    Attributes:
        clients: N.
        per_round: clients in a cohort.
        samples: the fewest and the most samples of a client.
        shape: of one sample.
        network: builds the model.
        epochs, batch_size: of the clients' SGD.
        rounds: timed rounds that are enough for a steady median.
    """

    clients: int
    per_round: int
    samples: tuple[int, int]
    shape: tuple[int, ...]
    network: Callable[[], nn.Module]
    epochs: int
    batch_size: int
    rounds: int
    lr: float = 0.05

    def data(self) -> FederatedData:
        """Draw random samples and labels, and deal them to the clients."""
        random = torch.Generator().manual_seed(SEED)
        low, high = self.samples
        sizes = torch.randint(low, high + 1, (self.clients,), generator=random).tolist()
        total = sum(sizes)
        x = torch.randn(total, *self.shape, generator=random)
        y = torch.randint(CLASSES, (total,), generator=random)
        unused = Split(x[:1], y[:1])
        clients = torch.arange(total).split(sizes)
        return FederatedData.from_clients(Split(x, y), unused, unused, clients, CLASSES)

    def initial_network(self) -> nn.Module:
        """Build the model; every call gives the same parameters."""
        torch.manual_seed(SEED)
        return self.network()

    def participation(self) -> Participation:
        """Build the sampler of cohorts; every call gives the same cohorts."""
        return Uniform(per_round=self.per_round).bind(self.clients, SEED)


WORKLOADS = {
    "W1": Workload(100, 10, (600, 600), (784,), mlp(784, 200, 200), 1, 32, rounds=16),
    "W2": Workload(20, 10, (320, 320), (3, 32, 32), cnn, 1, 32, rounds=4),
    "W3": Workload(500, 50, (10, 50), (60,), mlp(60, 32), 5, 16, rounds=32),
    # W3 with 20 times the population: a round costs what its cohort costs
    "W3x20": Workload(10_000, 50, (10, 50), (60,), mlp(60, 32), 5, 16, rounds=32),
}


class PlainLoop:
    """A module and an optimizer per client, batches by index, an average of state dicts."""

    def __init__(self, workload: Workload, data: FederatedData) -> None:
        self.workload, self.data = workload, data
        self.network = workload.initial_network()
        self.participation = workload.participation()
        self.samples = 0  # processed by clients so far

    def time_rounds(self, count: int) -> list[float]:
        """Make one round, then ``count`` more; return the seconds of the latter."""
        seconds = []
        for _ in range(count + 1):
            started = time.perf_counter()
            self.round()
            seconds.append(time.perf_counter() - started)
        return seconds[1:]

    def round(self) -> None:
        """Make one round of FedAvg."""
        (cohort,) = self.participation
        states = [self.train(client) for client in cohort]
        average = {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}
        self.network.load_state_dict(average)

    def train(self, client: int) -> dict[str, torch.Tensor]:
        """Return the parameters to which a client's local epochs lead."""
        network = copy.deepcopy(self.network)
        optimizer = torch.optim.SGD(network.parameters(), lr=self.workload.lr)
        x, y = self.data.train.x, self.data.train.y
        mine = self.data.client(client)
        for _ in range(self.workload.epochs):
            for batch in mine[torch.randperm(len(mine))].split(self.workload.batch_size):
                optimizer.zero_grad()
                F.cross_entropy(network(x[batch]), y[batch]).backward()
                optimizer.step()
                self.samples += len(batch)
        return network.state_dict()


def evened(seconds: Sequence[float]) -> list[float]:
    """Share the seconds of rounds evenly among as many as may be planned together.

    Else a median would leave out the round that planned the others.
    """
    blocks = [seconds[at : at + TOGETHER] for at in range(0, len(seconds), TOGETHER)]
    return [statistics.fmean(block) for block in blocks for _ in block]


class Stopwatch(L.Callback):
    """Note when each round ends; the last of the callbacks."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.ends.append(time.perf_counter())


class Product:
    """fltune, from one round's end to the next one's: Lightning's loop is part of it."""

    def __init__(
        self,
        workload: Workload,
        data: FederatedData,
        strategy: str,
        processes: Number = 1,
        algorithm: Algorithm | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = workload.initial_network().to(dtype)
        sgd = LocalSGD(lr=workload.lr, epochs=workload.epochs, batch_size=workload.batch_size)
        self.module = FederatedModule(
            *(self.network, cross_entropy, algorithm or FedAvg(), sgd, workload.clients, 1),
            strategy=strategy,
        )
        self.datamodule = FederatedDataModule(data, workload.participation(), sgd, SEED, dtype)
        self.stopwatch = Stopwatch()
        silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        with quiet():
            self.trainer = L.Trainer(
                max_epochs=0,
                accelerator="gpu" if device == "cuda" else "cpu",
                devices=1,
                callbacks=[
                    *(FedSGD(), DivergenceGuard(), Processes(processes), History()),
                    self.stopwatch,
                ],
                profiler=NoProfiler(),
                limit_val_batches=0,
                **dict.fromkeys(silent, False),  # type: ignore[arg-type]
            )

    def time_rounds(self, count: int) -> list[float]:
        """Make one round, then ``count`` more; return the :func:`evened` seconds of the latter."""
        self.stopwatch.ends.clear()
        self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + count + 1
        with quiet():
            self.trainer.fit(self.module, self.datamodule)
        return evened([end - start for start, end in itertools.pairwise(self.stopwatch.ends)])


def measure(
    workload: Workload, strategies: Sequence[str], rounds: int, processes: int = 1
) -> dict[str, float]:
    """Return the median seconds of a round, by strategy; ``plain`` is the plain loop."""
    data = workload.data()
    candidates: dict[str, PlainLoop | Product] = {"plain": PlainLoop(workload, data)}
    candidates |= {name: Product(workload, data, name, processes) for name in strategies}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    while len(seconds["plain"]) < rounds:
        for name, candidate in candidates.items():
            seconds[name] += candidate.time_rounds(-(rounds // -BLOCKS))
    return {name: statistics.median(values) for name, values in seconds.items()}


def machine() -> str:
    """Describe in one line what the numbers depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    cpu = next(models, platform.processor() or platform.machine())
    return f"{os.cpu_count()} cores of {cpu}, torch {torch.__version__}"


def main() -> None:
    """Measure, print a table, and on demand one line of JSON."""
    from rich.console import Console  # here: the device check takes workloads, and lacks rich
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(STRATEGIES)
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=["W1", "W3"])
    parser.add_argument("--strategy", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, help="timed rounds; default: the workload's own")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--processes", type=int, default=1, help="of fltune's own runs")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    table = Table("workload", "strategy", "s / round", "ratio to plain", title="Median round")
    records = []
    for name in args.workload:
        workload = WORKLOADS[name]
        known = candidates(workload.network(), cross_entropy)
        strategies = [s for s in args.strategy if s in known]
        rounds = args.rounds or workload.rounds
        medians = measure(workload, strategies, rounds, args.processes)
        for strategy, seconds in medians.items():
            table.add_row(name, strategy, f"{seconds:.4f}", f"{seconds / medians['plain']:.2f}")
            records.append({"workload": name, "strategy": strategy, "seconds": seconds})
    console = Console()
    console.print(table)
    text = f"{machine()}, {args.threads} thread(s), {args.processes} process(es) for fltune"
    console.print(text, highlight=False, soft_wrap=True)
    if args.json:
        print(json.dumps(records))


if __name__ == "__main__":
    restart()  # as `fltune run` does
    main()
