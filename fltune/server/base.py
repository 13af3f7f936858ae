"""The contract of a server optimizer.

A server optimizer is a Lightning callback: it takes the round's pseudo-gradient D [d] (a descent
direction, the weighted mean of x - y_i for FedAvg) and moves the global model. Its state travels in
Lightning's own checkpoints.

The step is taken in ``on_train_batch_end``, not in ``on_train_epoch_end``: Lightning validates
between the two, and a model that has not moved yet would be validated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from torch import Tensor

from fltune.errors import ConfigError
from fltune.parameters import Checked

if TYPE_CHECKING:
    from fltune.federation.module import FederatedModule

State = dict[str, Tensor]

_STATE = "a dict of tensors; {} where there is none"


def is_state(value: Any) -> bool:
    """Whether a value is a state: named tensors, of any shapes."""
    return isinstance(value, dict) and all(isinstance(v, Tensor) for v in value.values())


class ServerOptimizer(L.Callback, Checked, ABC):
    """Base of all server optimizers: owns the state, leaves the arithmetic to :meth:`step`.

    Subclasses are dataclasses of hyperparameters. An empty round (no pseudo-gradient) is skipped
    completely: neither the model nor the momentum moves.

    Attributes:
        state: named tensors; empty before the first round.
        rounds: T, all rounds of the run; known once training starts.
    """

    state: State | None = None
    rounds: int = 0

    def start(self, x: Tensor) -> State:
        """Return the state before the first step; x [d] is the initial model."""
        return {}

    @abstractmethod
    def step(self, x: Tensor, d: Tensor, state: State, round: int) -> tuple[Tensor, State]:
        """Return the moved model and the new state.

        Args:
            x: the model [d] before the step.
            d: the pseudo-gradient D [d].
            state: as the last step left it.
            round: 0-based t.
        """

    def learning_rate(self, round: int) -> float:
        """Return the server learning rate eta_g of round t."""
        return getattr(self, "lr", 1.0)

    def prepare(self, rounds: int) -> None:
        """Learn the total number of rounds T before the first one.

        Raises:
            ValueError: the schedule does not fit into so many rounds.
        """
        self.rounds = rounds

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Learn the total number of rounds; refuse a second server optimizer."""
        servers = [c for c in trainer.callbacks if isinstance(c, ServerOptimizer)]  # type: ignore[attr-defined]
        if len(servers) > 1:
            names = " and ".join(type(s).__name__ for s in servers)
            raise ValueError(f"a run has one server optimizer; found {names}: remove all but one")
        self.prepare(trainer.max_epochs or 0)

    @torch.no_grad()
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move the global model along the round's pseudo-gradient."""
        module: FederatedModule = pl_module  # type: ignore[assignment]
        d = module.pseudo_gradient
        if d is None:
            return
        x = module.x
        if self.state is None:
            self.state = self.start(x)
            if not is_state(self.state):
                raise ConfigError(f"server: {type(self).__name__}.start must return {_STATE}")
        state = {name: value.to(x) for name, value in self.state.items()}
        module.x, self.state = self._checked(x, self.step(x, d, state, batch.round))

    def _checked(self, x: Tensor, result: Any) -> tuple[Tensor, State]:
        """Return what :meth:`step` gave; a model of another shape might broadcast."""
        if isinstance(result, tuple) and len(result) == 2:
            moved, state = result
            if isinstance(moved, Tensor) and moved.shape == x.shape and is_state(state):
                return moved, state
        raise ConfigError(
            f"server: {type(self).__name__}.step must return the moved model [{len(x)}] and the "
            f"new state, {_STATE}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state for Lightning's checkpoint."""
        return {"state": self.state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state from Lightning's checkpoint."""
        self.state = state_dict["state"]
