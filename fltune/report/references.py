"""Reference rows of a comparison: what training gives without a search, or without federation.

    centralised      plain SGD on the samples of all clients together
    clients alone    plain SGD of each client on its own samples, from the same initial model; the
                     mean over clients, of at most 20 spread evenly over them
    NAME untuned     a method at its own values, as the file has them, in place of searched ones

The first two make as many passes over the samples as the best method's confirmed run on that seed
made, and have one rate each to choose: the best of a few on validation data, in the mean over what
is run (of clients alone, on the first seed).
All are run on the fresh seeds of the best method and judged on test data as winners are, but they
stand beside the comparison: they have no rank and take no part in tests.

A run is kept in ``references.jsonl`` in the search's folder, under a digest of its config, so that
it is made once, and anew where an extension of the search has changed it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fltune.data.federated import FederatedData
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation.stopping import StopReason
from fltune.pieces import load_data
from fltune.report.statistics import Interval
from fltune.report.summary import Summary
from fltune.report.table import interval_text, short
from fltune.runner import run, use_threads
from fltune.search.lane import Lane
from fltune.search.objective import natural_mode
from fltune.search.state import Log

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Learning rates that plain SGD is tried with: half decades, beyond which it seldom trains."""
MOST_CLIENTS = 20
"""Clients that are trained alone, per seed."""
ALONE_ROUNDS = 10
"""Evaluations cost more than a lone client's steps; its rounds only pace a schedule of the rate."""
PLAIN = {
    "algorithm": {"name": "fedavg"},
    "server": {"name": "fedavg"},
    "participation": {"kind": "full"},
    "compression": {"name": "identity"},
    "work": {"kind": "nominal"},
    "delays": {"kind": "none"},
    "clock": {"kind": "none"},
}
"""With one client, FedAvg at server rate 1 is plain SGD."""

Say = Callable[[str], None]
Run = Mapping[str, Any]
"""What is kept of a run: metrics, client_samples and diverged."""


@dataclass(frozen=True)
class Reference:
    """A row beside the methods.

    Attributes:
        name: what it is called.
        scenario: its cell; empty where there are no scenarios.
        text: what it is, in a sentence.
        metrics: by name, the interval over the seeds.
        diverged: seeds on which it diverged; an accuracy counts as 0 there, a loss is left out.
        client_samples: that a run processed, mean over seeds.
        values: what was chosen for it, by dotted name.
    """

    name: str
    scenario: str
    text: str
    metrics: dict[str, Interval]
    diverged: int = 0
    client_samples: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def test(self) -> Interval | None:
        """The headline: test accuracy, or test loss where the task has no classes."""
        return self.metrics.get("test/accuracy", self.metrics.get("test/loss"))

    @property
    def test_text(self) -> str:
        """The headline in words, with the seeds that diverged."""
        lost = f" ({self.diverged} diverged)" if self.diverged else ""
        return f"{interval_text(self.test)}{lost}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self)
        plain["test"] = asdict(self.test) if self.test else None
        return plain


class Book:
    """The runs of references there are; a new one is made and kept.

    Args:
        folder: of the search.
        say: told of each run that is made.
    """

    def __init__(self, folder: Path, say: Say) -> None:
        self._log = Log(folder / "references.jsonl")
        self._known = {entry["key"]: entry for entry in self._log.read()}
        self._say = say
        self._said = ""

    def get(
        self,
        label: str,
        experiment: Experiment,
        clients: Sequence[int] | None = None,
    ) -> Run:
        """Return a run.

        Args:
            label: what the run is called.
            experiment: its config.
            clients: train on the samples of these as if they were one; None: as the config says.
        """
        content = json.dumps([experiment.as_dict(), clients], sort_keys=True, default=str)
        key = hashlib.sha256(content.encode()).hexdigest()[:16]
        if key not in self._known:
            self._tell(label, experiment)
            data = load_data(experiment.data, experiment.seed)
            own = None if clients is None else merged(data, clients)
            result = run(experiment, data=own)
            made = {
                "key": key,
                "label": label,
                "seed": experiment.seed,
                "metrics": result.metrics,
                "client_samples": result.client_samples,
                "diverged": result.stop_reason is StopReason.DIVERGED,
            }
            self._log.append(made)
            self._known[key] = made
        return self._known[key]

    def _tell(self, label: str, experiment: Experiment) -> None:
        """Name what is run, once for all clients that are run alone."""
        rate = experiment.as_params()["client.lr"]
        text = f"reference: {label}, seed {experiment.seed}, client.lr {short(rate)}"
        if text != self._said:
            self._say(text)
        self._said = text


def merged(data: FederatedData, clients: Sequence[int]) -> FederatedData:
    """Return data with one client, which holds what some clients hold; the other splits stay."""
    ends = data.sizes.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    held = torch.cat([data.order[starts[i] : ends[i]] for i in clients]).unique()
    return FederatedData.from_clients(data.train, data.val, data.test, [held], data.num_classes)


def make_references(
    summary: Summary, lanes: Mapping[str, Lane], folder: Path, metric: str, cpus: float, say: Say
) -> list[Reference]:
    """Return the references of every scenario whose best method is confirmed.

    Args:
        summary: the search's numbers.
        lanes: its methods' work.
        folder: of the search, where runs are kept.
        metric: on validation data, by which the rate of plain SGD is chosen.
        cpus: cores of a run, as in the search.
        say: told of each run that is made, and of what cannot be.

    Raises:
        DataError: the data cannot be loaded here.
    """
    use_threads(cpus)
    book = Book(folder, say)
    found: list[Reference] = []
    for cell, methods in summary.by_cell().items():
        name, best = methods[0]
        if best.test is None:
            say(f"no references{f' of {cell}' if cell else ''}: no method is confirmed so far")
            continue
        found += _of_plain_sgd(cell, lanes[name], metric, book)
        seeds = [r.seed for r in lanes[name].reported]
        found += [r for other, _ in methods for r in _untuned(cell, lanes[other], seeds, book, say)]
    return found


def _of_plain_sgd(cell: str, best: Lane, metric: str, book: Book) -> Iterator[Reference]:
    """Yield centralised training and clients alone."""
    # the file's own batches and decay, whatever the search has made of them
    plain = {**best.method.raw, **PLAIN}
    samples = {run.seed: run.client_samples for run in best.reported}

    def centralised(rate: float) -> list[Run]:
        return [book.get("centralised", *_sgd(plain, s, n, rate, None)) for s, n in samples.items()]

    def alone(rate: float, seeds: Sequence[int]) -> list[Run]:
        return [_lone(plain, seed, samples[seed], rate, book) for seed in seeds]

    seeds = list(samples)
    passes = "as many passes over the samples as the best method's run, at the rate that is best "
    passes += f"of {len(RATES)} on validation data"
    rate = _best_rate({rate: centralised(rate) for rate in RATES}, metric)
    text = f"plain SGD on all clients' samples together, {passes}"
    yield _reduce("centralised", cell, text, centralised(rate), {"client.lr": rate})
    rate = _best_rate({rate: alone(rate, seeds[:1]) for rate in RATES}, metric)
    text = f"plain SGD of single clients on their own samples, {passes}; mean over clients"
    yield _reduce("clients alone", cell, text, alone(rate, seeds), {"client.lr": rate})


def _lone(plain: Mapping[str, Any], seed: int, samples: float, rate: float, book: Book) -> Run:
    """Return the runs of single clients on one seed as one: means, and the samples of all."""
    count = load_data(Experiment.parse({**plain, "seed": seed}).data, seed).num_clients
    some = min(count, MOST_CLIENTS)
    clients = [i * count // some for i in range(some)]
    runs = [
        book.get("clients alone", *_sgd(plain, seed, samples, rate, client)) for client in clients
    ]
    names = {name for made in runs for name in made["metrics"]}
    means = {name: Interval.of([_value(made, name) for made in runs]) for name in names}
    return {
        "metrics": {name: one.mean for name, one in means.items() if one is not None},
        "client_samples": sum(made["client_samples"] for made in runs),
        "diverged": all(made["diverged"] for made in runs),
    }


def _best_rate(runs: Mapping[float, Sequence[Run]], metric: str) -> float:
    """Return the rate with the best mean; one that diverged anywhere only if all did."""
    sign = 1.0 if natural_mode(metric) == "max" else -1.0

    def worth(rate: float) -> float:
        values = [_value(made, metric) for made in runs[rate]]
        whole = not any(made["diverged"] for made in runs[rate]) and all(map(math.isfinite, values))
        return sign * sum(values) / len(values) if whole else -math.inf

    return max(runs, key=worth)


def _sgd(
    plain: Mapping[str, Any], seed: int, samples: float, rate: float, client: int | None
) -> tuple[Experiment, list[int]]:
    """Return the config of plain SGD on one client's samples, or all, and whose samples these are.

    Args:
        plain: the config without the number of steps.
        seed: of the run.
        samples: that the federation processed.
        rate: of SGD.
        client: whose samples; None: all clients'.
    """
    asked = Experiment.parse({**plain, "seed": seed})
    data = load_data(asked.data, seed)
    clients = list(range(data.num_clients)) if client is None else [client]
    total = int(data.sizes.sum())
    size = total if client is None else int(data.sizes[client])
    batch = asked.client.build().batch_size
    steps = max(1, round(samples / total * (math.ceil(size / batch) if batch else 1)))
    # no more rounds than the federation made, and steps a round such that all are made
    most = asked.rounds if client is None else min(asked.rounds, ALONE_ROUNDS)
    each = math.ceil(steps / most)
    rounds = math.ceil(steps / each)
    sgd = {**asked.as_dict()["client"], "lr": rate, "epochs": None, "steps": each}
    raw = {**plain, "seed": seed, "client": sgd, "rounds": rounds, "eval_every": rounds}
    return Experiment.parse(raw), clients


def _untuned(
    cell: str, lane: Lane, seeds: Sequence[int], book: Book, say: Say
) -> Iterator[Reference]:
    """Yield a method at its own values, if it has some and searches others."""
    if not lane.method.space.entries:
        return
    title = f"{lane.method.scenario.get('method', lane.method.name)} untuned"
    try:
        own = [Experiment.parse({**lane.method.raw, "seed": seed}) for seed in seeds]
    except ConfigError as error:
        say(f"no reference {title!r}: {error}")
        return
    runs = [book.get(title, one) for one in own]
    params = own[0].as_params()
    values = {key: params[key] for key in lane.method.space.entries if key in params}
    yield _reduce(
        title, cell, "untuned: the method's own values, none of them searched", runs, values
    )


def _value(made: Run, name: str) -> float:
    """Return a metric of a run; of one that diverged as the methods' are counted."""
    if made["diverged"]:
        return 0.0 if name.endswith("accuracy") else math.nan
    value = made["metrics"].get(name)
    return math.nan if value is None else value


def _reduce(
    name: str,
    cell: str,
    text: str,
    runs: Sequence[Run],
    values: Mapping[str, Any],
) -> Reference:
    names = {key for made in runs for key in made["metrics"]}
    if "val/accuracy" in names:  # a run that diverged has no test metrics, and shall count as 0
        names.add("test/accuracy")
    found = {key: Interval.of([_value(made, key) for made in runs]) for key in sorted(names)}
    samples = sum(made["client_samples"] for made in runs) / len(runs)
    metrics = {key: one for key, one in found.items() if one is not None}
    diverged = sum(made["diverged"] for made in runs)
    return Reference(name, cell, text, metrics, diverged, samples, dict(values))
