"""The round loop as a Lightning module: an epoch is one communication round.

``training_step`` gets a cohort, lets the algorithm state its local problems, the local solver solve
them, and the algorithm aggregate the answers to a pseudo-gradient. The server-optimizer callback
then moves the model (``on_train_batch_end``), and only after that do validation and the clients'
downlink step see it.
"""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from fltune.algorithms import base  # the module: it imports this package while it loads
from fltune.federation.client_state import ClientState
from fltune.federation.clock import Clock, Visit
from fltune.federation.cohort import Cohort
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.compression.messages import fresh_memory, send, without_memory
from fltune.federation.contract import (
    check_problem,
    check_rows,
    check_state,
    check_uplink,
    checked_result,
)
from fltune.federation.datamodule import FederatedDataModule
from fltune.federation.flat import FlatNetwork
from fltune.federation.layout import channels_last, prefers_channels_last
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, LocalSolver, Losses
from fltune.federation.precision import FULL
from fltune.federation.quiet import inspected
from fltune.federation.strategies import FASTEST
from fltune.server.base import ServerOptimizer

_COUNTS = ("bits_up", "bits_down", "client_samples", "seconds")
_VALUES = ("x", "pseudo_gradient", "round_metrics", "server_state", "_pending", "_round")
_BY_ROUND = {*_VALUES, *_COUNTS, "_current_fx_name"}  # the last is Lightning's, 29 times a round


class FederatedModule(L.LightningModule):
    """A federated run of one algorithm.

    Args:
        network: the global model; its initial parameters are x^0.
        losses: per-sample losses (output, target) -> [B].
        algorithm: the method.
        sgd: the clients' optimizer.
        num_clients: N.
        rounds: T, for schedules.
        num_classes: for accuracy; None where the task is no classification.
        strategy: how the local solver works (:mod:`fltune.federation.strategies`).
        compressor: of what clients send; identity if left out.
        seed: root of the server's randomness.
        batch_norm: what becomes of running statistics: ``refuse``, ``batch_statistics`` or
            ``average`` (:mod:`fltune.models.batch_norm`).
        clock: how long rounds last in simulated time; none if left out.
        precision: of the model's arithmetic (:mod:`fltune.federation.precision`).

    Attributes:
        x: the global model as a flat vector [d]; assigning moves the network.
        pseudo_gradient: D [d] of the round in progress; None in an empty round.
        round_metrics: numbers (0-d tensors) of the last round, by name.
        bits_up, bits_down: communication so far, over all active clients.
        client_samples: samples processed by clients so far.
        seconds: simulated time so far; None where nothing says it.
        lost: selected clients that were ``dropped``, and updates that were ``discarded``, so far;
            without entries where there can be none.
    """

    def __init__(
        self,
        network: nn.Module,
        losses: Losses,
        algorithm: base.Algorithm,
        sgd: LocalSGD,
        num_clients: int,
        rounds: int,
        num_classes: int | None = None,
        strategy: str = "auto",
        compressor: Compressor | None = None,
        seed: int = 0,
        batch_norm: str = "refuse",
        clock: Clock | None = None,
        precision: str = FULL,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.network = network
        self.flat = FlatNetwork(network, batch_norm, precision)
        self.losses = losses
        self.algorithm = algorithm
        self.sgd = sgd
        self.rounds = rounds
        self.solver = LocalSolver(self.flat, losses, sgd, strategy)
        self.num_clients = num_clients
        self.compressor = (compressor or Compressor()).bind(self.flat.sizes)
        algorithm.check(self.compressor)
        self.seed = seed
        self.loss_meter = MeanMetric(nan_strategy="disable")  # a NaN shall be seen
        self.accuracy = (
            MulticlassAccuracy(num_classes, average="micro") if num_classes is not None else None
        )
        self.server_state: base.State | None = None
        self.client_state: ClientState | None = None
        self.pseudo_gradient: Tensor | None = None
        self.round_metrics: dict[str, Tensor] = {}
        self.bits_up = self.bits_down = 0.0
        self.client_samples = 0
        self.clock = (clock or Clock()).bind(num_clients, seed)
        self.seconds: float | None = 0.0 if self.clock.runs else None
        self.lost: dict[str, int] = {}
        self._restored: dict[str, Any] | None = None
        self._channels_last: bool | None = None
        self._message_seen = self._rows_seen = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what every round changes at once; torch would first look what it is, at length."""
        if name in _BY_ROUND:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def x(self) -> Tensor:
        """The global model as a flat vector [d] (a copy)."""
        return self.flat.read()

    @x.setter
    def x(self, value: Tensor) -> None:
        self.flat.write(value)

    def on_fit_start(self) -> None:
        """Make the algorithm's state, or take it from the checkpoint."""
        x = self.x
        source = self.trainer.datamodule  # type: ignore[attr-defined]
        if source is not None:
            self._check(source)
        self.server_state = self.algorithm.server_state(x, self.num_clients)
        check_state(self.algorithm, "server_state", self.server_state)
        own = self.algorithm.client_state(x)
        check_state(self.algorithm, "client_state", own)
        template = {
            **own,
            **fresh_memory(self.compressor, self.algorithm.compressed, x),
        }
        self.client_state = ClientState(template, self.num_clients, self.device)
        if self._restored is not None:
            saved = self._restored["server"]
            self.server_state = {k: v.to(self.device) for k, v in saved.items()}
            self.client_state.load_state_dict(self._restored["clients"])
        else:
            self._initialise(x)

    def _check(self, source: FederatedDataModule) -> None:
        """Raise ValueError where the method or the clock does not go with how clients arrive."""
        pattern, oldest = source.participation, self.algorithm.oldest_start()
        source.delays.check(oldest, pattern.asynchronous)
        self.clock.check(self.num_clients, pattern.asynchronous)
        if pattern.asynchronous:
            pattern.admit(oldest)

    @torch.no_grad()
    def _initialise(self, x: Tensor) -> None:
        """Let all clients solve the algorithm's initial problem, if it has one: a visit by all."""
        problem = self.algorithm.initial_problem(x)
        if problem is None:
            return
        source = self.trainer.datamodule  # type: ignore[attr-defined]
        cohort = source.cohort(-1, range(self.num_clients))
        info = self._info(cohort)
        result = self._solve(problem, cohort, info)
        self._account(cohort, result, info)
        self.x, self.server_state, clients = self.algorithm.initialise(x, result, info)
        self._clients.scatter(cohort.clients, {**self._clients.gather(cohort.clients), **clients})

    def _solve(self, problem: LocalProblem, cohort: Cohort, info: base.RoundInfo) -> LocalResult:
        assert cohort.plan is not None
        full = cohort.full_batch() if problem.exact or problem.start_gradient else None
        lr = info.client_lr
        result = self.solver.solve(problem, cohort.data, cohort.plan, lr, cohort.keys, full)
        if result.statistics is not None:  # they are no part of x: no server optimizer moves them
            self.flat.write_statistics(info.weights @ result.statistics)
        return result

    def configure_optimizers(self) -> None:
        """The server optimizer is a callback; Lightning has none to step."""

    @torch.no_grad()
    @inspected
    def training_step(self, cohort: Cohort, batch_idx: int) -> None:
        """Run one communication round up to the pseudo-gradient."""
        problem = self.ask(cohort)
        if problem is not None:
            self.answer(self.solve(problem))

    def ask(self, cohort: Cohort) -> LocalProblem | None:
        """Begin a round: return what its clients are to solve; None where there are none."""
        info = self._info(cohort)
        x = self.x
        self._pending: tuple[base.State, base.State, base.RoundInfo, Tensor] | None = None
        self.pseudo_gradient = None
        if cohort.plan is None:
            self.round_metrics = {}
            self._pass_round(cohort)
            if self.algorithm.acts_on_empty_rounds:
                self._aggregate(x, {}, info)
            return None
        stored = self._clients.gather(cohort.clients)
        self._round = cohort, x, stored, info
        problem = self.algorithm.local_problem(x, self._server, without_memory(stored), info)
        if not self._message_seen:
            check_problem(self.algorithm, problem, len(cohort.clients), self.flat.dimension)
        return problem

    def solve(self, problem: LocalProblem) -> LocalResult:
        """Let the cohort of the round in progress solve its problem."""
        cohort, _, _, info = self._round
        return self._solve(problem, cohort, info)

    def answer(self, result: LocalResult) -> None:
        """Go on with what the cohort's work led to, up to the pseudo-gradient."""
        cohort, x, stored, info = self._round
        own = without_memory(stored)
        said = self.algorithm.uplink(x, self._server, own, result, info)
        if not self._message_seen:
            count, dimension = len(cohort.clients), self.flat.dimension
            check_uplink(self.algorithm, said, self.compressor, count, dimension)
            self._message_seen = True
        message, clients = said
        sent = send(self.compressor, self.algorithm.compressed, message, stored, cohort.keys)
        self._aggregate(x, sent.message, info)
        self._pending = sent.message, {**clients, **sent.memory}, info, cohort.clients
        self._account(cohort, result, info)
        self.round_metrics |= sent.quality
        del self._round  # its rows are not to outlive the round

    def _aggregate(self, x: Tensor, message: base.State, info: base.RoundInfo) -> None:
        result = self.algorithm.aggregate(x, self._server, message, info)
        self.pseudo_gradient, self.server_state = checked_result(self.algorithm, x, result)

    @torch.no_grad()
    def on_train_batch_end(self, outputs: Any, batch: Cohort, batch_idx: int) -> None:
        """Let the clients do what follows the server's step; keep their state."""
        if self._pending is None:
            return
        message, clients, info, ids = self._pending
        after = clients
        if type(self.algorithm).downlink is not base.Algorithm.downlink:  # else no copy of x
            after = self.algorithm.downlink(
                self.x, self._server, clients, message, self.pseudo_gradient, info
            )
        if not self._rows_seen:
            own = without_memory(self._clients.template)
            check_rows(self.algorithm, clients, after, own, len(ids))
            self._rows_seen = True
        self._clients.scatter(ids, {**clients, **after})

    def _info(self, cohort: Cohort) -> base.RoundInfo:
        by_samples = self.algorithm.weighting == "samples"
        clients, steps, delays = cohort.there
        return base.RoundInfo(
            round=cohort.round,
            rounds=self.rounds,
            num_clients=self.num_clients,
            clients=clients,
            weights=cohort.weights(by_samples, self.flat.parameters[0].dtype),
            client_lr=self.sgd.rate(max(cohort.round, 0), self.rounds),
            server_lr=self.server.learning_rate(max(cohort.round, 0)),
            sgd=self.sgd,
            nominal_steps=cohort.nominal_steps,
            steps=steps,
            delays=delays,
            compressor=self.compressor,
            seed=self.seed,
        )

    def _account(self, cohort: Cohort, result: LocalResult, info: base.RoundInfo) -> None:
        assert cohort.plan is not None
        visits = len(cohort.clients) + (cohort.discarded or 0)
        dimension = self.flat.dimension
        beside = 0 if result.statistics is None else BITS_PER_FLOAT * result.statistics.shape[1]
        down = self.algorithm.bits_down(dimension, self.compressor) + beside
        up = self.algorithm.bits_up(dimension, self.compressor) + beside
        self.bits_down += visits * down
        self.bits_up += visits * up
        passes = int(result.start_gradient is not None)  # over all samples, before the steps
        self.client_samples += cohort.plan.samples + (int(cohort.sizes.sum()) if passes else 0)
        self.round_metrics = {"train/loss": (info.weights * result.loss).sum()}
        self._pass_round(cohort, down, up, passes)

    def _pass_round(
        self, cohort: Cohort, down: float = 0.0, up: float = 0.0, passes: int = 0
    ) -> None:
        """Let the simulated time of a round pass, and count who was lost in it.

        Args:
            cohort: of the round.
            down, up: bits to and from each client.
            passes: over all samples of each client, besides its local steps.
        """
        if cohort.seconds is not None:
            self.seconds = cohort.seconds
        elif self.seconds is not None:
            self.seconds += self.clock.lasts(Visit.of(cohort, down, up, passes))
        for name, number in (("dropped", cohort.dropped), ("discarded", cohort.discarded)):
            if number is not None:
                self.lost[name] = self.lost.get(name, 0) + number

    def totals(self) -> dict[str, float]:
        """Return what was spent and lost so far, by the names of a history row."""
        spent = {
            "comm/up_bits": self.bits_up,
            "comm/down_bits": self.bits_down,
            "client_samples": float(self.client_samples),
        }
        lost = {f"participation/{name}": float(number) for name, number in self.lost.items()}
        time = {} if self.seconds is None else {"clock/seconds": self.seconds}
        return {**spent, **lost, **time}

    @property
    def server(self) -> ServerOptimizer:
        """The run's server optimizer, from the trainer's callbacks.

        Raises:
            ValueError: the trainer has none.
        """
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ServerOptimizer):
                return callback
        raise ValueError("the trainer has no server optimizer among its callbacks; add FedSGD()")

    @property
    def _server(self) -> base.State:
        assert self.server_state is not None, "training has not started"
        return self.server_state

    @property
    def _clients(self) -> ClientState:
        assert self.client_state is not None, "training has not started"
        return self.client_state

    @inspected
    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Accumulate loss and accuracy of the global model on validation samples.

        Returns what callbacks may look at: the model's ``output`` and the ``losses`` [B].
        """
        return self._evaluate("val", *batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accumulate loss and accuracy of the global model on test samples."""
        self._evaluate("test", *batch)

    def _evaluate(self, split: str, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        output = self.predict(x)
        losses = self.losses(output, y)
        self.loss_meter.update(losses)
        meters: dict[str, Any] = {f"{split}/loss": self.loss_meter}
        if self.accuracy is not None:
            self.accuracy.update(output, y)
            meters[f"{split}/accuracy"] = self.accuracy
        self.log_dict(meters, on_step=False, on_epoch=True, batch_size=len(y))
        return {"output": output, "losses": losses}

    def predict(self, x: Tensor) -> Any:
        """Return the global model's output for samples."""
        return self.flat(channels_last(x) if self._images(x) else x)

    def _images(self, x: Tensor) -> bool:
        if self._channels_last is None:  # asked once: the answer is a forward of one sample
            self._channels_last = prefers_channels_last(self.network, x)
        return self._channels_last

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the algorithm's state: plain numbers and tensors, for a weights-only load."""
        checkpoint["federation"] = {
            "server": self.server_state,
            "clients": self._clients.state_dict(),
            **{name: getattr(self, name) for name in _COUNTS},
            "lost": dict(self.lost),
            "strategy": self.solver.strategy,
            "timings": self.solver.timings,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the algorithm's state until training starts."""
        self._restored = checkpoint["federation"]
        for name in _COUNTS:
            setattr(self, name, self._restored[name])
        self.lost = dict(self._restored["lost"])
        if self.solver.strategy == FASTEST:  # a second choice could be another one
            self.solver.strategy = self._restored["strategy"]
            self.solver.timings = dict(self._restored["timings"])
