"""From a config to a finished federated run: build the pieces, fit, evaluate, say how it ended."""

from __future__ import annotations

import functools
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import nn

from fltune.data.dataset import federate
from fltune.data.federated import FederatedData
from fltune.data.partition_file import write_partition
from fltune.errors import ConfigError
from fltune.experiment import DataSection, Experiment
from fltune.federation import (
    DivergenceGuard,
    FederatedDataModule,
    FederatedModule,
    History,
    RoundCheckpoint,
    StopReason,
)
from fltune.federation.history import Row
from fltune.federation.losses import LOSSES
from fltune.participation.base import Participation
from fltune.participation.trace import record, trace_suffix, write_rounds
from fltune.preflight import try_out
from fltune.randomness import derive_seed

COLLAPSE_SHARE = 0.75
"""A final validation loss above this share of a constant prediction's is a collapse."""
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
        data: client sizes and heterogeneity (see :meth:`FederatedData.report`).
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


@dataclass
class Run:
    """The built pieces of one run, ready for ``trainer.fit(module, datamodule)``."""

    trainer: L.Trainer
    module: FederatedModule
    datamodule: FederatedDataModule
    history: History
    guard: DivergenceGuard


def load_data(section: DataSection, seed: int) -> FederatedData:
    """Load and partition a data set; cached, so that the trials of a worker load it once.

    Raises:
        DataError: missing or corrupt files, or too few samples for so many clients.
    """
    key = json.dumps(section.model_dump(mode="json"), sort_keys=True)
    chosen = section.partition_seed
    return _load_data(_Hashed(key, section), seed if chosen is None else chosen)


def save_partition(experiment: Experiment, path: str | Path) -> None:
    """Write who holds what in a run to a file that the partition ``file`` reads.

    Raises:
        ConfigError, DataError: the data cannot be had, or the file not be written.
    """
    section = experiment.data
    chosen = section.partition_seed
    seed = experiment.seed if chosen is None else chosen
    made_by = {"data": section.model_dump(mode="json"), "seed": seed}
    write_partition(path, load_data(section, experiment.seed), made_by)


@dataclass(frozen=True)
class _Hashed:
    """A section with the text that identifies it, so that a cache can hold it."""

    key: str
    section: DataSection = field(compare=False)


@functools.lru_cache(maxsize=4)
def _load_data(hashed: _Hashed, seed: int) -> FederatedData:
    section = hashed.section
    return federate(
        section.build(num_clients=section.clients),
        section.partition.build(),
        section.clients,
        section.val_fraction,
        seed=derive_seed(seed, "partition"),
        split_seed=section.split_seed,
    )


def build_network(experiment: Experiment, data: FederatedData) -> nn.Module:
    """Build the initial model: a function of (model section, seed), shared by all methods.

    Raises:
        ConfigError: the model's constructor refuses its arguments, or it makes no module.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(experiment.seed, "model"))
        try:
            network = experiment.model.build(
                input_shape=data.input_shape, num_classes=data.num_classes
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"model: {error}") from error
    if not isinstance(network, nn.Module):
        name = experiment.model.component_name
        raise ConfigError(f"model: {name} made a {type(network).__name__}, not a torch.nn.Module")
    return network.to(getattr(torch, experiment.dtype))


def build_module(experiment: Experiment, data: FederatedData) -> FederatedModule:
    """Build the module of the round loop, and see that model, data and loss go together.

    Raises:
        ConfigError: they do not, or the model's layers do not suit ``batch_norm`` or ``strategy``.
    """
    try:
        module = FederatedModule(
            build_network(experiment, data),
            LOSSES.load(experiment.loss),
            experiment.algorithm.build(),
            experiment.client.build(),
            num_clients=data.num_clients,
            rounds=experiment.rounds,
            num_classes=data.num_classes,
            strategy=experiment.strategy,
            compressor=experiment.compression.build(),
            seed=experiment.seed,
            batch_norm=experiment.batch_norm,
            clock=experiment.clock.build(),
        )
    except ValueError as error:
        raise ConfigError(f"model: {error}") from error
    try_out(experiment, module, data)
    return module


def build_participation(experiment: Experiment, data: FederatedData) -> Participation:
    """Build the sampler of cohorts, at round 0 of a run.

    Raises:
        ConfigError: the pattern does not fit the data.
    """
    histograms = None if data.num_classes is None else data.histograms()
    pattern = experiment.participation.build()
    try:
        return pattern.bind(data.num_clients, experiment.seed, histograms)
    except ValueError as error:
        raise ConfigError(f"participation: {error}") from error


def build(
    experiment: Experiment,
    on_row: Callable[[Row], None] | None = None,
    callbacks: Sequence[L.Callback] = (),
    checkpoint: str | Path | None = None,
) -> Run:
    """Build the Lightning trainer, module and data of one run.

    Args:
        experiment: the validated config.
        on_row: called with the metrics of each evaluated round.
        callbacks: further Lightning callbacks.
        checkpoint: file to save the run to after every evaluated round.

    Raises:
        ConfigError, DataError: what the config alone could not show.
    """
    data = load_data(experiment.data, experiment.seed)
    sgd = experiment.client.build()
    dtype = getattr(torch, experiment.dtype)
    history = History(experiment.eval_every, on_row)
    guard = DivergenceGuard(experiment.max_loss)
    saving = [RoundCheckpoint(checkpoint, experiment.eval_every)] if checkpoint else []
    cuda = experiment.device != "cpu" and torch.cuda.is_available()
    with quiet():
        trainer = L.Trainer(
            max_epochs=experiment.rounds,
            accelerator="gpu" if cuda else "cpu",
            devices=1,
            callbacks=[experiment.server.build(), guard, *callbacks, history, *saving],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
    participation = build_participation(experiment, data)
    module = build_module(experiment, data)
    datamodule = FederatedDataModule(
        data,
        participation,
        sgd,
        experiment.seed,
        dtype,
        work=experiment.work.build(),
        delays=experiment.delays.build(),
    )
    return Run(trainer, module, datamodule, history, guard)


def run(
    experiment: Experiment | Mapping[str, Any],
    test: bool = True,
    on_row: Callable[[Row], None] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_participation: str | Path | None = None,
) -> RunResult:
    """Run the federated rounds of one config.

    Args:
        experiment: the validated config, or the same as a nested mapping.
        test: also evaluate the final model on the test split. A search never does while it selects.
        on_row: called with the metrics of each evaluated round.
        checkpoint: file to save the run to after every evaluated round.
        resume: go on from ``checkpoint``.
        save_participation: a .json or .csv file to write the run's cohorts to, for ``kind: trace``.

    Raises:
        ConfigError, DataError: what the config alone could not show.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.parse(experiment)
    if resume and (checkpoint is None or not Path(checkpoint).is_file()):
        raise ConfigError(f"resume: there is no checkpoint at {checkpoint}")
    if save_participation is not None:
        _check_trace_file(save_participation, experiment)
    built = build(experiment, on_row, checkpoint=checkpoint)
    started = time.perf_counter()
    with quiet():
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
    reason, message = _verdict(built)
    participation, module = built.datamodule.participation, built.module
    if save_participation is not None:
        # drawn anew, as its seed alone says: a resumed run itself has drawn only the last ones
        again = build_participation(experiment, built.datamodule.data)
        write_rounds(save_participation, record(again, participation.round))
    rounds = int(metrics.pop("round"))
    metrics.pop("client_samples", None)
    return RunResult(
        stop_reason=reason,
        message=message,
        metrics={k: v for k, v in metrics.items() if not k.startswith("comm/")},
        history=built.history.rows,
        rounds=rounds,
        comm={"up_bits": module.bits_up, "down_bits": module.bits_down},
        participation=participation.report(),
        client_samples=module.client_samples,
        seconds=seconds,
        strategy=module.solver.strategy,
        data=built.datamodule.data.report(),
        timings=dict(module.solver.timings),
    )


def _check_trace_file(path: str | Path, experiment: Experiment) -> None:
    """Refuse, before the work, a trace that could not be written after it."""
    path = Path(path).expanduser()
    if experiment.participation.build().asynchronous:
        raise ConfigError(
            f"save_participation: a trace holds no delays, so it cannot replay "
            f"{experiment.participation.component_name} participation"
        )
    try:
        trace_suffix(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except (OSError, ValueError) as error:
        raise ConfigError(f"save_participation: {error}") from error


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
    if constant is not None and rounds >= COLLAPSE_ROUNDS and final > COLLAPSE_SHARE * constant:
        return StopReason.COLLAPSED, (
            f"collapsed, or never learned: after {rounds} rounds the validation loss {final:.3f} "
            f"is hardly better than {constant:.3f}, that of a constant prediction"
        )
    return StopReason.COMPLETED, f"completed {rounds} rounds"


def constant_loss(data: FederatedData) -> float | None:
    """Return the validation loss of predicting the class frequencies; None without classes."""
    if data.num_classes is None:
        return None
    share = torch.bincount(data.val.y.cpu(), minlength=data.num_classes) / len(data.val)
    return float(torch.special.entr(share).sum())


def use_threads(cpus: float) -> None:
    """Give torch as many threads as a trial has cores.

    Results depend on it in the last digits, and training amplifies those: a trial that is run again
    alone must have what it had in its search.
    """
    torch.set_num_threads(max(1, int(cpus)))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's tips and the warnings that do not apply to rounds."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
