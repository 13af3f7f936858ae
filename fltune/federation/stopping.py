"""Why a run stopped, and the guard that stops one that diverges."""

from __future__ import annotations

from enum import Enum
from typing import Any

import lightning as L
import torch

from fltune.federation.module import FederatedModule


class StopReason(str, Enum):
    """Why a run ended; the value is what is recorded."""

    COMPLETED = "completed"
    COLLAPSED = "collapsed"
    DIVERGED = "diverged"
    STOPPED = "stopped"


class DivergenceGuard(L.Callback):
    """Stop a run in the round in which it diverges.

    A run has diverged when the training loss or the model is not finite, or the training loss is
    above ``max_loss``. Must come after the server optimizer in the trainer's callbacks. A run that
    had diverged when it was saved has ended: resumed, it makes no round more.

    Args:
        max_loss: bound on the mean training loss of a round.

    Attributes:
        reason: DIVERGED, or None while all is well.
        message: one sentence: what was seen, and in which round.
    """

    def __init__(self, max_loss: float = 1e4) -> None:
        self.max_loss = max_loss
        self.reason: StopReason | None = None
        self.message = ""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave a resumed run where it is that had diverged."""
        if self.reason is not None:
            trainer.should_stop = True

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Look at the round's loss and the moved model; the round's one synchronisation."""
        module: FederatedModule = pl_module  # type: ignore[assignment]
        if batch.plan is None:
            return
        seen = [module.round_metrics["train/loss"], module.flat.largest()]
        if module.device.type != "cpu":  # one transfer
            seen = [*torch.stack(seen).cpu()]
        loss, largest = (float(value) for value in seen)
        healthy = loss <= self.max_loss and largest < float("inf")  # false for NaN as well
        if healthy:
            return
        self.reason = StopReason.DIVERGED
        what = f"training loss {loss:.4g}" if not loss <= self.max_loss else "a model not finite"
        self.message = f"diverged in round {batch.round}: {what} (bound {self.max_loss:g})"
        trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Return the verdict for Lightning's checkpoint."""
        return {"reason": self.reason and self.reason.value, "message": self.message}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the verdict from Lightning's checkpoint."""
        self.reason = state_dict["reason"] and StopReason(state_dict["reason"])
        self.message = state_dict["message"]
