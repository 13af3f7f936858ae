"""One device, looked at from all sides: right numbers, speed, packing, memory, utilisation.

    python benchmarks/device_check.py
    python benchmarks/device_check.py --device cpu --quick --output check.json

Needs torch and lightning, and nothing that a search needs, so that a borrowed machine with a GPU
can run it as it is. It stops by itself after :data:`BUDGET` seconds: what does not fit is left out,
and says so. All that it finds goes into one JSON file:

- ``correctness``: each strategy on the device, in both precisions, beside the strategy ``loop`` on
  the CPU in float64: the largest difference of models after two rounds, relative to how far the
  parameters have moved. Exit status 1 where one is above its tolerance.
- ``speed``: rounds per second of the workloads of ``rounds.py``, by strategy; if there is a
  compiler ``compiled`` comes last, for what is left of the time (on a GPU with CUDA graphs).
- ``packing``: rounds per second of 1, 8 and 64 runs that differ in their rates, as one computation.

With a GPU the latter two also have the peak of its memory, and how busy it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rounds import SEED, WORKLOADS, Product, Stopwatch, Workload, machine, mlp
from torch import nn
from torch.nn.utils import parameters_to_vector

from fltune.algorithms.base import Algorithm
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.scaffold import Scaffold
from fltune.data.federated import FederatedData
from fltune.federation import DivergenceGuard, FederatedDataModule, FederatedModule, History
from fltune.federation.compiled import check_compiler
from fltune.federation.local import LocalSGD
from fltune.federation.losses import cross_entropy
from fltune.federation.pack import Pack
from fltune.federation.pack_members import Member
from fltune.federation.precision import FULL, products
from fltune.federation.quiet import quiet
from fltune.federation.strategies import COMPILED, candidates
from fltune.server.fedgm import FedSGD

BUDGET = 360.0
"""Seconds of the whole check."""
RESERVE = 30.0
"""Seconds before the end in which nothing new begins."""
SHARE = 12.0
"""Seconds that one measurement may take, its first round apart."""
PACKS = (1, 8, 64)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Of the largest move of a parameter; local steps magnify what sums of another order differ in."""

Measured = dict[str, Any]


def small_conv() -> nn.Module:
    """Build a convolutional network that ``loop`` and ``stacked`` know."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )


CHECKED = {
    "dense layers": Workload(12, 6, (5, 30), (20,), mlp(20, 16), 2, 8, rounds=2),
    "convolutions": Workload(8, 4, (5, 20), (3, 8, 8), small_conv, 2, 8, rounds=2),
}
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {"FedAvg": FedAvg, "SCAFFOLD": Scaffold}


def shrunk(workload: Workload) -> Workload:
    """Return a workload of the same shapes with little to do."""
    low, high = workload.samples
    samples = (min(low, 40), min(high, 40))
    return dataclasses.replace(workload, clients=4, per_round=2, samples=samples, rounds=2)


class Clock:
    """Says what still fits into the budget.

    Args:
        seconds: of the whole check, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.started = time.monotonic()
        self.last = self.started + seconds - min(RESERVE, seconds)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def attempt(self, measure: Callable[[], Measured]) -> Measured:
        """Return what is measured; or, in words, why nothing was."""
        if time.monotonic() >= self.last:
            return {"skipped": "out of time"}
        try:
            return measure()
        except Exception as error:  # such as no memory left: the others may still be measured
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


class Gauge:
    """Reads a device's memory and utilisation while something runs on it."""

    def __init__(self, device: str) -> None:
        self.gpu = device == "cuda"
        self.busy: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Gauge:
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        if utilisation(self.gpu) == "sampled":
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            self.busy.append(torch.cuda.utilization())

    def read(self) -> Measured:
        """Return the peak in MiB and the mean utilisation in percent, where they are known."""
        found: Measured = {}
        if self.gpu:
            found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        if self.busy:
            found["utilisation"] = statistics.mean(self.busy)
        return found


def utilisation(gpu: bool) -> str:
    """Say whether a device's utilisation can be read."""
    if not gpu:
        return "not read on a CPU"
    there = importlib.util.find_spec("pynvml") is not None
    return "sampled" if there else "not read: pynvml (nvidia-ml-py) is not installed"


def difference(
    workload: Workload, algorithm: str, strategy: str, device: str, dtype: torch.dtype
) -> Measured:
    """Return how far a strategy's model is from that of ``loop`` on the CPU in float64."""

    def model(strategy: str, device: str, dtype: torch.dtype) -> torch.Tensor:
        made = Product(
            *(workload, workload.data(), strategy),
            algorithm=ALGORITHMS[algorithm](),
            device=device,
            dtype=dtype,
        )
        made.time_rounds(workload.rounds - 1)
        return made.module.x.double().cpu()

    start = parameters_to_vector(workload.initial_network().parameters()).detach().double()
    exact = model("loop", "cpu", torch.float64)
    move = (exact - start).abs().max()
    found = float((model(strategy, device, dtype) - exact).abs().max() / move)
    return {"difference": found, "right": found <= TOLERANCE[dtype]}


def speed(workload: Workload, data: FederatedData, strategy: str, device: str) -> Measured:
    """Return the rounds per second of a run."""
    product = Product(workload, data, strategy, device=device)
    with Gauge(device) as gauge:
        return {**timed(product.time_rounds, workload.rounds), **gauge.read()}


def timed(time_rounds: Callable[[int], Sequence[float]], most: int) -> Measured:
    """Time so many rounds as fit into a share of the budget, the first of all apart.

    Args:
        time_rounds: makes one round, then so many more, and returns the seconds of the latter.
        most: rounds that are enough.
    """
    first = time_rounds(1)[0]
    seconds = time_rounds(max(1, min(most, int(SHARE / first) - 1)))
    median = statistics.median(seconds)
    return {"rounds_per_second": 1 / median, "seconds": median, "rounds": len(seconds)}


class Packed:
    """Runs of FedAvg that differ in their rates, as one computation."""

    def __init__(self, workload: Workload, data: FederatedData, runs: int, device: str) -> None:
        self.workload, self.data, self.runs, self.device = workload, data, runs, device

    def time_rounds(self, count: int) -> list[float]:
        """Make one round, then ``count`` more; return the seconds of the latter, for all runs."""
        rates = [self.workload.lr * (1 + 0.01 * i) for i in range(self.runs)]
        members = [self._member(rate, count + 1) for rate in rates]
        nominal = self._sgd(self.workload.lr)
        source = FederatedDataModule(self.data, self.workload.participation(), nominal, SEED)
        stopwatch = Stopwatch()
        silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        with quiet():
            trainer = L.Trainer(
                max_epochs=count + 1,
                accelerator="gpu" if self.device == "cuda" else "cpu",
                devices=1,
                callbacks=[stopwatch],
                limit_val_batches=0,
                **dict.fromkeys(silent, False),  # type: ignore[arg-type]
            )
            trainer.fit(Pack(members, on_leave=lambda member: None), source)
        for member in members:
            if member.error is not None:
                raise member.error
        return [end - start for start, end in itertools.pairwise(stopwatch.ends)]

    def _sgd(self, lr: float) -> LocalSGD:
        work = self.workload
        return LocalSGD(lr=lr, epochs=work.epochs, batch_size=work.batch_size)

    def _member(self, lr: float, rounds: int) -> Member:
        network, clients = self.workload.initial_network(), self.workload.clients
        module = FederatedModule(
            network, cross_entropy, FedAvg(), self._sgd(lr), clients, rounds, strategy="auto"
        )
        return Member(module, [FedSGD(), DivergenceGuard(), History()], rounds)


def packing(workload: Workload, data: FederatedData, runs: int, device: str) -> Measured:
    """Return the rounds per second of all runs of a pack together."""
    with Gauge(device) as gauge:
        found = {**timed(Packed(workload, data, runs, device).time_rounds, workload.rounds)}
        return {**found, "rounds_per_second": runs / found["seconds"], **gauge.read()}


def check(device: str, quick: bool, clock: Clock) -> dict[str, list[Measured]]:
    """Make all measurements that the budget allows."""
    found: dict[str, list[Measured]] = {"correctness": [], "speed": [], "packing": []}

    def note(part: str, measure: Callable[[], Measured], **names: Any) -> None:
        row = {**names, **clock.attempt(measure)}
        found[part].append(row)
        print(part, *(f"{name}={short(value)}" for name, value in row.items()), flush=True)

    def note_right(model: str, algorithm: str, strategy: str, dtype: torch.dtype) -> None:
        measure = partial(difference, CHECKED[model], algorithm, strategy, device, dtype)
        names = {"model": model, "algorithm": algorithm, "strategy": strategy}
        note("correctness", measure, **names, dtype=str(dtype).removeprefix("torch."))

    def note_speed(name: str, data: FederatedData, strategy: str) -> None:
        measure = partial(speed, workloads[name], data, strategy, device)
        note("speed", measure, workload=name, strategy=strategy)

    for (model, workload), algorithm in itertools.product(CHECKED.items(), ALGORITHMS):
        known = candidates(workload.network(), cross_entropy)
        for strategy, dtype in itertools.product(known, TOLERANCE):
            note_right(model, algorithm, strategy, dtype)
    workloads = {n: shrunk(w) if quick else w for n, w in WORKLOADS.items() if n != "W3x20"}
    for name, workload in workloads.items():
        data = workload.data()
        for strategy in candidates(workload.network(), cross_entropy):
            note_speed(name, data, strategy)
    data = workloads["W3"].data()
    for runs in PACKS[: 2 if quick else None]:
        measure = partial(packing, workloads["W3"], data, runs, device)
        note("packing", measure, workload="W3", runs=runs)
    if not quick and can_compile():  # it takes what is left of the budget, and maybe all of it
        for model in CHECKED:
            note_right(model, "FedAvg", COMPILED, torch.float32)
        for name in ("W3", "W1"):
            note_speed(name, workloads[name].data(), COMPILED)
    return found


def can_compile() -> bool:
    """Whether there is a compiler for the strategy ``compiled``."""
    try:
        check_compiler()
    except ValueError:
        return False
    return True


def short(value: Any) -> str:
    """Return a number with three digits, and anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def described(device: str) -> Measured:
    """Return what the numbers depend on."""
    about: Measured = {"machine": machine(), "threads": torch.get_num_threads(), "device": device}
    about["utilisation"] = utilisation(device == "cuda")
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        about["gpu"] = properties.name
        about["gpu_memory_mib"] = properties.total_memory / 2**20
        about["gpu_capability"] = f"{properties.major}.{properties.minor}"
        about["cuda"] = torch.version.cuda
    return about


def main(words: Sequence[str] | None = None) -> int:
    """Check a device and write what was found; 1 if a strategy's numbers are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--quick", action="store_true", help="small workloads, a few rounds")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of the whole check")
    parser.add_argument("--output", type=Path, default=Path("device_check.json"))
    args = parser.parse_args(words)
    there = torch.cuda.is_available()
    if args.device == "cuda" and not there:
        parser.error("there is no CUDA device here; take --device cpu")
    device = "cuda" if there and args.device != "cpu" else "cpu"
    torch.set_num_threads(1)
    clock = Clock(args.budget)
    about = described(device)
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n")
    with products(FULL):
        found = check(device, args.quick, clock)
    record = {**about, "quick": args.quick, "spent": clock.spent, **found}
    args.output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{clock.spent:.0f} s; all of it is in {args.output}")
    rows = found["correctness"]
    return int(any(not row.get("right", "skipped" in row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
