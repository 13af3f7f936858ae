"""Several configs as one computation: which can be packed, whether it pays, and how they ran.

    from fltune.packing import pack_key, run_pack

    assert pack_key(a) == pack_key(b)
    first, second = run_pack([a, b])

The runs of a pack share who works when, and how long; method, rates, momenta, server optimizer and
compression are each run's own (:mod:`fltune.federation.pack`). The numbers are those of
:func:`fltune.runner.run`, up to the order of floating-point sums.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence

import torch

from fltune.experiment import Experiment
from fltune.federation.history import Row
from fltune.federation.local import LocalSGD
from fltune.federation.losses import LOSSES
from fltune.federation.pack import MERGED, Pack
from fltune.federation.pack_members import Member
from fltune.federation.precision import products
from fltune.federation.quiet import quiet
from fltune.federation.strategies import STRATEGIES, choose_strategy
from fltune.keyed import Keyed
from fltune.pieces import (
    build_datamodule,
    build_module,
    build_network,
    build_participation,
    build_trainer,
    build_watch,
    load_data,
)
from fltune.runner import Run, RunResult, result_of

SHARED = (
    *("data", "model", "loss", "participation", "work", "delays"),
    *("rounds", "eval_every", "seed", "strategy", "precision", "batch_norm"),
    *("dtype", "device"),
)
"""Sections that the runs of a pack have in common."""

STEP_WORK = 160e6
"""Floating-point operations of a pack's step, from which on more members gain little.

Measured on a CPU, as ``benchmarks/packing.py`` does, by rounds per second against runs alone: a
step of 1.6e6 operations (5 clients, 64-64-32-10, batches of 8) gains 2.6, 4.2, 5.5 and 5.7 with 4,
8, 16 and 64 members; one of 11e6 (50 clients, 60-32-10, batches of 16) 1.3, 1.3, 1.5 and 1.6; one
of 128e6 (10 clients, 64-512-64-10, batches of 32) loses.
"""
MOST = 64
"""Members at most. On digits a run and round took 0.90, 0.83 and 0.62 ms of processor time in packs
of 15, 23 and 45, since members themselves cost less than when STEP_WORK was measured."""
MEMORY = 2 * 2**30
"""Bytes of the client states of all members."""
LOOK_AHEAD = 8
"""Rounds whose cohorts say how large cohorts are."""

OnRow = Callable[[int, Row], bool | None]
OnRound = Callable[[], Iterable[int]]
OnEnd = Callable[[int, RunResult], None]


def pack_key(experiment: Experiment) -> str:
    """Return a text that is equal for experiments that can run as one pack."""
    shared = experiment.model_dump(mode="json", include=set(SHARED))
    sgd: LocalSGD = experiment.client.build()
    work = {"unit": sgd.unit, "amount": sgd.amount, "size": sgd.batch_size, "batches": sgd.batches}
    # an asynchronous pattern discards what is older than the method keeps
    oldest = experiment.algorithm.build().oldest_start()
    return json.dumps({**shared, "client": work, "oldest": oldest}, sort_keys=True)


def worth_packing(experiment: Experiment) -> int:
    """Return how many runs to pack together; 1 where packing gains nothing.

    A rule of the model and the work of a local step, the same on every machine: so many runs that
    their common step takes about :data:`STEP_WORK`, but no more than :data:`MOST`, nor more than
    client states fit into :data:`MEMORY`. Loops over clients (convolutions) and exact solutions
    gain nothing.

    Raises:
        ConfigError, DataError: data, model or participation that cannot be had.
    """
    strategy, dimension, work = _step(Keyed(pack_key(experiment), experiment))
    algorithm, compressor = experiment.algorithm.build(), experiment.compression.build()
    if strategy not in MERGED or algorithm.solves_exactly:
        return 1
    vectors = len(algorithm.client_state(torch.empty(0)))
    vectors += len(algorithm.compressed) if compressor.error_feedback else 0
    bytes_ = getattr(torch, experiment.dtype).itemsize * dimension
    held = max(vectors * experiment.data.clients * bytes_, 1)
    return max(1, min(MOST, int(STEP_WORK / work), MEMORY // held))


@functools.lru_cache(maxsize=64)
def _step(keyed: Keyed[Experiment]) -> tuple[str, int, float]:
    """Return strategy, dimension, and floating-point operations of a cohort's local step."""
    experiment = keyed.value
    data = load_data(experiment.data, experiment.seed)
    network, losses = build_network(experiment, data), LOSSES.load(experiment.loss)
    strategy: str = experiment.strategy
    if strategy not in STRATEGIES:
        strategy = choose_strategy(network, losses, experiment.precision)
    dimension = sum(p.numel() for p in network.parameters() if p.requires_grad)
    pattern = build_participation(experiment, data)
    clients = sum(len(next(iter(pattern))) for _ in range(LOOK_AHEAD)) / LOOK_AHEAD
    size = float(data.sizes.double().mean())
    batch = min(experiment.client.build().batch_size or size, size)
    # two for each product of a dense layer's pass, of which there are three
    return strategy, dimension, 6.0 * dimension * batch * max(clients, 1.0)


def run_pack(
    experiments: Sequence[Experiment],
    *,
    test: bool | Sequence[bool] = False,
    on_row: OnRow | None = None,
    on_round: OnRound | None = None,
    on_end: OnEnd | None = None,
) -> list[RunResult | Exception]:
    """Run the federated rounds of several configs as one computation.

    Args:
        experiments: of one :func:`pack_key`.
        test: whether also to evaluate final models on the test split; for all, or for each.
        on_row: called with a run's place and the metrics of its evaluated round; it returns True to
            end that run with this round.
        on_round: called after every round, when all have made their rows; returns the places of
            runs that are to end with it.
        on_end: called with the place and the result of a run as it leaves the pack.

    Returns:
        How each run ended, in the order given; what it raised, where it did. A run's ``seconds``
        are its share of the pack's.

    Raises:
        ValueError: experiments that cannot be packed, or not one ``test`` for each.
        ConfigError, DataError: data or participation that no member can have.
    """
    if not experiments:
        return []
    _check_keys(experiments)
    tested = [test] * len(experiments) if isinstance(test, bool) else list(test)
    if len(tested) != len(experiments):
        raise ValueError(f"test has {len(tested)} entries for {len(experiments)} experiments")
    return _Packing(experiments, tested, on_row, on_round, on_end).run()


def _check_keys(experiments: Sequence[Experiment]) -> None:
    first, *others = (json.loads(pack_key(e)) for e in experiments)
    for place, other in enumerate(others, 1):
        differ = [name for name, value in first.items() if other[name] != value]
        if differ:
            raise ValueError(
                f"experiments 0 and {place} differ in {', '.join(differ)}: all runs of a pack have "
                "the same pack_key; run them one by one"
            )


class _Packing:
    """Builds the members, lets them run, and keeps how each ended."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        tested: Sequence[bool],
        on_row: OnRow | None,
        on_round: OnRound | None,
        on_end: OnEnd | None,
    ) -> None:
        self.experiments, self.tested = experiments, tested
        self.on_row, self.on_round, self.on_end = on_row, on_round, on_end
        first = experiments[0]
        self.data = load_data(first.data, first.seed)
        self.source = build_datamodule(first, self.data)
        self.outcomes: dict[int, RunResult | Exception] = {}
        self.runs: dict[Member, tuple[int, Run]] = {}
        for place, experiment in enumerate(experiments):
            try:
                self._add(place, experiment)
            except Exception as error:
                self.outcomes[place] = error

    def _add(self, place: int, experiment: Experiment) -> None:
        def report(row: Row) -> None:
            if self.on_row is not None and self.on_row(place, row):
                member.should_stop = True

        watch = build_watch(experiment, self.data, report)
        callbacks = [experiment.server.build(), watch.guard, *watch.judging, watch.history]
        module = build_module(experiment, self.data)
        member = Member(module, callbacks, experiment.rounds)
        # a member is what its run has of a trainer
        run = Run(member, module, self.source, watch.history, watch.guard, watch.scores)  # type: ignore[arg-type]
        self.runs[member] = place, run

    def run(self) -> list[RunResult | Exception]:
        """Run the pack."""
        if self.runs:
            first = self.experiments[0]
            pack = Pack(list(self.runs), self._leave, self._stop)
            with quiet(), products(first.precision):
                build_trainer(first, []).fit(pack, self.source)
        for member, (place, _) in self.runs.items():
            if member.error is not None:
                self.outcomes[place] = member.error
        return [self.outcomes[place] for place in range(len(self.experiments))]

    def _stop(self) -> None:
        """Let the runs end with this round that the caller names."""
        if self.on_round is None:
            return
        places = set(self.on_round())
        for member, (place, _) in self.runs.items():
            member.should_stop = member.should_stop or place in places

    def _leave(self, member: Member) -> None:
        """Keep how a member ended; at once, for the pattern's counts go on with the others."""
        place, run = self.runs[member]
        rows = run.history.rows
        metrics: Row = dict(rows[-1]) if rows else {"round": float(member.current_epoch)}
        if self.tested[place] and run.guard.reason is None:
            scores = member.scores("test", self.source.test_dataloader())
            metrics.update({name: float(value) for name, value in scores.items()})
        self.outcomes[place] = result = result_of(run, metrics, member.seconds)
        if self.on_end is not None:
            self.on_end(place, result)
