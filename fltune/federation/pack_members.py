"""A member of a pack: a run with callbacks of its own, to whom it is the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor

from fltune.federation.cohort import Cohort
from fltune.federation.datamodule import FederatedDataModule
from fltune.federation.module import FederatedModule


class Member:
    """One run of a pack; what its module and callbacks ask of a trainer, they ask of this.

    Args:
        module: the run.
        callbacks: server optimizer, divergence guard and history, in the order of their hooks.
        rounds: T.

    Attributes:
        max_epochs: T.
        current_epoch: rounds made.
        should_stop: set by whoever wants the run to end with the round in progress.
        check_val_every_n_epoch: rounds between two evaluations; the history's word.
        callback_metrics: the last evaluation.
        datamodule: where cohorts come from; None before training.
        error: what its algorithm, server optimizer or callbacks raised; it has left then.
        seconds: its share of the pack's time.
    """

    def __init__(
        self, module: FederatedModule, callbacks: Sequence[L.Callback], rounds: int
    ) -> None:
        self.module = module
        self.callbacks = list(callbacks)
        self.max_epochs = rounds
        self.current_epoch = 0
        self.should_stop = False
        self.check_val_every_n_epoch: int | None = 1
        self.callback_metrics: dict[str, Tensor] = {}
        self.datamodule: FederatedDataModule | None = None
        self.error: Exception | None = None
        self.seconds = 0.0
        self._acts: dict[str, list[Callable[..., Any]]] = {}
        module.trainer = self  # type: ignore[assignment]
        loggers: list[Any] = [module, *callbacks]
        for one in loggers:  # Lightning's own method wants Lightning's own trainer
            one.log = self._log

    @property
    def ended(self) -> bool:
        """Whether the round just made was the last one."""
        return self.should_stop or self.current_epoch == self.max_epochs

    def _log(self, name: str, value: Any, *unused: Any, **options: Any) -> None:
        self.callback_metrics[name] = torch.as_tensor(value)

    def hook(self, name: str, *args: Any) -> None:
        """Call a hook of all callbacks, as a trainer does."""
        acts = self._acts.get(name)
        if acts is None:
            nothing = getattr(L.Callback, name)
            acts = [getattr(c, name) for c in self.callbacks if getattr(type(c), name) != nothing]
            self._acts[name] = acts
        for act in acts:
            act(self, self.module, *args)

    def start(self, source: FederatedDataModule, device: torch.device) -> None:
        """Make ready for the first round."""
        self.datamodule = source
        self.module.to(device)
        self.hook("on_fit_start")
        self.module.on_fit_start()

    def move(self, cohort: Cohort) -> None:
        """Let the server move the model, and then the clients do what follows."""
        self.hook("on_train_batch_end", None, cohort, 0)
        self.module.on_train_batch_end(None, cohort, 0)

    def end_round(self) -> None:
        """Let the history write its row, and count the round."""
        self.hook("on_train_epoch_end")
        self.current_epoch += 1

    def validate(self, chunks: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Evaluate the global model on the validation samples, for those who read metrics."""
        self.hook("on_validation_epoch_start")
        found = self.scores("val", chunks, watched=True)
        self.callback_metrics.update(found)
        self.hook("on_validation_epoch_end")

    @torch.no_grad()
    def scores(
        self, split: str, chunks: Iterable[tuple[Tensor, Tensor]], watched: bool = False
    ) -> dict[str, Tensor]:
        """Return loss and accuracy of the global model on a split, by name.

        The numbers of the module's own meters, to the last bit; those take longer than the forward
        pass of a small model.

        Args:
            split: ``val`` or ``test``.
            chunks: its samples and targets.
            watched: whether the callbacks see each chunk's output.
        """
        module = self.module
        if module.network.training:  # it stays so: the solver sets what it needs
            module.network.eval()
        total, hits, count = torch.zeros(()), torch.zeros((), dtype=torch.int64), 0
        for place, (x, y) in enumerate(chunks):
            output = module.predict(x)
            losses = module.losses(output, y)
            total = total.to(losses.device) + losses.to(total.dtype).sum()
            if module.accuracy is not None:
                hits = hits.to(losses.device) + (output.argmax(1) == y).sum()
            count += len(y)
            if watched:
                seen = {"output": output, "losses": losses}
                self.hook("on_validation_batch_end", seen, (x, y), place)
        found = {f"{split}/loss": total / count}
        if module.accuracy is not None:
            found[f"{split}/accuracy"] = hits / count
        return found
