"""Federated data as the round loop reads it: whole tensors, and who holds which rows of them.

Samples are stored once. A client is a slice of ``order``, a permutation of (a part of) the training
samples grouped by client, so that a cohort's batches are index gathers on the device and 10,000
clients cost two index vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fltune.errors import DataError


@dataclass(frozen=True, eq=False)  # comparing tensors has no single truth value
class Split:
    """Samples and their targets, row by row.

    Attributes:
        x: ``[n, *input_shape]``, the inputs.
        y: ``[n]`` int64 class ids, or ``[n, k]`` floating targets of a regression.

    Raises:
        DataError: ``x`` and ``y`` differ in length, or ``y`` is neither of the two.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.ndim == 0 or self.y.ndim == 0 or len(self.x) != len(self.y):
            raise DataError(
                f"x of shape {tuple(self.x.shape)} and y of shape {tuple(self.y.shape)} "
                "do not hold the same number of samples"
            )
        classes = self.y.dtype == torch.int64 and self.y.ndim == 1
        targets = self.y.is_floating_point() and self.y.ndim == 2
        if not classes and not targets:
            raise DataError(
                f"y of shape {tuple(self.y.shape)} and type {self.y.dtype} is not allowed; must be "
                "[n] of torch.int64 (class ids) or [n, k] floating (regression)"
            )

    def __len__(self) -> int:
        return len(self.y)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Split:
        """Return the split on a device; ``dtype`` is for floating tensors, class ids stay int64."""
        return Split(_to(self.x, device, dtype), _to(self.y, device, dtype))


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training samples divided among clients, and the splits that models are judged on.

    Build it with :meth:`from_clients`, which checks what this constructor takes on trust.

    Attributes:
        train: the samples of all clients.
        val: what hyperparameters are selected on.
        test: what is reported.
        order: int64 ``[m]``, indices into ``train`` grouped by client, ascending within each;
            ``m < len(train)`` where a partition leaves samples unused.
        sizes: int64 ``[N]``, samples of each client, all > 0. It lives beside ``order``, on the
            device, where cohorts gather it by client id.
        num_classes: the number of classes; None for a regression.
    """

    train: Split
    val: Split
    test: Split
    order: Tensor
    sizes: Tensor
    num_classes: int | None

    @classmethod
    def from_clients(
        cls,
        train: Split,
        val: Split,
        test: Split,
        clients: Sequence[Tensor],
        num_classes: int | None,
    ) -> FederatedData:
        """Build federated data from one list of training indices per client.

        Args:
            train: the samples that ``clients`` index.
            val: validation samples.
            test: test samples.
            clients: per client a 1-D int64 tensor; each training sample at most once over all.
            num_classes: the number of classes, None for a regression.

        Raises:
            DataError: there is no client, a client is empty, an index is out of range or used
                twice, the splits differ in shape, or a label is not in ``0..num_classes - 1``.
        """
        for name, split in (("train", train), ("validation", val), ("test", test)):
            _check_labels(name, split, num_classes)
            if split.x.shape[1:] != train.x.shape[1:]:
                raise DataError(
                    f"{name} samples have shape {tuple(split.x.shape[1:])}, "
                    f"training samples {tuple(train.x.shape[1:])}; they must be the same"
                )
        _check_clients(clients, len(train))
        device = train.y.device
        order = torch.cat([indices.sort().values for indices in clients]).to(device)
        sizes = torch.tensor([len(indices) for indices in clients], device=device)
        return cls(train, val, test, order, sizes, num_classes)

    @property
    def num_clients(self) -> int:
        """N, the number of all clients."""
        return len(self.sizes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train.x.shape[1:])

    @cached_property
    def offsets(self) -> Tensor:
        """int64 ``[N]``: where each client's slice of ``order`` starts."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def _bounds(self) -> list[int]:
        # On the host, so that client(i) does not wait for the device.
        return [0, *self.sizes.cumsum(0).tolist()]

    def client(self, i: int) -> Tensor:
        """Return the indices into ``train`` of client ``i`` in ``0..N-1``, ascending.

        Raises:
            IndexError: there is no such client.
        """
        if not 0 <= i < self.num_clients:
            raise IndexError(f"client {i} is not in 0..{self.num_clients - 1}")
        return self.order[self._bounds[i] : self._bounds[i + 1]]

    def histograms(self) -> Tensor:
        """Return int64 ``[N, num_classes]``: how many samples of each class each client holds.

        Raises:
            DataError: the data is a regression and has no classes.
        """
        if self.num_classes is None:
            raise DataError("a regression has no classes to count per client")
        owner = torch.arange(self.num_clients, device=self.sizes.device)
        cell = owner.repeat_interleave(self.sizes) * self.num_classes + self.train.y[self.order]
        counts = torch.bincount(cell, minlength=self.num_clients * self.num_classes)
        return counts.view(self.num_clients, self.num_classes)

    def holdings(self) -> dict[str, Any]:
        """Return each client's size and, with classes, its label histogram, as plain lists."""
        held: dict[str, Any] = {"client_sizes": self.sizes.tolist()}
        if self.num_classes is not None:
            held["label_histograms"] = self.histograms().tolist()
        return held

    def report(self) -> dict[str, Any]:
        """Return what a reader must know of the partition, in plain numbers for JSON.

        ``label_distance`` is the total variation distance, in [0, 1], between a client's label
        distribution and that of all clients, averaged over clients: 0 is iid. It and the other
        class figures are absent for a regression.
        """
        sizes = self.sizes.cpu().double()
        summary: dict[str, Any] = {
            "clients": self.num_clients,
            "train_samples": len(self.order),
            "unused_samples": len(self.train) - len(self.order),
            "val_samples": len(self.val),
            "test_samples": len(self.test),
            "size_min": int(sizes.min()),
            "size_median": float(sizes.quantile(0.5)),
            "size_mean": float(sizes.mean()),
            "size_max": int(sizes.max()),
        }
        if self.num_classes is not None:
            counts = self.histograms().cpu().double()
            shares = counts / counts.sum(1, keepdim=True)
            pooled = counts.sum(0) / counts.sum()
            summary |= {
                "classes": self.num_classes,
                "classes_per_client_mean": float((counts > 0).double().sum(1).mean()),
                "label_distance_mean": float((shares - pooled).abs().sum(1).mean() / 2),
            }
        return summary

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> FederatedData:
        """Return the data with every tensor on a device; ``dtype`` is for floating tensors."""
        return replace(
            self,
            train=self.train.to(device, dtype),
            val=self.val.to(device, dtype),
            test=self.test.to(device, dtype),
            order=self.order.to(device=device),
            sizes=self.sizes.to(device=device),
        )


def _to(values: Tensor, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
    return values.to(device=device, dtype=dtype if values.is_floating_point() else None)


def _check_labels(name: str, split: Split, num_classes: int | None) -> None:
    if (num_classes is None) != split.y.is_floating_point():
        raise DataError(
            f"{name} targets are {split.y.dtype}, but num_classes = {num_classes}; "
            "class ids need a number of classes, a regression has None"
        )
    if num_classes is not None and len(split):
        low, high = int(split.y.min()), int(split.y.max())
        if low < 0 or high >= num_classes:
            raise DataError(
                f"{name} labels reach from {low} to {high}; {num_classes} classes allow "
                f"0..{num_classes - 1}"
            )


def _check_clients(clients: Sequence[Tensor], num_samples: int) -> None:
    if not clients:
        raise DataError("there is no client; at least one is needed")
    for i, indices in enumerate(clients):
        if indices.ndim != 1 or indices.dtype != torch.int64:
            raise DataError(
                f"client {i}: indices of shape {tuple(indices.shape)} and type {indices.dtype} "
                "are not allowed; must be 1-D torch.int64"
            )
    empty = [i for i, indices in enumerate(clients) if len(indices) == 0]
    if empty:
        raise DataError(
            f"{len(empty)} of {len(clients)} clients hold no sample (the first is client "
            f"{empty[0]}); use fewer clients or a partition with a min_size"
        )
    everything = torch.cat(list(clients))
    low, high = int(everything.min()), int(everything.max())
    if low < 0 or high >= num_samples:
        raise DataError(
            f"client indices reach from {low} to {high}; {num_samples} training samples allow "
            f"0..{num_samples - 1}"
        )
    uses = torch.bincount(everything, minlength=num_samples)
    if int(uses.max()) > 1:
        raise DataError(
            f"{int((uses > 1).sum())} training samples are held more than once (the first is "
            f"sample {int(uses.gt(1).nonzero()[0])}); clients must be disjoint"
        )
