"""The bill before the work: trials, rounds, client samples, time, disk, memory."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.errors import ConfigError
from fltune.runner import use_threads
from fltune.search.config import SearchConfig
from fltune.search.method import Method
from fltune.search.packer import usual_size
from fltune.search.probe import probe, probe_pack
from fltune.search.settings import SearchSettings

START_SECONDS = 15.0
"""Ray's own start and that of its workers, as measured on two cores."""
BYTES_PER_VALUE = 120
"""What one metric value costs in the tracking store, with its indexes."""
SLOWER = 1.5
"""How much longer a round may take than alone: workers share caches and memory bandwidth."""


@dataclass
class MethodBill:
    """What one method will cost, at most; runs that are stopped early make it less.

    Attributes:
        trials: in the search; confirmation runs come on top.
        exact: whether every cell of the space is run once.
        runs: of the trials on all search seeds, and of the confirmation.
        rounds: communication rounds of all these.
        client_samples: samples its clients will process in them.
        seconds: of one core, extrapolated from a few rounds of the space's first point, with
            nothing else at work on the machine.
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
    least_seconds: float
    inherits: str = ""
    pack: int = 1


@dataclass
class Bill:
    """What a search will cost.

    Attributes:
        methods: by name.
        concurrent: trials at once on this machine.
        wall_seconds: all of it, on this machine, if nothing is stopped early.
        wall_range: the shortest and the longest it may take.
        disk_bytes: in the tracking store.
        memory_bytes: of one worker.
        machine_bytes: memory of this machine; None where that cannot be told.
        caps: the hard budgets of the search, by name; past one no trial starts.
        device: of the trials: ``cpu``, ``cuda``, or both where methods differ.
    """

    methods: dict[str, MethodBill]
    concurrent: int
    wall_seconds: float
    wall_range: tuple[float, float]
    disk_bytes: int
    memory_bytes: int
    machine_bytes: int | None
    caps: dict[str, float]
    device: str = "cpu"

    @property
    def fits(self) -> bool:
        """Whether all workers together fit the machine's memory, as far as is known."""
        return self.machine_bytes is None or self.workers_bytes <= self.machine_bytes

    @property
    def workers_bytes(self) -> int:
        """Memory of all workers."""
        return self.concurrent * self.memory_bytes

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "fits": self.fits}


def plan(config: SearchConfig) -> Bill:
    """Work out the bill of a search; runs a few rounds of each method to time them.

    Raises:
        ConfigError, DataError: as the search itself would.
    """
    from fltune.search.preparation import check_data
    from fltune.search.tuner import concurrency, resources_here

    config.check_sources()
    check_data(config)
    settings = config.settings
    concurrent = concurrency(settings, resources_here())
    use_threads(settings.resources.cpus)
    bills = {
        name: _bill(without_inherited(m, config), config, concurrent)
        for name, m in config.methods.items()
    }
    evaluations = sum(
        b.rounds / m.experiment(m.first_values()).eval_every
        for b, m in zip(bills.values(), config.methods.values(), strict=True)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = sum(b.seconds for b in bills.values()) / concurrent
    least = sum(b.least_seconds for b in bills.values()) / concurrent
    return Bill(
        methods=bills,
        concurrent=concurrent,
        wall_seconds=most + START_SECONDS,
        wall_range=(least + START_SECONDS, SLOWER * most + START_SECONDS),
        disk_bytes=int(evaluations * 6 * BYTES_PER_VALUE),
        memory_bytes=peak * (1 if sys.platform == "darwin" else 1024),
        machine_bytes=_machine_bytes(),
        caps=_caps(settings.search),
        device=_devices(config),
    )


def _devices(config: SearchConfig) -> str:
    experiments = [m.experiment(m.first_values()) for m in config.methods.values()]
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


def without_inherited(method: Method, config: SearchConfig) -> Method:
    """Return the method with what it inherits set to the first values of its source's space."""
    if method.inherit is None:
        return method
    source = config.methods[method.inherit.source]
    found = source.space.resolve(source.first_values())
    keys = method.inherit.keys or tuple(source.space.entries)
    try:
        return method.fixing({key: found[key] for key in keys if key in found})
    except ConfigError:  # these values do not suit it, others may: the bill is of its whole space
        return method


def _bill(method: Method, config: SearchConfig, workers: int) -> MethodBill:
    search = config.settings.search
    inherit = config.methods[method.name].inherit
    experiment = method.experiment(method.first_values())
    if config.settings.resources.device(experiment.device) == "cpu":  # as its trials, see trainable
        experiment = experiment.with_values({"device": "cpu"})
    alone = probe(experiment)
    pack = usual_size(method, search, workers)
    packed = alone.seconds if pack == 1 else probe_pack(experiment, alone, pack)
    trials, rounds = method.trials(search), method.trial_rounds(search)
    confirmations = search.confirm_seeds * min(search.confirm_top, trials)
    runs = trials * search.seeds + confirmations
    searched = trials * search.seeds * rounds
    stopped = rounds if search.scheduler == "none" else search.grace
    least = (trials - 1) * min(stopped, rounds) + search.seeds * rounds
    confirmed = confirmations * experiment.rounds
    return MethodBill(
        trials=trials,
        exact=method.exact(search),
        runs=runs,
        rounds=searched + confirmed,
        client_samples=int((searched + confirmed) * alone.client_samples),
        seconds=searched * packed + confirmed * alone.seconds,
        least_seconds=least * packed + confirmed * alone.seconds,
        inherits=inherit.source if inherit else "",
        pack=pack,
    )


def print_bill(bill: Bill, config: SearchConfig, console: Console) -> None:
    """Print the bill."""
    search = config.settings.search
    table = Table(title=escape(f"{Path(config.source).name}: the bill"), title_justify="left")
    table.add_column("method", style="bold", overflow="fold")
    for column in ("trials", "runs", "rounds", "client\nsamples", "core\nminutes"):
        table.add_column(column, justify="right")
    for name, b in bill.methods.items():
        exact = " (exact grid)" if b.exact else ""
        row = [f"{b.trials}{exact}", f"{b.runs:,}", f"{b.rounds:,}", f"{b.client_samples:,}"]
        heir = f"\n(takes over from {b.inherits})" if b.inherits else ""
        table.add_row(escape(f"{name}{heir}"), *row, f"{b.seconds / 60:.1f}")
    console.print(table)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    low, high = (seconds / 60 for seconds in bill.wall_range)
    say(
        f"Each config on {search.seeds} search seeds; of each method the best "
        f"{search.confirm_top} on {search.confirm_seeds} confirmation seeds, included above."
    )
    say(
        f"{bill.concurrent} trials at a time, device {bill.device}: about "
        f"{bill.wall_seconds / 60:.1f} minutes here ({low:.1f} to {high:.1f}); "
        f"{bill.disk_bytes / 2**20:.1f} MiB in the tracking store."
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
    text = f"{each:.0f} MiB per worker, {total:.1f} GiB for all"
    if bill.machine_bytes is None:
        return f"{text}."
    there = f"of the {bill.machine_bytes / 2**30:.1f} GiB there are"
    if bill.fits:
        return f"{text}, {there}: it fits."
    return f"{text}, {there}: it does NOT fit; set search.concurrent to run fewer at once."
