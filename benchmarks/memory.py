"""Peak resident memory of methods with client state, for a large population.

    python benchmarks/memory.py
    python benchmarks/memory.py --method fedcdr --cohorts reshuffled --json

10,000 clients, an MLP 784-128-10 (101,770 parameters), 20 rounds of 500 clients, through
``Trainer.fit``, each method in a process of its own. Clients seen keep one or two vectors each:
2.6 GB per vector where cohorts are uniform (some 6,400 clients seen), 4.1 GB where they are
reshuffled (all of them). Client state beyond ``fltune.federation.client_state.LARGE`` lies in
files, so that it does not count here.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import lightning as L
import torch
from rich.console import Console
from rich.table import Table

from fltune.algorithms import ALGORITHMS
from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, FederatedModule
from fltune.federation.local import LocalSGD
from fltune.federation.losses import cross_entropy
from fltune.federation.quiet import quiet
from fltune.models.mlp import MLP
from fltune.participation.base import Participation
from fltune.participation.trace import Trace
from fltune.participation.uniform import Uniform
from fltune.server.fedgm import FedSGD

SEED = 0
METHODS = ("fedcdr", "feddc", "scaffold")
SAMPLES = 6
LIMIT = 8 * 2**30
"""Bytes that every method must stay below."""


def population(clients: int) -> FederatedData:
    """Deal random images and labels, the same number to every client."""
    random = torch.Generator().manual_seed(SEED)
    x = torch.randn(clients * SAMPLES, 784, generator=random)
    y = torch.randint(10, (len(x),), generator=random)
    unused = Split(x[:1], y[:1])
    held = torch.arange(len(x)).split(SAMPLES)
    return FederatedData.from_clients(Split(x, y), unused, unused, held, 10)


def cohorts(kind: str, clients: int, per_round: int) -> Participation:
    """Return uniform cohorts, or a permutation of all clients cut into blocks."""
    if kind == "uniform":
        return Uniform(per_round)
    order = torch.randperm(clients, generator=torch.Generator().manual_seed(SEED))
    return Trace([block.tolist() for block in order.split(per_round)])


def measure(method: str, kind: str, clients: int, rounds: int) -> dict[str, Any]:
    """Run a method in this process; return its peak, which includes the interpreter."""
    started = time.perf_counter()
    torch.manual_seed(SEED)
    sgd = LocalSGD(lr=0.05, epochs=1, batch_size=None)
    algorithm = ALGORITHMS.load(method)()
    module = FederatedModule(
        MLP((784,), 10, [128]), cross_entropy, algorithm, sgd, clients, rounds, 10
    )
    pattern = cohorts(kind, clients, clients // 20).bind(clients, SEED)
    source = FederatedDataModule(population(clients), pattern, sgd, SEED)
    silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    with quiet():
        trainer = L.Trainer(
            max_epochs=rounds,
            accelerator="cpu",
            callbacks=[FedSGD()],
            limit_val_batches=0,
            **dict.fromkeys(silent, False),  # type: ignore[arg-type]
        )
        trainer.fit(module, source)
    assert module.x.isfinite().all(), "the run diverged"
    assert module.client_state is not None
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "method": method,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "seconds": time.perf_counter() - started,
        "rows": module.client_state.seen,
    }


def main() -> int:
    """Measure, print a table, and on demand one line of JSON; 1 if a method is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", nargs="+", choices=list(ALGORITHMS), default=METHODS)
    parser.add_argument("--cohorts", choices=["uniform", "reshuffled"], default="uniform")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.here:
        record = measure(args.method[0], args.cohorts, args.clients, args.rounds)
        print(json.dumps(record))
        return 0

    records = []
    same = ["--cohorts", args.cohorts, "--clients", str(args.clients)]
    same += ["--rounds", str(args.rounds), "--threads", str(args.threads)]
    table = Table("method", "clients seen", "peak GiB", "seconds", title="Peak resident memory")
    for method in args.method:
        command = [sys.executable, __file__, "--here", "--method", method, *same]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        records.append(json.loads(done.stdout.splitlines()[-1]))
        r = records[-1]
        table.add_row(
            method, str(r["rows"]), f"{r['peak_bytes'] / 2**30:.2f}", f"{r['seconds']:.1f}"
        )
    Console().print(table)
    if args.json:
        print(json.dumps(records))
    return int(any(r["peak_bytes"] > LIMIT for r in records))


if __name__ == "__main__":
    sys.exit(main())
