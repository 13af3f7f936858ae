"""The numbers of a run, round by round, and a hook for whoever wants them as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L

from fltune.federation.module import FederatedModule

Row = dict[str, float]


class History(L.Callback):
    """Collects one row per evaluated round.

    Args:
        every: rounds between two evaluations, >= 1; the last round is always evaluated.
        on_row: called with each row as it is made (a tuner's report).

    Attributes:
        rows: dicts with ``round`` (1-based: rounds completed), ``train/loss``, ``val/...``,
            ``comm/up_bits``, ``comm/down_bits`` and ``client_samples`` (totals so far); where there
            are such, ``clock/seconds`` (simulated), ``participation/dropped`` (late clients) and
            ``participation/discarded`` (updates too old), totals too.
    """

    def __init__(self, every: int = 1, on_row: Callable[[Row], None] | None = None) -> None:
        self.rows: list[Row] = []
        self.every = every
        self.on_row = on_row

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say whether Lightning validates after this round."""
        last = trainer.current_epoch + 1 == trainer.max_epochs
        trainer.check_val_every_n_epoch = 1 if last else self.every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Add a row if the round was evaluated."""
        module: FederatedModule = pl_module  # type: ignore[assignment]
        completed = trainer.current_epoch + 1
        evaluated = completed % (trainer.check_val_every_n_epoch or 1) == 0
        if not evaluated and not trainer.should_stop:
            return
        row: Row = {"round": completed}
        row.update({k: float(v) for k, v in module.round_metrics.items()})
        if evaluated:
            metrics = trainer.callback_metrics.items()
            row.update({k: float(v) for k, v in metrics if k.startswith("val/")})
        row.update(module.totals())
        self.rows.append(row)
        if self.on_row is not None:
            self.on_row(row)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows for Lightning's checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the rows from Lightning's checkpoint."""
        self.rows = list(state_dict["rows"])
