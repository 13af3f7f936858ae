"""Round checkpoints through Lightning's own ``save_checkpoint``.

Lightning's ModelCheckpoint watches ``global_step``, which stays 0 where no torch optimizer steps:
it would write nothing, silently.
"""

from __future__ import annotations

from pathlib import Path

import lightning as L


class RoundCheckpoint(L.Callback):
    """Save the run every few rounds: round, model, server state, sampler, per-client state.

    The file is replaced atomically: a process killed while saving leaves the previous one.
    Resume with ``trainer.fit(module, datamodule, ckpt_path=path, weights_only=True)``; on the CPU
    the resumed run equals the uninterrupted one bit for bit.

    Stands after :class:`History` in the trainer's callbacks, so that the round's row is saved too.

    Args:
        path: the checkpoint file; its folder is made.
        every: rounds between two saves, >= 1; the last round is always saved.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every = {every}: must be >= 1")
        self.path = Path(path)
        self.every = every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if it is time."""
        completed = trainer.current_epoch + 1
        if completed % self.every == 0 or completed == trainer.max_epochs:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(".tmp")
            trainer.save_checkpoint(draft)
            draft.replace(self.path)
