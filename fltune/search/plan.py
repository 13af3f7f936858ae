"""The bill before the work: trials, rounds, client samples, time, disk, memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.runner import use_threads
from fltune.search.bequest import without_inherited
from fltune.search.config import SearchConfig
from fltune.search.forecast import Lane, share_of_rounds, share_on_all_seeds, wall_seconds
from fltune.search.orders import Book, Order, Part, order_of
from fltune.search.probe import Probe
from fltune.search.settings import SearchSettings
from fltune.search.timing import Question, Timings, time_side_by_side

START_SECONDS = 6.0
"""What a search takes besides imports and runs: Ray's start, tables and pages; on two cores."""
IMPORTS = 2
"""Times that imports are waited for: those of the search itself, and those of its workers."""
RUN_SECONDS = 0.15
"""What a run takes besides its rounds: its worker's messages, and the record in the driver."""
MESSAGE_SECONDS = 0.01
"""What an evaluation takes that a scheduler judges: a message there, a verdict back."""
BYTES_PER_VALUE = 120
"""What one metric value costs in the tracking store, with its indexes."""
SLOWER = 1.5
"""How much longer or shorter it may all take: other programs, luck, points of other work."""
WORKER_BYTES = 32 * 2**20
"""What a worker needs because it is one of Ray's."""
DRIVER_BYTES = 2**30
"""What the process that searches needs, and those that Ray runs beside the workers."""
Timer = Callable[[Sequence[Question], int, float], Timings]
"""Answers questions, in so many processes of so many cores each."""


@dataclass
class MethodBill:
    """What one method will cost, at most; runs that are stopped early make it less.

    Attributes:
        trials: in the search; confirmation runs come on top.
        exact: whether every cell of the space is run once.
        runs: of the trials on all search seeds, and of the confirmation.
        rounds: communication rounds of all these.
        client_samples: samples its clients will process in them.
        seconds: of one core, extrapolated from a few rounds at points of the space, with as much
            else at work on the machine as the search itself is.
        likely_seconds: the same with what a scheduler and racing over seeds will likely stop.
        least_seconds: the same if all but the best config are stopped as early as can be.
        inherits: the method whose winner some values come from; empty if there is none.
        pack: trials that run as one computation; the seconds are of trials that do.
    """

    trials: int
    exact: bool
    runs: int
    rounds: int
    client_samples: int
    seconds: float
    likely_seconds: float
    least_seconds: float
    inherits: str = ""
    pack: int = 1


@dataclass
class Bill:
    """What a search will cost.

    Attributes:
        methods: by name.
        concurrent: trials at once on this machine.
        wall_seconds: all of it, on this machine, as is to be expected.
        wall_range: the shortest and the longest it may take.
        timed: kinds of work that were timed; methods and cells of equal work share one.
        disk_bytes: in the tracking store.
        memory_bytes: of each worker, for itself: the most that a process which timed some rounds
            needed, and what Ray adds to it.
        shared_bytes: that workers share: the code of libraries. And this process and Ray's own.
        machine_bytes: memory of this machine; None where that cannot be told.
        caps: the hard budgets of the search, by name; past one no trial starts.
        device: of the trials: ``cpu``, ``cuda``, or both where methods differ.
    """

    methods: dict[str, MethodBill]
    concurrent: int
    wall_seconds: float
    wall_range: tuple[float, float]
    timed: int
    disk_bytes: int
    memory_bytes: int
    shared_bytes: int
    machine_bytes: int | None
    caps: dict[str, float]
    device: str = "cpu"

    @property
    def fits(self) -> bool:
        """Whether all workers together fit the machine's memory, as far as is known."""
        return self.machine_bytes is None or self.workers_bytes <= self.machine_bytes

    @property
    def workers_bytes(self) -> int:
        """Memory of all workers, and of what they need beside them."""
        return self.concurrent * self.memory_bytes + self.shared_bytes

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "fits": self.fits}


def plan(config: SearchConfig, timer: Timer = time_side_by_side) -> Bill:
    """Work out the bill of a search; runs a few rounds of each kind of work to time them.

    Args:
        config: the search.
        timer: runs them.

    Raises:
        ConfigError, DataError: as the search itself would.
    """
    from fltune.search.concurrency import concurrency, resources_here
    from fltune.search.preparation import check_data, problems_of

    config.check_sources()
    check_data(config)
    settings = config.settings
    concurrent = concurrency(settings, resources_here())
    use_threads(settings.resources.cpus)
    book = Book()
    orders = {}
    for name, method in config.methods.items():
        with problems_of(name, config):
            orders[name] = order_of(
                without_inherited(method, config.methods), config, concurrent, book
            )
    timings = timer(book.questions, concurrent, settings.resources.cpus)
    prices = {name: _price(order, timings.probes) for name, order in orders.items()}

    start = START_SECONDS + IMPORTS * timings.imports

    def wall(which: str) -> float:
        lanes = {name: getattr(price, which) for name, price in prices.items()}
        return start + wall_seconds(lanes, concurrent)

    likely = wall("likely")
    return Bill(
        methods={name: price.bill for name, price in prices.items()},
        concurrent=concurrent,
        wall_seconds=likely,
        wall_range=(min(wall("least"), likely / SLOWER), SLOWER * wall("most")),
        timed=len(book.questions),
        disk_bytes=int(sum(map(_values, orders.values())) * 6 * BYTES_PER_VALUE),
        memory_bytes=timings.memory.own + WORKER_BYTES,
        shared_bytes=timings.memory.shared + DRIVER_BYTES,
        machine_bytes=_machine_bytes(),
        caps=_caps(settings.search),
        device=_devices(config),
    )


def _devices(config: SearchConfig) -> str:
    experiments = [m.first_experiment() for m in config.methods.values()]
    resources = config.settings.resources
    return " and ".join(sorted({resources.device(e.device) for e in experiments}))


def _machine_bytes() -> int | None:
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    if not all(name in os.sysconf_names for name in names):
        return None
    page, pages = map(os.sysconf, names)
    return page * pages


def _caps(search: SearchSettings) -> dict[str, float]:
    names = ("max_seconds", "max_client_samples", "max_bytes")
    given = {name: getattr(search, name) for name in names}
    return {name: float(cap) for name, cap in given.items() if cap is not None}


@dataclass(frozen=True)
class _Price:
    """What a method costs, and what its jobs are if as little, as much as likely, or all is run."""

    bill: MethodBill
    least: Lane
    likely: Lane
    most: Lane


def _price(order: Order, probes: Sequence[Probe]) -> _Price:
    whole = _trial_seconds(order, probes, lambda part: 1.0)
    likely = _trial_seconds(order, probes, partial(_likely_share, order))
    stopped = _trial_seconds(order, probes, partial(_least_share, order.search))
    least = (stopped * max(0, order.trials - 1) + whole) / max(1, order.trials)
    final = RUN_SECONDS + sum(
        p.share * probes[p.alone].run(p.whole, p.eval_every, test=True) for p in order.parts
    )
    again = (order.seeds - 1) * share_on_all_seeds(order.search, order.trials)
    finals = order.finals * final
    others = (order.seeds - 1) * whole if order.trials else 0.0  # of the best config
    bill = MethodBill(
        trials=order.trials,
        exact=order.exact,
        runs=order.trials * order.seeds + order.finals,
        rounds=round(_of_all_runs(order, lambda part: 1.0)),
        client_samples=round(_of_all_runs(order, lambda part: part.client_samples)),
        seconds=order.trials * order.seeds * whole + finals,
        likely_seconds=order.trials * (1 + again) * likely + finals,
        least_seconds=order.trials * least + others + finals,
        inherits=order.inherits,
        pack=order.pack,
    )

    def lane(seconds: float, runs: float) -> Lane:
        packs = math.ceil(order.trials / order.pack)
        batch = math.ceil(order.search.batch / order.pack) if order.search.deterministic else None
        jobs = math.ceil(packs * runs)
        each = order.trials * runs * seconds / max(1, jobs)
        return Lane(jobs, each, order.finals, final, order.inherits, batch)

    # each time that a space is widened, half as many trials come on top
    wider = 1 + order.search.extend_edges / 2
    return _Price(bill, lane(least, 1), lane(likely, 1 + again), lane(whole, order.seeds * wider))


def _trial_seconds(order: Order, probes: Sequence[Probe], made: Callable[[Part], float]) -> float:
    """Return the seconds of a trial on one seed, on average; ``made`` says how much of it is."""
    total, unjudged = 0.0, order.search.scheduler == "none"
    for part in order.parts:
        together, alone = probes[part.together], probes[part.alone]
        rounds = made(part) * part.rounds
        evaluations = math.ceil(rounds / part.eval_every)
        evaluation = alone.evaluation + (0.0 if unjudged else MESSAGE_SECONDS)
        seconds = together.setup + rounds * together.round + evaluations * evaluation
        total += part.share * (RUN_SECONDS + seconds)
    return total


def _likely_share(order: Order, part: Part) -> float:
    at_once = order.at_once * part.pack
    return share_of_rounds(order.search, part.rounds, part.eval_every, order.trials, at_once)


def _least_share(search: SearchSettings, part: Part) -> float:
    return 1.0 if search.scheduler == "none" else min(search.grace, part.rounds) / part.rounds


def _of_all_runs(order: Order, of_a_round: Callable[[Part], float]) -> float:
    """Return a sum over all rounds of all runs, if none is stopped early."""
    trials = order.trials * order.seeds
    return sum(
        p.share * (trials * p.rounds + order.finals * p.whole) * of_a_round(p) for p in order.parts
    )


def _values(order: Order) -> float:
    """Return the evaluations of all runs."""
    return _of_all_runs(order, lambda part: 1 / part.eval_every)


def print_bill(bill: Bill, config: SearchConfig, console: Console) -> None:
    """Print the bill."""
    search = config.settings.search
    table = Table(title=escape(f"{Path(config.source).name}: the bill"), title_justify="left")
    table.add_column("method", style="bold", overflow="fold")
    for column in ("trials", "runs", "rounds", "client\nsamples", "core\nminutes"):
        table.add_column(column, justify="right")
    for name, b in bill.methods.items():
        exact = " (exact grid)" if b.exact and b.trials else ""
        row = [f"{b.trials}{exact}", f"{b.runs:,}", f"{b.rounds:,}", f"{b.client_samples:,}"]
        heir = f"\n(takes over from {b.inherits})" if b.inherits else ""
        table.add_row(escape(f"{name}{heir}"), *row, f"{b.likely_seconds / 60:.1f}")
    console.print(table)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    low, high = (seconds / 60 for seconds in bill.wall_range)
    if any(b.trials for b in bill.methods.values()):
        say(
            f"Each config on {search.seeds} search seeds; of each method the best "
            f"{search.confirm_top} on {search.confirm_seeds} confirmation seeds, included above."
        )
    else:
        say(f"Nothing is tuned: each method is run on {search.confirm_seeds} confirmation seeds.")
    say(
        f"{bill.concurrent} trials at a time, device {bill.device}: about "
        f"{bill.wall_seconds / 60:.1f} minutes here ({low:.1f} to {high:.1f}); "
        f"{bill.disk_bytes / 2**20:.1f} MiB in the tracking store."
    )
    say(
        f"Timed: {bill.timed} kinds of work, side by side as trials will be; methods and cells of "
        "equal work share one."
    )
    if search.rounds is not None:
        say(f"A trial makes at most {search.rounds:,} rounds; winners are confirmed over all.")
    packs = ", ".join(f"{b.pack} of {name}" for name, b in bill.methods.items() if b.pack > 1)
    if packs:
        say(f"Trials that go as one computation in a worker, timed so: {packs}.")
    say(_memory(bill))
    if bill.caps:
        caps = ", ".join(f"{name} {cap:,.10g}" for name, cap in bill.caps.items())
        say(f"Hard caps: {caps}; past one, no trial starts and the winners so far are confirmed.")


def _memory(bill: Bill) -> str:
    each, total = bill.memory_bytes / 2**20, bill.workers_bytes / 2**30
    text = f"Memory: {each:.0f} MiB per worker, {total:.1f} GiB in all"
    if bill.machine_bytes is None:
        return f"{text}."
    there = f"of the {bill.machine_bytes / 2**30:.1f} GiB there are"
    if bill.fits:
        return f"{text}, {there}: it fits."
    return f"{text}, {there}: it does NOT fit; set search.concurrent to run fewer at once."
