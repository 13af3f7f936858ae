"""How many processes a run has: so many as asked for, or what its length is worth.

With ``auto`` a run begins alone. Once a round is seen to take long enough, and enough of them are
left, workers start in the background and join in when they are ready. A clock may decide here: the
numbers of a run are the same with any number of processes (:mod:`fltune.federation.bundles`).
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Literal

import lightning as L
import torch

from fltune.errors import ConfigError, RunFailedError
from fltune.federation.bundles import bundles
from fltune.federation.cohort import Cohort
from fltune.federation.cores import free_cores
from fltune.federation.local import LocalSolver
from fltune.federation.module import FederatedModule
from fltune.federation.parallel import Team, possible

SECONDS_PER_ROUND = 0.01
"""Shorter rounds gain nothing: a share's way to a worker and back takes half a millisecond."""
SECONDS_LEFT = 15.0
"""Local work that must still be ahead: workers take some four seconds each to start."""

Number = int | Literal["auto"]


class Processes(L.Callback):
    """Gives a run its worker processes, and ends them with it.

    Args:
        number: all processes of the run, this one included; ``"auto"`` is one, and as many as
            there are free cores once that pays.

    Attributes:
        used: the most processes that the run has had so far.

    Raises:
        ConfigError: neither ``"auto"`` nor a whole number of at least 1.
    """

    def __init__(self, number: Number = 1) -> None:
        if number != "auto" and (not isinstance(number, int) or number < 1):
            raise ConfigError(f"processes: found {number!r}; must be auto or a whole number >= 1")
        self.number = number
        self.used = 1
        self._team: Team | None = None
        self._shortest = float("inf")
        self._began = 0.0

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the workers that were asked for, and wait for them.

        Raises:
            ConfigError: the model cannot be sent to them.
            RunFailedError: a worker could not start.
        """
        if not isinstance(self.number, int) or self.number == 1:
            return
        reason = _reason_for_one(pl_module.device)
        if reason:
            warnings.warn(f"processes = {self.number}: {reason}; going on with 1", stacklevel=1)
            return
        self._team = self._build(pl_module, self.number).wait()
        self._join(pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Cohort, batch_idx: int
    ) -> None:
        """Let workers that are ready join in; note when the round's work begins."""
        self._began = time.perf_counter()
        if self._team is None or self.used > 1:
            return
        try:
            if self._team.ready():
                self._join(pl_module)
        except RunFailedError:  # they were only meant to help
            self._release(pl_module)
            self.number = 1

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Cohort,
        batch_idx: int,
    ) -> None:
        """Under ``auto``, start workers where the rounds to come are worth it."""
        if self.number != "auto" or self._team is not None or batch.plan is None:
            return
        self._shortest = min(self._shortest, time.perf_counter() - self._began)
        left = (trainer.max_epochs or 0) - trainer.current_epoch - 1
        if self._shortest < SECONDS_PER_ROUND or self._shortest * left < SECONDS_LEFT:
            return
        module: FederatedModule = pl_module  # type: ignore[assignment]
        number = free_cores() // torch.get_num_threads()
        parts = len(bundles(module.solver.strategy, module.flat, batch.data, batch.plan))
        if min(number, parts) < 2 or _reason_for_one(module.device):
            return
        try:
            self._team = self._build(module, number)
        except (ConfigError, RunFailedError):  # one process is what was asked for
            self.number = 1

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """End the workers."""
        self._release(pl_module)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """End the workers."""
        self._release(pl_module)

    def _build(self, pl_module: L.LightningModule, number: int) -> Team:
        module: FederatedModule = pl_module  # type: ignore[assignment]
        return Team(module.flat, module.losses, module.sgd, number)

    def _join(self, pl_module: L.LightningModule) -> None:
        assert self._team is not None
        _solver(pl_module).team = self._team
        self.used = self._team.processes

    def _release(self, pl_module: L.LightningModule) -> None:
        if self._team is not None:
            _solver(pl_module).team = None
            self._team.close()
            self._team = None


def _solver(pl_module: L.LightningModule) -> LocalSolver:
    module: FederatedModule = pl_module  # type: ignore[assignment]
    return module.solver


def _reason_for_one(device: torch.device) -> str:
    """Say why a run on a device cannot have several processes here; empty if it can."""
    if device.type != "cpu":
        return f"the run is on {device}, where all clients go side by side"
    return "" if possible() else "shared memory of this kind needs Linux"
