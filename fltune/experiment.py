"""What one federated run is: a typed, validated, frozen config.

    experiment = Experiment.parse({"client": {"lr": 0.1}, "server": {"name": "fedgm", "lr": 2.0}})
    result = fltune.run(experiment)

Every name is dotted (``server.lr``, ``data.partition.alpha``) and the same in files, in ``--set``,
in Optuna's parameters and in MLflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from fltune import dotted
from fltune.algorithms import ALGORITHMS
from fltune.algorithms.base import Algorithm
from fltune.data import DATASETS, PARTITIONS
from fltune.data.partition import Partition
from fltune.data.validation import check_growth
from fltune.errors import ConfigError
from fltune.federation.clock import CLOCKS
from fltune.federation.compression import COMPRESSORS
from fltune.federation.delays import DELAYS
from fltune.federation.local import LocalSGD
from fltune.federation.losses import LOSSES
from fltune.federation.precision import misfit
from fltune.federation.work import WORK
from fltune.models import MODELS
from fltune.parameters import describe
from fltune.participation import PARTICIPATION
from fltune.registry import UnknownNameError
from fltune.schema import (
    Component,
    Integer,
    Named,
    Parsed,
    Real,
    Section,
    component_model,
    located,
    problem,
    problems,
    validate,
)
from fltune.server import SERVERS
from fltune.server.base import ServerOptimizer
from fltune.server.fedgm import FedSGD
from fltune.server.torch_optimizer import TorchServer

Count = Annotated[Integer, Field(ge=1)]
Seed = Annotated[Integer, Field(ge=0)]


def _shares(raw: Any) -> Any:
    if raw is None:
        return None
    plain = isinstance(raw, (list, tuple)) and len(raw) == 3
    if not plain or not all(type(s) in (int, float) and s > 0 for s in raw):
        raise problem(f"found {raw!r}; write three shares above 0, such as [0.8, 0.1, 0.1]")
    if abs(sum(raw) - 1) > 1e-6:
        raise problem(f"found {raw!r}; the shares must sum to 1, these do to {sum(raw):g}")
    return list(raw)


_FIXED, _GROWING = TypeAdapter(Count | None), TypeAdapter(dict[Count, Count | None])


def _panel(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return _FIXED.validate_python(raw)
    growth = _GROWING.validate_python(dict(raw))
    try:
        check_growth(growth)
    except ValueError as error:
        raise problem(str(error)) from None
    return growth


class DataSection(Component):
    """The data set and who holds what of it.

    A section that names no partition means the one that its data set calls the default.
    """

    clients: Count = Field(50, description="number of clients N")
    partition: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(PARTITIONS, key="kind", default="iid"))]
    ] = Field(default="iid", validate_default=True, description="how samples are dealt out")
    val_fraction: Annotated[Real, Field(gt=0, lt=1)] = Field(
        0.1,
        description="share of the training samples held out for validation, unless the data set "
        "has validation samples of its own",
    )
    val_from: Literal["pool", "clients", "test"] = Field(
        "pool",
        description="who holds them out. pool: nobody, they are drawn before any is dealt; "
        "clients: every client, of its own, so that each can be asked; test: none are held out, "
        "the test samples choose, as in papers that select by test accuracy: scores are too good",
    )
    resplit: Annotated[list[Real] | None, BeforeValidator(_shares)] = Field(
        None,
        description="shares of training, validation and test samples, such as [0.8, 0.1, 0.1], "
        "drawn anew by split_seed from all that are published; null: as published, with "
        "val_fraction",
    )
    val_clients: Annotated[int | dict[int, int | None] | None, BeforeValidator(_panel)] = Field(
        None,
        description="validate on a fixed panel of so many clients, drawn by split_seed; or on one "
        "that grows, such as {1: 5, 31: 15}: 15 from round 31 on; null: all",
    )
    split_seed: Seed = Field(
        0,
        description="seed of the validation split and panel; the same for all runs of a comparison",
    )
    partition_seed: Seed | None = Field(
        None, description="seed of the partition; null: the run's seed"
    )

    def dealt_by(self, seed: int) -> int:
        """Return the seed of the partition, given the run's."""
        return seed if self.partition_seed is None else self.partition_seed

    @model_validator(mode="before")
    @classmethod
    def _default_partition(cls, raw: Any) -> Any:
        kind = getattr(cls.target, "default_partition", "iid")
        given = raw.get("partition", {})
        named = {"kind": kind, **given} if isinstance(given, Mapping) else given
        return {**raw, "partition": named}


class ServerSection(Component):
    """The server optimizer; a ``torch.optim`` class serves too."""

    @property
    def of_torch(self) -> bool:
        """Whether the server is a ``torch.optim`` class."""
        return isinstance(self.target, type) and issubclass(self.target, torch.optim.Optimizer)

    @property
    def stands_alone(self) -> bool:
        """Whether the optimizer can be built, and so checked, without data."""
        return self.of_torch or super().stands_alone

    def build(self, **given: Any) -> ServerOptimizer:
        """Construct the callback."""
        if self.of_torch:
            return TorchServer(self.target, **self.options())
        built: ServerOptimizer = super().build(**given)
        return built


class _Client(Component):
    """The clients' optimizer; ``batch_size: full`` is another way to write null."""

    @field_validator("batch_size", mode="before", check_fields=False)
    @classmethod
    def _full(cls, value: Any) -> Any:
        return None if value == "full" else value


ClientSection = component_model(LocalSGD, _Client)


def _weightings(algorithm: Algorithm) -> tuple[Any, ...]:
    """Return the aggregation weights that a method is defined with."""
    metas = {name: meta for name, _, meta in describe(type(algorithm))}
    return metas["weighting"].choices or ()


def _known_loss(name: Any) -> Any:
    if not isinstance(name, str):
        raise problem(f"found {name!r}; a loss is a name or an import path, without further keys")
    try:
        LOSSES.load(name)
    except UnknownNameError as error:
        raise problem(str(error)) from None
    return name


class Experiment(Section):
    """One federated run.

    Symbols are the papers': N clients, cohort S_t, T rounds, eta server rate, eta_l client rate.
    """

    data: SerializeAsAny[
        Annotated[DataSection, BeforeValidator(Named(DATASETS, DataSection, default="digits"))]
    ] = Field(default="digits", validate_default=True)
    model: SerializeAsAny[Annotated[Component, BeforeValidator(Named(MODELS, default="mlp"))]] = (
        Field(default="mlp", validate_default=True)
    )
    loss: Annotated[str, BeforeValidator(_known_loss)] = Field(
        "cross_entropy",
        description="per-sample loss: cross_entropy, squared_error, or an import path",
    )
    participation: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(PARTICIPATION, key="kind", default="full"))]
    ] = Field(default="full", validate_default=True)
    client: SerializeAsAny[
        Annotated[Component, BeforeValidator(lambda raw: validate(ClientSection, raw))]
    ] = Field(default={}, validate_default=True)
    algorithm: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(ALGORITHMS, default="fedavg"))]
    ] = Field(default="fedavg", validate_default=True)
    server: SerializeAsAny[
        Annotated[ServerSection, BeforeValidator(Named(SERVERS, ServerSection, default="fedavg"))]
    ] = Field(default="fedavg", validate_default=True)
    compression: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(COMPRESSORS, default="identity"))]
    ] = Field(default="identity", validate_default=True)
    work: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(WORK, key="kind", default="nominal"))]
    ] = Field(default="nominal", validate_default=True)
    delays: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(DELAYS, key="kind", default="none"))]
    ] = Field(default="none", validate_default=True)
    clock: SerializeAsAny[
        Annotated[Component, BeforeValidator(Named(CLOCKS, key="kind", default="none"))]
    ] = Field(default="none", validate_default=True)
    rounds: Count = Field(100, description="communication rounds T")
    eval_every: Count = Field(
        1, description="rounds between two validations; the last round is always validated"
    )
    seed: Seed = Field(0, description="root of all random numbers of the run")
    max_loss: Annotated[Real, Field(gt=0)] = Field(
        1e4, description="training loss above which a run has diverged"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="of model and samples")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="auto: cuda if there is one; in a search only if resources.gpus reserves it",
    )
    strategy: Literal["auto", "fastest", "loop", "stacked", "dense", "compiled"] = Field(
        "auto",
        description="how the local solver works through a cohort. loop: one client after another; "
        "stacked: all at once, by torch.vmap; dense: all at once, by hand, for chains of dense "
        "layers; compiled: stacked by torch.compile; auto: by the model; fastest: by the clock, so "
        "that the last digits may differ from machine to machine",
    )
    precision: Literal["full", "tf32", "bf16"] = Field(
        "full",
        description="of products in model and gradients; full: dtype's own; tf32: factors of "
        "10 bits, device cuda only; bf16: bfloat16; parameters and updates stay float32",
    )
    batch_norm: Literal["refuse", "batch_statistics", "average"] = Field(
        "refuse",
        description="what becomes of running statistics, as of BatchNorm. refuse: such a model is "
        "an error; batch_statistics: none are kept, evaluation normalises by its batch too; "
        "average: they are averaged like the clients' models",
    )

    @model_validator(mode="after")
    def _fits(self) -> Experiment:
        """Check what two sections say about each other."""
        wrong = []
        if text := self._panel_problem():
            wrong.append(located("data.val_clients", text))
        algorithm, pattern = self.algorithm.build(), self.participation.build()
        oldest, nominal = algorithm.oldest_start(), self.client.build().amount
        own, clients = pattern.asynchronous, self.data.clients
        method = f" (algorithm {self.algorithm.component_name!r})"
        checks: list[tuple[str, str, Callable[[], None]]] = [
            ("participation", " (data.clients)", lambda: pattern.check(clients)),
            ("server", " (rounds)", lambda: self.server.build().prepare(self.rounds)),
            ("compression", "", lambda: algorithm.check(self.compression.build())),
            ("participation", method, lambda: pattern.admit(oldest)),
            ("delays", method, lambda: self.delays.build().check(oldest, own)),
            ("work", "", lambda: self.work.build().check(nominal, clients, own)),
            ("clock", "", lambda: self.clock.build().check(clients, own)),
        ]
        for key, note, check in checks:
            try:
                check()
            except ValueError as error:
                wrong.append(located(key, f"{error}{note}"))
        if own and self.compression.build().error_feedback:
            text = "error feedback remembers one message of a client; a buffer may hold two"
            wrong.append(located("compression", f"{text} (participation)"))
        if algorithm.plain_server and self.server.target is not FedSGD:
            text = "the method defines the whole server step; use server: fedavg"
            name = self.algorithm.component_name
            wrong.append(located("server", f"{text} with algorithm {name!r}"))
        if text := misfit(self.precision, self.dtype, self.device):
            wrong.append(located("precision", text))
        if self.device == "cuda" and not torch.cuda.is_available():
            wrong.append(located("device", "found 'cuda'; there is no CUDA device here, use auto"))
        if wrong:
            raise ValidationError.from_exception_data("Experiment", wrong)
        return self

    def _panel_problem(self) -> str:
        """Return why the panel of validation clients cannot be had, as far as the config shows."""
        data, panel = self.data, self.data.val_clients
        if panel is None:
            return ""
        own = type(data.partition.build()).known_clients is not Partition.known_clients
        if data.val_from == "test" or (data.val_from == "pool" and not own):
            return "whose the validation samples are is not known; set data.val_from to clients"
        counts = panel.values() if isinstance(panel, dict) else [panel]
        most = max(k or 1 for k in counts)
        if data.val_from == "clients" and most > data.clients:
            return f"found {most}; there are {data.clients} clients (data.clients)"
        return ""

    @classmethod
    def parse(cls, raw: Mapping[str, Any], source: str | None = None) -> Experiment:
        """Validate a nested mapping.

        Raises:
            ConfigError: all problems at once, each with its dotted key.
        """
        try:
            return _PARSED.get(raw, lambda: validate(cls, raw))
        except ValidationError as error:
            raise ConfigError(problems(error), source) from None

    def with_values(self, values: Mapping[str, Any]) -> Experiment:
        """Return a copy with dotted values set, validated anew.

        Raises:
            ConfigError: a value outside its range, or one that does not fit the others.
        """
        return Experiment.parse(dotted.with_values(self.as_dict(), values))

    def cautions(self) -> list[str]:
        """Return what a user should know before running this config, a sentence each.

        Nothing here is wrong; it is unusual, or known to fail.
        """
        algorithm, pattern = self.algorithm.build(), self.participation.build()
        found = list(algorithm.warnings(self.client.build()))
        found += pattern.warnings(algorithm.oldest_start())
        if self.data.val_from == "test":
            found.append("data.val_from: what is chosen by test data has scores that are too good")
        panel = self.data.val_clients
        if isinstance(panel, dict) and max(panel) > self.rounds:
            found.append(
                f"data.val_clients: the run ends before round {max(panel)}, from which on more "
                "clients would have judged it"
            )
        active = getattr(self.participation, "per_round", self.data.clients)
        if active < algorithm.fewest_clients:
            found.append(
                f"participation: {active} client a round; {self.algorithm.component_name} corrects "
                f"nothing with fewer than {algorithm.fewest_clients}"
            )
        if pattern.merges_repeats and "samples" not in _weightings(algorithm):
            found.append(
                f"participation: a client drawn twice has twice the weight p_i; "
                f"{self.algorithm.component_name} counts every client alike, and is not defined "
                "with other weights"
            )
        twice = pattern.merges_repeats and getattr(pattern, "by_samples", False)
        if twice and algorithm.weighting == "samples":
            found.append(
                "participation.by_samples and algorithm.weighting: samples: who holds many samples "
                "is drawn more often, and counts more each time; with weighting: uniform the "
                "expected weights are n_k / n"
            )
        if not algorithm.any_server and self.server.target is not FedSGD:
            found.append(
                f"no paper defines {self.algorithm.component_name} with the server optimizer "
                f"{self.server.component_name}"
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return plain nested values: what a YAML file would hold."""
        return self.model_dump(mode="json")

    def as_params(self) -> dict[str, Any]:
        """Return the config flat, by dotted key."""
        return dict(dotted.flatten(self.as_dict()))


_PARSED: Parsed[Experiment] = Parsed()
