"""From a config to a finished federated run: build the pieces, fit, evaluate, say how it ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch

from fltune.data.federated import FederatedData
from fltune.data.partition_file import write_partition
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import (
    DivergenceGuard,
    FederatedDataModule,
    FederatedModule,
    History,
    RoundCheckpoint,
    StopReason,
)
from fltune.federation.evaluation import ClientScores, Columns
from fltune.federation.history import Row
from fltune.federation.interrupted import interruptible
from fltune.federation.precision import products
from fltune.federation.processes import Number, Processes
from fltune.federation.quiet import quiet
from fltune.participation.trace import record, trace_suffix, write_rounds
from fltune.pieces import (
    build_datamodule,
    build_module,
    build_participation,
    build_trainer,
    build_watch,
    load_data,
)
from fltune.same_run import SameRun

COLLAPSE_SHARE = 0.75
"""A final validation loss above this share of a constant prediction's is a collapse, ..."""
COLLAPSE_ACCURACY = 1.5
"""... if the accuracy is below so many times that prediction's: slow starters learn before their
losses fall."""
COLLAPSE_ROUNDS = 20
"""Rounds before a poor loss is called a collapse and not a short run."""


@dataclass(frozen=True)
class RunResult:
    """How a federated run ended.

    Attributes:
        stop_reason: completed, collapsed, diverged or stopped.
        message: one sentence on the reason.
        metrics: final values, by name: ``train/loss``, ``val/accuracy``, ``test/accuracy`` ...;
            with a clock ``clock/seconds``, the simulated time of all rounds.
        history: one row per evaluated round (see :class:`fltune.federation.History`).
        rounds: communication rounds made.
        comm: ``up_bits`` and ``down_bits`` over all rounds and active clients.
        participation: ``tau_max``, ``tau_avg``, ``coverage``, ``fairness`` and ``count_cv`` of the
            cohorts drawn (see :class:`fltune.participation.base.Participation`).
        client_samples: samples processed by clients.
        seconds: wall-clock time of training and evaluation, building apart.
        strategy: how the local solver worked.
        timings: seconds of one cohort's local work by strategy, where ``fastest`` measured them.
        processes: the most processes that shared the local work; its numbers do not depend on it.
        state_dict: the final model on the CPU, for ``load_state_dict`` of a network of its kind;
            empty where runs were packed.
        data: client sizes and heterogeneity (see :meth:`FederatedData.report`).
        by_client: the last validation, client by client, where validation samples have owners (see
            :class:`fltune.federation.evaluation.ClientScores`).
    """

    stop_reason: StopReason
    message: str
    metrics: dict[str, float]
    history: list[Row]
    rounds: int
    comm: dict[str, float]
    participation: dict[str, float]
    client_samples: int
    seconds: float
    strategy: str
    data: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    by_client: Columns = field(default_factory=dict)
    processes: int = 1
    state_dict: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)


@dataclass
class Run:
    """The built pieces of one run, ready for ``trainer.fit(module, datamodule)``."""

    trainer: L.Trainer
    module: FederatedModule
    datamodule: FederatedDataModule
    history: History
    guard: DivergenceGuard
    scores: ClientScores | None = None


def save_partition(experiment: Experiment, path: str | Path) -> None:
    """Write who holds what in a run to a file that the partition ``file`` reads.

    Raises:
        ConfigError, DataError: the data cannot be had, or the file not be written.
    """
    section = experiment.data
    seed = section.dealt_by(experiment.seed)
    made_by = {"data": section.model_dump(mode="json"), "seed": seed}
    write_partition(path, load_data(section, experiment.seed), made_by)


def build(
    experiment: Experiment,
    on_row: Callable[[Row], None] | None = None,
    callbacks: Sequence[L.Callback] = (),
    checkpoint: str | Path | None = None,
    data: FederatedData | None = None,
) -> Run:
    """Build the Lightning trainer, module and data of one run.

    Args:
        experiment: the validated config.
        on_row: called with the metrics of each evaluated round.
        callbacks: further Lightning callbacks.
        checkpoint: file to save the run to after every evaluated round.
        data: instead of those that the config names.

    Raises:
        ConfigError, DataError: what the config alone could not show.
    """
    if data is None:
        data = load_data(experiment.data, experiment.seed)
    watch = build_watch(experiment, data, on_row)
    saving: list[L.Callback] = []
    if checkpoint is not None:
        saving = [SameRun(experiment), RoundCheckpoint(checkpoint, experiment.eval_every)]
    server = experiment.server.build()
    trainer = build_trainer(
        experiment, [server, watch.guard, *callbacks, *watch.judging, watch.history, *saving]
    )
    datamodule = build_datamodule(experiment, data)
    module = build_module(experiment, data)
    return Run(trainer, module, datamodule, watch.history, watch.guard, watch.scores)


def run(
    experiment: Experiment | Mapping[str, Any],
    test: bool = True,
    on_row: Callable[[Row], None] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_participation: str | Path | None = None,
    data: FederatedData | None = None,
    processes: Number = 1,
    save_model: str | Path | None = None,
) -> RunResult:
    """Run the federated rounds of one config.

    Args:
        experiment: the validated config, or the same as a nested mapping.
        test: also evaluate the final model on the test split. A search never does while it selects.
        on_row: called with the metrics of each evaluated round.
        checkpoint: file to save the run to after every evaluated round.
        resume: go on from ``checkpoint``, which must be this run's: device, strategy and rounds may
            differ.
        save_participation: a .json or .csv file to write the run's cohorts to, for ``kind: trace``.
        data: instead of those that the config names.
        processes: how many share the local work (:mod:`fltune.federation.processes`); ``"auto"``:
            one for each core, where the run is long enough. Its numbers do not depend on it.
        save_model: a file for the final model's state dict, as ``torch.save`` writes it.

    Raises:
        ConfigError, DataError: what the config alone could not show.
        RunFailedError: one of several processes was lost.
        KeyboardInterrupt: Ctrl-C; with ``checkpoint`` what was saved is kept, and can be resumed.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.parse(experiment)
    if resume and (checkpoint is None or not Path(checkpoint).is_file()):
        raise ConfigError(f"resume: there is no checkpoint at {checkpoint}")
    if save_participation is not None:
        _check_trace_file(save_participation, experiment)
    if save_model is not None:
        _check_writable(save_model, "save_model")
    helping = Processes(processes)
    built = build(experiment, on_row, [helping], checkpoint, data)
    started = time.perf_counter()
    with quiet(), interruptible(), products(experiment.precision):
        built.trainer.fit(
            built.module,
            built.datamodule,
            ckpt_path=str(checkpoint) if resume else None,
            weights_only=True,
        )
        metrics = dict(built.history.rows[-1])
        if test and built.guard.reason is None:
            (scores,) = built.trainer.test(built.module, built.datamodule, verbose=False)
            metrics.update(scores)
    seconds = time.perf_counter() - started
    if save_participation is not None:
        # drawn anew, as its seed alone says: a resumed run itself has drawn only the last ones
        again = build_participation(experiment, built.datamodule.data)
        write_rounds(save_participation, record(again, built.datamodule.participation.round))
    state = built.module.network.state_dict()
    state = {name: value.detach().cpu().clone() for name, value in state.items()}
    if save_model is not None:
        torch.save(state, Path(save_model).expanduser())
    result = result_of(built, metrics, seconds)
    return replace(result, processes=helping.used, state_dict=state)


def result_of(built: Run, metrics: dict[str, float], seconds: float) -> RunResult:
    """Return how a run that has ended did.

    Args:
        built: its pieces.
        metrics: its last row, and what the test split says.
        seconds: that it took.
    """
    reason, message = _verdict(built)
    module = built.module
    rounds = int(metrics.pop("round"))
    metrics.pop("client_samples", None)
    return RunResult(
        stop_reason=reason,
        message=message,
        metrics={k: v for k, v in metrics.items() if not k.startswith("comm/")},
        history=built.history.rows,
        rounds=rounds,
        comm={"up_bits": module.bits_up, "down_bits": module.bits_down},
        participation=built.datamodule.participation.report(),
        client_samples=module.client_samples,
        seconds=seconds,
        strategy=module.solver.strategy,
        data=built.datamodule.data.report(),
        timings=dict(module.solver.timings),
        by_client=built.scores.latest if built.scores else {},
    )


def _check_trace_file(path: str | Path, experiment: Experiment) -> None:
    """Refuse, before the work, a trace that could not be written after it."""
    if experiment.participation.build().asynchronous:
        raise ConfigError(
            f"save_participation: a trace holds no delays, so it cannot replay "
            f"{experiment.participation.component_name} participation"
        )
    try:
        trace_suffix(Path(path))
    except ValueError as error:
        raise ConfigError(f"save_participation: {error}") from error
    _check_writable(path, "save_participation")


def _check_writable(path: str | Path, what: str) -> None:
    path = Path(path).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise ConfigError(f"{what}: {error}") from error


def _verdict(built: Run) -> tuple[StopReason, str]:
    """Say how a run ended: diverged, collapsed to what needs no model, or completed."""
    guard, rows = built.guard, built.history.rows
    if guard.reason is not None:
        return guard.reason, guard.message
    if built.trainer.current_epoch < (built.trainer.max_epochs or 0):
        return StopReason.STOPPED, f"stopped after {built.trainer.current_epoch} rounds"
    rounds, final = built.trainer.current_epoch, rows[-1].get("val/loss", math.nan)
    if not math.isfinite(final):
        return StopReason.DIVERGED, f"diverged by round {rounds - 1}: validation loss {final}"
    constant = constant_loss(built.datamodule.data)
    guessed = COLLAPSE_ACCURACY * largest_share(built.datamodule.data)
    learned = rows[-1].get("val/accuracy", 0.0) >= guessed  # a loss of one's own may have none
    late = rounds >= COLLAPSE_ROUNDS and not learned
    if constant is not None and late and final > COLLAPSE_SHARE * constant:
        return StopReason.COLLAPSED, (
            f"collapsed, or never learned: after {rounds} rounds the validation loss {final:.3f} "
            f"is hardly better than {constant:.3f}, that of a constant prediction"
        )
    return StopReason.COMPLETED, f"completed {rounds} rounds"


def constant_loss(data: FederatedData) -> float | None:
    """Return the validation loss of predicting the class frequencies; None without classes."""
    if data.num_classes is None:
        return None
    return float(torch.special.entr(_shares(data)).sum())


def largest_share(data: FederatedData) -> float:
    """Return the validation accuracy of predicting the most frequent class; 1 without classes."""
    return 1.0 if data.num_classes is None else float(_shares(data).max())


def _shares(data: FederatedData) -> torch.Tensor:
    """Return the frequency of each class in the validation data."""
    return torch.bincount(data.val.y.cpu(), minlength=data.num_classes or 0) / len(data.val)


def use_threads(cpus: float) -> None:
    """Give torch as many threads as a trial has cores.

    Results depend on it in the last digits, and training amplifies those: a trial that is run again
    alone must have what it had in its search.
    """
    torch.set_num_threads(max(1, int(cpus)))
