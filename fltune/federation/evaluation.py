"""What each client's validation samples say of the global model, and how much that is chance.

A validation metric is a mean over samples, so over the clients that hold them a mean weighted by
their numbers of samples. Where few clients judge, or they differ, another set of clients would have
given another number: Kuo et al. (2023), "On Noisy Evaluation in Federated Hyperparameter Tuning".
The standard error says by how much.
"""

from __future__ import annotations

import math
from typing import Any

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Columns = dict[str, list[Any]]

DIGITS = 6
"""Significant digits that are kept of a client's loss."""


class ClientScores(L.Callback):
    """Divides a validation among the clients, out of the forward passes that are made anyway.

    Logs ``val/loss_se`` and, with classes, ``val/accuracy_se``: see :func:`standard_error`. They
    are left out where one client holds all samples. Must come before the callback that reads the
    metrics of a round.

    Args:
        owner: int64 ``[n]``, the client of each validation sample.
        classes: whether there is an accuracy.

    Attributes:
        latest: the last evaluation, a row per client that holds validation samples: ``client``,
            its number; ``samples``, how many it holds; ``correct``, how many of them are classified
            correctly (with classes); ``loss``, their mean. Empty before the first evaluation.
    """

    def __init__(self, owner: Tensor, classes: bool) -> None:
        clients, position, samples = owner.cpu().unique(return_inverse=True, return_counts=True)
        self.clients: list[int] = clients.tolist()
        self.samples: Floats = samples.double().numpy()
        self.classes = classes
        self.latest: Columns = {}
        self._position = position.numpy()
        self._parts: dict[str, list[Tensor]] = {}

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Forget the last evaluation."""
        self._parts = {"loss": [], **({"correct": []} if self.classes else {})}

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: tuple[Tensor, Tensor],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep one number per sample, where it was computed."""
        self._parts["loss"].append(outputs["losses"])
        if self.classes:
            self._parts["correct"].append(outputs["output"].argmax(1) == batch[1])

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Add up by client, and log the standard errors."""
        totals = {name: self._by_client(torch.cat(p)) for name, p in self._parts.items()}
        self._parts = {}
        self.latest = {"client": self.clients, "samples": self.samples.astype(int).tolist()}
        if self.classes:
            self.latest["correct"] = totals["correct"].astype(int).tolist()
        self.latest["loss"] = [_short(mean) for mean in totals["loss"] / self.samples]
        if len(self.clients) == 1:
            return
        for name, total in totals.items():
            logged = f"val/{'accuracy' if name == 'correct' else name}_se"
            pl_module.log(logged, standard_error(total, self.samples), batch_size=1)

    def _by_client(self, values: Tensor) -> Floats:
        """Return the sums ``[C]`` of numbers ``[n]``, on the host: there they add up in order."""
        weights = values.double().cpu().numpy()
        sums: Floats = np.bincount(self._position, weights, minlength=len(self.clients)).astype(
            float
        )
        return sums

    def state_dict(self) -> dict[str, Any]:
        """Return the last evaluation for Lightning's checkpoint."""
        return {"latest": self.latest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the last evaluation from Lightning's checkpoint."""
        self.latest = dict(state_dict["latest"])


def standard_error(totals: Floats, samples: Floats) -> float:
    """Return the standard error of a mean over samples that were drawn client by client.

    The mean is a ratio, m = sum_i t_i / sum_i n_i, and clients are what is drawn; Cochran (1977),
    "Sampling Techniques", chapter 6, gives its linearised variance

        C / (C - 1) * sum_i (t_i - m n_i)^2 / (sum_i n_i)^2.

    For clients of one size it is s^2 / C, with s the standard deviation of the clients' own means.
    The clients count as a few of many: that they may be all there are is not allowed for.

    Args:
        totals: ``[C]``, t_i: the sum of the metric over a client's samples; C >= 2.
        samples: ``[C]``, n_i > 0.

    Returns:
        In units of the metric; NaN if a total is not finite.
    """
    count, n = len(samples), samples.sum()
    with np.errstate(invalid="ignore", over="ignore"):  # a model that diverged
        rest = totals - totals.sum() / n * samples
        return math.sqrt(count / (count - 1) * float(rest @ rest)) / float(n)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
