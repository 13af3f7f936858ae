"""Seconds per communication round: fltune beside the libraries that researchers use today.

    python benchmarks/peers.py
    python benchmarks/peers.py --only fluke FedJAX --workloads W1 W3 --blocks 3
    python benchmarks/peers.py --envs ~/peers --json peers.json

Flower, pfl-research, fluke, FedLab and FedJAX are installed, each in an environment of its own, and
run W1 to W3 of ``benchmarks/rounds.py`` in processes that live side by side: FedAvg, plain SGD,
data in memory, no evaluation. All train the same network from the same parameters on the same
cohorts. They take turns in blocks of rounds, so that a drift of the machine hits them all, and a
ratio is taken block by block: trust the ratios, not the seconds. Whoever has a choice of threads or
processes (``--cores``) is shown with the faster one.

Steps and samples are counted where they are made, and compared with what the cohorts ask for (of
fltune the samples are counted, and the steps are those that its rounds ask for). At the end
fltune's network is given the parameters that each library has reached: their loss shows whether
they trained the same thing. (FedJAX weighs clients by their samples, all others alike: in W3, where
clients differ in size, its loss is another.) A library that cannot be installed or fails is named
with the reason and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from peers.candidate import Block, Candidate, DriverError
from peers.environments import PEERS, NotInstalledError, Peer, default_folder, install
from peers.task import Task
from rich.console import Console
from rich.table import Table
from rounds import CLASSES, SEED, WORKLOADS, Workload, evened, machine

ROUNDS = {"W1": 8, "W2": 2, "W3": 8}
"""Timed rounds of a block."""
WARM_UP = {"W1": 2, "W2": 1, "W3": 4}
"""Timed rounds of the two blocks that do not count.

FedJAX compiles a step for each size of batch that it meets.
"""
OURS = "fltune"
BLOCKS = 6
JUDGED = 2000
"""Samples on which the loss is taken."""


def make_task(name: str, workload: Workload, rounds: int) -> Task:
    """Return a workload in arrays, with cohorts for ``rounds`` rounds.

    The labels are a random linear function's instead of random ones, so that there is something to
    learn, and a loss that falls.
    """
    data = workload.data()
    x = data.train.x.numpy()
    teacher = np.random.default_rng(SEED).standard_normal((x[0].size, CLASSES), dtype=np.float32)
    cohorts = [cohort for (cohort,) in islice(iterate(workload), rounds)]
    return Task(
        name=name,
        classes=CLASSES,
        epochs=workload.epochs,
        batch_size=workload.batch_size,
        lr=workload.lr,
        x=x,
        y=(x.reshape(len(x), -1) @ teacher).argmax(axis=1),
        sizes=np.array([len(data.client(i)) for i in range(workload.clients)]),
        cohorts=np.array(cohorts),
        parameters=[p.detach().numpy() for p in workload.initial_network().parameters()],
    )


def iterate(workload: Workload) -> Iterator[list[list[int]]]:
    """Yield the cohorts that fltune draws, round by round."""
    participation = workload.participation()
    while True:
        yield list(participation)


def loss_of(workload: Workload, task: Task, parameters: Sequence[np.ndarray]) -> float:
    """Return the loss of fltune's network with these parameters, on the first samples.

    Raises:
        ValueError: they are not parameters of this network.
    """
    network = workload.network()
    found, own = [p.shape for p in parameters], [tuple(p.shape) for p in network.parameters()]
    if found != own:
        raise ValueError(f"its parameters have shapes {found}; fltune's network has {own}")
    x, y = torch.from_numpy(task.x[:JUDGED]), torch.from_numpy(task.y[:JUDGED])
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
        return float(F.cross_entropy(network(x), y))


@dataclass(frozen=True)
class Line:
    """A candidate's result on a workload.

    Attributes:
        name, threads, about: see :class:`Candidate`.
        seconds: of a round, the median over the blocks' medians.
        blocks: the blocks' medians.
        steps, samples: of the clients, over the blocks.
        same_work: these are what the cohorts ask for.
        loss: of the model at the end.
        ratio: fltune's seconds over these, the median over the blocks.
        ratio_range: the smallest and the largest of the blocks' ratios.
    """

    name: str
    threads: int | None
    about: str
    seconds: float
    blocks: list[float]
    steps: int
    samples: int
    same_work: bool
    loss: float
    ratio: float
    ratio_range: tuple[float, float]


def middle(blocks: Sequence[Block]) -> float:
    """Return the seconds of a round, the median over the blocks' medians."""
    return statistics.median(map(median, blocks))


def median(block: Block) -> float:
    """Return the median of a block's rounds, evened for all alike: fltune plans several at once."""
    return statistics.median(evened(block.seconds))


def line(candidate: Candidate, ours: Sequence[Block], asked: tuple[int, int], loss: float) -> Line:
    """Sum a candidate up.

    Args:
        candidate: with its blocks.
        ours: the blocks of fltune where it is fastest, made in the same turns.
        asked: steps and samples that the cohorts of all blocks ask for.
        loss: of its model at the end.
    """
    medians = [median(block) for block in candidate.blocks]
    own = [median(block) for block in ours]
    ratios = [a / b for a, b in zip(own, medians, strict=True)]
    steps = sum(block.steps for block in candidate.blocks)
    samples = sum(block.samples for block in candidate.blocks)
    return Line(
        name=candidate.name,
        threads=candidate.threads,
        about=candidate.about,
        seconds=middle(candidate.blocks),
        blocks=medians,
        steps=steps,
        samples=samples,
        same_work=(steps, samples) == asked,
        loss=loss,
        ratio=statistics.median(ratios),
        ratio_range=(min(ratios), max(ratios)),
    )


def best(lines: Sequence[Line]) -> list[Line]:
    """Return each library's fastest line, in the order of the libraries."""
    fastest: dict[str, Line] = {}
    for one in lines:
        known = fastest.get(one.name)
        if known is None or one.seconds < known.seconds:
            fastest[one.name] = one
    return list(fastest.values())


def measure(
    name: str,
    pythons: Mapping[Peer, Path],
    cores: Sequence[int],
    blocks: int,
    failed: dict[str, str],
) -> tuple[float, list[Line]]:
    """Run a workload with fltune and all peers.

    Args:
        name: of the workload.
        pythons: the peers, with their interpreters.
        cores: torch threads of the peers to try, and processes of fltune, of one thread each.
        blocks: turns of each.
        failed: takes the reason of each candidate that fails.

    Returns:
        The initial loss, and a line for every candidate, fltune's first.
    """
    workload = WORKLOADS[name]
    warm_up, rounds = 2 * (WARM_UP[name] + 1), (ROUNDS[name] + 1) * blocks
    task = make_task(name, workload, warm_up + rounds)
    losses: dict[Candidate, float] = {}
    with tempfile.TemporaryDirectory(prefix="fltune-peers-") as folder:
        file = Path(folder) / "task.npz"
        task.save(file)
        paths = os.environ.get("PYTHONPATH", "")
        own = Path(sys.executable)
        candidates = [Candidate(OURS, 1, own, OURS, file, paths, number) for number in cores]
        candidates += [
            Candidate(peer.name, count, python, peer.module, file)
            for peer, python in pythons.items()
            for count in peer.threads
            if count is None or count in cores
        ]
        with running(candidates, failed):
            take_turns(candidates, [WARM_UP[name]] * 2 + [ROUNDS[name]] * blocks, failed)
            for candidate in list(candidates):
                with excused(candidate, candidates, failed):
                    losses[candidate] = loss_of(workload, task, candidate.parameters())
    for candidate in candidates:
        del candidate.blocks[:2]  # the warm-up
    asked, initial = task.work(warm_up, rounds), loss_of(workload, task, task.parameters)
    ours = min((c for c in candidates if c.name == OURS), key=lambda c: middle(c.blocks))
    return initial, [line(one, ours.blocks, asked, losses[one]) for one in candidates]


def take_turns(candidates: list[Candidate], blocks: Sequence[int], failed: dict[str, str]) -> None:
    """Let the candidates make their blocks of rounds by turns; another begins each time."""
    order = list(candidates)
    for turn, rounds in enumerate(blocks):
        start = turn % len(order)
        for candidate in order[start:] + order[:start]:
            if candidate in candidates:
                with excused(candidate, candidates, failed):
                    candidate.blocks.append(candidate.run(rounds))


@contextlib.contextmanager
def running(candidates: list[Candidate], failed: dict[str, str]) -> Iterator[None]:
    """Start the candidates and wait until they are ready; stop them in the end."""
    started = []
    try:
        for candidate in candidates:
            candidate.start()
            started.append(candidate)
        for candidate in started:
            with excused(candidate, candidates, failed):
                candidate.answer()
        yield
    finally:
        for candidate in started:
            candidate.stop()


@contextlib.contextmanager
def excused(
    candidate: Candidate, candidates: list[Candidate], failed: dict[str, str]
) -> Iterator[None]:
    """Leave a peer out if it fails, and end it; fltune may not fail."""
    try:
        yield
    except (DriverError, ValueError) as error:
        if candidate.name == OURS:
            raise
        candidates.remove(candidate)
        failed[candidate.label] = str(error)
        candidate.stop(farewell=0)


def print_workload(console: Console, name: str, initial: float, lines: Sequence[Line]) -> None:
    """Print the table of a workload."""
    title = f"{name}, initial loss {initial:.4f}"
    table = Table("library", "s / round", "fltune / it", "blocks", "loss", "work", title=title)
    for one in best(lines):
        about = one.about or f"{one.threads} thread{'s' if one.threads != 1 else ''}"
        low, high = one.ratio_range
        work = "same" if one.same_work else f"{one.steps} steps of {one.samples} samples"
        table.add_row(
            f"{one.name} ({about})",
            f"{one.seconds:.4f}",
            f"{one.ratio:.2f}",
            f"{low:.2f} - {high:.2f}",
            f"{one.loss:.4f}",
            work,
        )
    console.print(table)


def prepare(
    peers: Sequence[Peer], folder: Path, console: Console, failed: dict[str, str]
) -> dict[Peer, Path]:
    """Install the peers; return those that could be, with their interpreters."""
    pythons = {}
    for peer in peers:
        console.print(f"{peer.name} {peer.version} in {folder / peer.module}", soft_wrap=True)
        try:
            pythons[peer] = install(peer, folder)
        except NotInstalledError as error:
            failed[peer.name] = f"not installed: {error}"
    return pythons


def main() -> None:
    """Measure, print a table for each workload, and write JSON on demand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--workloads", nargs="+", choices=ROUNDS, default=list(ROUNDS))
    parser.add_argument(
        *("--cores",), type=int, nargs="+", default=[1, 2], help="threads or processes to try"
    )
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="turns of each library")
    parser.add_argument("--envs", type=Path, default=default_folder(), help="their environments")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    args = parser.parse_args()

    console, failed = Console(), dict[str, str]()
    peers = [peer for peer in PEERS if peer.name in args.only]
    pythons = prepare(peers, args.envs.expanduser().absolute(), console, failed)
    workloads = {}
    for name in args.workloads:
        with console.status(f"{name}: {args.blocks} blocks"):
            initial, lines = measure(name, pythons, args.cores, args.blocks, failed)
        print_workload(console, name, initial, lines)
        workloads[name] = {"initial_loss": initial, "lines": [asdict(one) for one in lines]}
    for name, why in failed.items():
        console.print(f"left out: {name}: {why}", highlight=False, markup=False, soft_wrap=True)
    console.print(machine(), highlight=False, soft_wrap=True)
    if args.json:
        versions = {"fltune": version("fltune"), **{p.name: p.version for p in pythons}}
        record = {"machine": machine(), "versions": versions, "left_out": failed}
        args.json.write_text(json.dumps({**record, "workloads": workloads}, indent=1) + "\n")


if __name__ == "__main__":
    main()
