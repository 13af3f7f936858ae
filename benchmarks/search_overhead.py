"""What a search costs besides training: its wall time beside the seconds that its runs trained.

    python benchmarks/search_overhead.py
    python benchmarks/search_overhead.py --trials 20 --sampler tpe --json

The trials of one method of ``search_spaces/digits_fedgm.yaml`` are run through ``fltune.search``,
each by itself (no packs), with its logs, its MLflow store and its display. Ray's start, the
workers' imports and the end are told apart, for they are paid once. The rest is compared with the
time in which workers that did nothing but train would be done: the sum of the runs' training
seconds, divided by the workers. A sample of the same configs is then run by plain processes, as
many at once as there were workers, so that what a worker itself adds is seen too.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.table import Table
from timed_search import METHOD, time_search

from fltune.runner import run, use_threads
from fltune.search.config import SearchConfig
from fltune.search.record import TrialRecord


@dataclass(frozen=True)
class Overhead:
    """Where the time of one search went.

    Attributes:
        trials: runs.
        workers: runs at once.
        ray_start: seconds until Ray was up.
        imports: seconds from then until the workers trained, their mean.
        search: seconds from there until the last run had ended.
        end: seconds from there until the search returned.
        trained: seconds that the runs trained, summed.
        plain: the same as a plain process needs, estimated from ``sampled`` runs.
        sampled: runs that plain processes repeated.
    """

    trials: int
    workers: int
    ray_start: float
    imports: float
    search: float
    end: float
    trained: float
    plain: float
    sampled: int

    @property
    def ratio(self) -> float:
        """Time of the search over that of workers which only train."""
        return self.search * self.workers / self.trained

    @property
    def plain_ratio(self) -> float:
        """Time of the search over that of plain processes."""
        return self.search * self.workers / self.plain


def measure(trials: int, rounds: int, sampler: str, workers: int | None, sample: int) -> Overhead:
    """Run one search, then a sample of its configs without it."""
    found = time_search(
        [
            f"rounds={rounds}",
            f"search.trials={trials}",
            f"search.sampler={sampler}",
            "search.pack=1",
            f"search.concurrent={'null' if workers is None else workers}",
        ]
    )
    records, ends = found.records, found.ends
    at_once = int(found.said.split(" at a time")[0].split()[-1])
    # the first runs have a worker each, and no run before them
    first = [end - r.seconds for end, r in zip(ends, records, strict=True) if r.number < at_once]
    trains = statistics.mean(first)
    plain, sampled = plain_seconds(found.config, records, at_once, sample)
    return Overhead(
        trials=len(records),
        workers=at_once,
        ray_start=found.announced - found.started,
        imports=trains - found.announced,
        search=max(ends) - trains,
        end=found.ended - max(ends),
        trained=sum(r.seconds for r in records),
        plain=plain,
        sampled=sampled,
    )


def plain_seconds(
    config: SearchConfig, records: Sequence[TrialRecord], workers: int, sample: int
) -> tuple[float, int]:
    """Return the training seconds of all runs, estimated from some, and how many these are.

    A run's own seconds tell how long it is beside the others: the estimate is their sum, times the
    ratio of plain to recorded seconds over the sample.
    """
    chosen = records[:: max(1, len(records) // sample)]
    method = config.methods[METHOD]
    jobs = [method.raw_with({**r.values, "seed": r.seed}) for r in chosen]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(run_plainly, [{**job, "rounds": 1} for job in jobs[:workers]]))  # imports
        seconds = list(pool.map(run_plainly, jobs))
    scale = sum(seconds) / sum(r.seconds for r in chosen)
    return scale * sum(r.seconds for r in records), len(chosen)


def run_plainly(raw: Mapping[str, Any]) -> float:
    """Run one config as a trial of one core; return its training seconds."""
    use_threads(1)
    return run(raw, test=False).seconds


def main() -> None:
    """Measure, print a table, and on demand one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--sampler", default="random", help="tpe, random, ...")
    parser.add_argument("--workers", type=int, help="runs at once; default: one per core")
    parser.add_argument("--sample", type=int, default=10, help="runs repeated without the search")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    found = measure(args.trials, args.rounds, args.sampler, args.workers, args.sample)

    title = f"{found.trials} trials of {args.rounds} rounds, {found.workers} at a time"
    table = Table("what", "seconds", title=title)
    table.add_row("Ray starts", f"{found.ray_start:.1f}")
    table.add_row("workers import", f"{found.imports:.1f}")
    table.add_row("search", f"{found.search:.1f}")
    table.add_row("training / workers, as recorded", f"{found.trained / found.workers:.1f}")
    table.add_row("training / workers, in plain processes", f"{found.plain / found.workers:.1f}")
    table.add_row("report, store and Ray end", f"{found.end:.1f}")
    console = Console()
    console.print(table)
    console.print(
        f"search over training: {found.ratio:.2f} as recorded, {found.plain_ratio:.2f} beside "
        f"plain processes ({found.sampled} runs repeated)",
        highlight=False,
        soft_wrap=True,
    )
    if args.json:
        print(json.dumps({**asdict(found), "ratio": found.ratio, "plain_ratio": found.plain_ratio}))


if __name__ == "__main__":
    main()
