"""The pieces of a run: data, model, cohorts, trainer, and the callbacks that look on."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lightning as L
import torch
from torch import nn

from fltune.data.dataset import federate
from fltune.data.federated import FederatedData
from fltune.errors import ConfigError, DataError
from fltune.experiment import DataSection, Experiment
from fltune.federation import DivergenceGuard, FederatedDataModule, FederatedModule, History
from fltune.federation.evaluation import ClientScores
from fltune.federation.history import Row
from fltune.federation.losses import LOSSES
from fltune.federation.quiet import NoProfiler, quiet
from fltune.keyed import Keyed
from fltune.participation.base import Participation
from fltune.preflight import try_out
from fltune.randomness import derive_seed


def load_data(section: DataSection, seed: int) -> FederatedData:
    """Load and partition a data set; cached, so that the trials of a worker load it once.

    Raises:
        DataError: missing or corrupt files, one class alone, or too few samples for so many
            clients.
    """
    key = json.dumps(section.model_dump(mode="json"), sort_keys=True)
    classes = section.target, section.partition.target  # a notebook may define one anew
    return _load_data(Keyed((key, *classes), section), section.dealt_by(seed))


@functools.lru_cache(maxsize=4)
def _load_data(keyed: Keyed[DataSection], seed: int) -> FederatedData:
    section = keyed.value
    data = federate(
        section.build(num_clients=section.clients),
        section.partition.build(),
        section.clients,
        section.val_fraction,
        seed=derive_seed(seed, "partition"),
        split_seed=section.split_seed,
        val_from=section.val_from,
        val_clients=section.val_clients,
        resplit=section.resplit,
    )
    if data.num_classes == 1:
        raise DataError(
            f"data: {section.component_name} has one class; a classification needs two, and the "
            "targets of a regression are floating"
        )
    return data


_OF_A_REGRESSION = (
    "; the data is a regression, num_classes is None: take linear, or a model of your own whose "
    "constructor does without"
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
        except (TypeError, ValueError, AssertionError) as error:  # torch's layers assert
            why = "" if data.num_classes is not None else _OF_A_REGRESSION
            raise ConfigError(f"model: {error}{why}") from error
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
            precision=experiment.precision,
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


def build_datamodule(experiment: Experiment, data: FederatedData) -> FederatedDataModule:
    """Build the source of a run's cohorts.

    Raises:
        ConfigError: the participation pattern does not fit the data.
    """
    return FederatedDataModule(
        data,
        build_participation(experiment, data),
        experiment.client.build(),
        experiment.seed,
        getattr(torch, experiment.dtype),
        work=experiment.work.build(),
        delays=experiment.delays.build(),
    )


@dataclass
class Watch:
    """The callbacks that look at a run, and never change it."""

    history: History
    guard: DivergenceGuard
    scores: ClientScores | None

    @property
    def judging(self) -> list[L.Callback]:
        """Those that add to an evaluation, before the history reads it."""
        return [] if self.scores is None else [self.scores]


def build_watch(
    experiment: Experiment, data: FederatedData, on_row: Callable[[Row], None] | None
) -> Watch:
    """Build the callbacks that look at a run."""
    owner = data.val_owner
    scores = None
    if owner is not None:
        scores = ClientScores(owner, data.num_classes is not None, grows=bool(data.val_stages))
    history = History(experiment.eval_every, on_row)
    return Watch(history, DivergenceGuard(experiment.max_loss), scores)


def build_trainer(experiment: Experiment, callbacks: Sequence[L.Callback]) -> L.Trainer:
    """Build a silent Lightning trainer for the rounds of a run."""
    cuda = experiment.device != "cpu" and torch.cuda.is_available()
    with quiet():
        return L.Trainer(
            max_epochs=experiment.rounds,
            accelerator="gpu" if cuda else "cpu",
            devices=1,
            callbacks=list(callbacks),
            profiler=NoProfiler(),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
