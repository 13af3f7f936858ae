"""What each client's validation samples say of the global model, and how much that is chance.

A validation metric is a mean over samples, so over the clients that hold them a mean weighted by
their numbers of samples. Where few clients judge, or they differ, another set of clients would have
given another number: Kuo et al. (2023), "On Noisy Evaluation in Federated Hyperparameter Tuning".
The standard error says by how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class _Asked:
    """The clients of some samples.

    Attributes:
        clients: C numbers, ascending.
        samples: ``[C]``, how many each holds.
        position: int64 ``[n]``, of each sample's owner among the clients.
    """

    clients: list[int]
    samples: Floats
    position: NDArray[np.int64]

    @classmethod
    def of(cls, owner: Tensor) -> _Asked:
        """Return the owners ``[n]``, each once."""
        clients, position, samples = owner.unique(return_inverse=True, return_counts=True)
        return cls(clients.tolist(), samples.double().numpy(), position.numpy())

    def totals(self, values: Tensor) -> Floats:
        """Return the sums ``[C]`` of numbers ``[n]``, on the host: there they add up in order."""
        weights = values.double().cpu().numpy()
        sums = np.bincount(self.position, weights, minlength=len(self.clients))
        return sums.astype(np.float64)


class ClientScores(L.Callback):
    """Divides a validation among the clients, out of the forward passes that are made anyway.

    Logs ``val/loss_se`` and, with classes, ``val/accuracy_se``: see :func:`standard_error`. They
    are left out where one client holds all samples. Of a panel that grows also ``val/clients``, how
    many were asked. Must come before the callback that reads the metrics of a round.

    Args:
        owner: int64 ``[n]``, the client of each validation sample. An evaluation of fewer samples
            is one of the first of these.
        classes: whether there is an accuracy.
        grows: whether more clients are asked in later rounds.

    Attributes:
        latest: the last evaluation, a row per client that was asked: ``client``, its number;
            ``samples``, how many it holds; ``correct``, how many of them are classified
            correctly (with classes); ``loss``, their mean. Empty before the first evaluation.
    """

    def __init__(self, owner: Tensor, classes: bool, grows: bool = False) -> None:
        self.owner = owner.cpu()
        self.classes = classes
        self.grows = grows
        self.latest: Columns = {}
        self._asked = _Asked.of(self.owner)
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
        values = {name: torch.cat(parts) for name, parts in self._parts.items()}
        self._parts = {}
        asked = self._who(len(values["loss"]))
        totals = {name: asked.totals(own) for name, own in values.items()}
        self.latest = {"client": asked.clients, "samples": asked.samples.astype(int).tolist()}
        if self.classes:
            self.latest["correct"] = totals["correct"].astype(int).tolist()
        self.latest["loss"] = [_short(mean) for mean in totals["loss"] / asked.samples]
        if self.grows:
            pl_module.log("val/clients", float(len(asked.clients)), batch_size=1)
        if len(asked.clients) == 1:
            return
        for name, total in totals.items():
            logged = f"val/{'accuracy' if name == 'correct' else name}_se"
            pl_module.log(logged, standard_error(total, asked.samples), batch_size=1)

    def _who(self, samples: int) -> _Asked:
        """Return the owners of so many samples, from the first on."""
        if samples != len(self._asked.position):
            self._asked = _Asked.of(self.owner[:samples])
        return self._asked

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
