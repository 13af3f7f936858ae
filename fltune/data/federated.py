"""Federated data as the round loop reads it: whole tensors, and who holds which rows of them.

Samples are stored once. A client is a slice of ``order``, the indices of its training samples, so
that a cohort's batches are index gathers on the device and 10,000 clients cost two index vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fltune.data.augmentation import Augmentation
from fltune.data.tensors import class_ids, plain
from fltune.errors import DataError


@dataclass(frozen=True, eq=False)  # comparing tensors has no single truth value
class Split:
    """Samples and their targets, row by row.

    NumPy arrays become tensors, whole ``y`` of any width int64; nothing keeps a graph.

    Attributes:
        x: ``[n, *input_shape]``, the inputs.
        y: ``[n]`` int64 class ids, or ``[n, k]`` floating targets of a regression.
        augmentation: what the local solver does to batches of ``x``; whoever judges a model reads
            ``x`` itself.

    Raises:
        DataError: ``x`` or ``y`` are no numbers, they differ in length, ``y`` is neither of the
            two, or an augmentation finds no images ``[n, C, H, W]``.
    """

    x: Tensor
    y: Tensor
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", plain("x", self.x))
        object.__setattr__(self, "y", class_ids("y", self.y))
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
        if self.augmentation is not None and not self.augmentation.fits(tuple(self.x.shape[1:])):
            raise DataError(
                f"samples of shape {tuple(self.x.shape[1:])} cannot be cropped or flipped; must be "
                "images [C, H, W]. Set crop_padding to 0 and flip to false"
            )

    def __len__(self) -> int:
        return len(self.y)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Split:
        """Return the split on a device; ``dtype`` is for floating tensors, class ids stay int64."""
        return replace(self, x=_to(self.x, device, dtype), y=_to(self.y, device, dtype))


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training samples divided among clients, and the splits that models are judged on.

    Build it with :meth:`from_clients`, which checks what this constructor takes on trust.

    Attributes:
        train: the samples of all clients.
        val: what hyperparameters are selected on.
        test: what is reported.
        order: int64 ``[m]`` on the host, indices into ``train`` grouped by client, ascending within
            each. Each occurs once, unless clients overlap; not all occur where samples are left
            unused.
        sizes: int64 ``[N]`` on the host, samples of each client, all > 0.
        num_classes: the number of classes; None for a regression.
        val_by_client: whether ``val`` was held out of every client in proportion.
        notes: what a reader must know of how samples were dealt, a sentence each.
        val_owner: int64 ``[len(val)]`` on the CPU, the client of each validation sample; None where
            they come from a pool. Of a data set's own clients these are all, by id, also those that
            train nothing.
        held_out: per client the indices into ``train`` that it was dealt and does not train on;
            empty where validation samples are no part of ``train``.
        val_stages: of a panel that grows, the first round of each stage and how many samples of
            ``val``, from its start, judge from then on; empty where all do in every round.
        named: int64, the client of each training sample by the partition's file, before any was
            held out; None where the data says it, or nobody.
    """

    train: Split
    val: Split
    test: Split
    order: Tensor
    sizes: Tensor
    num_classes: int | None
    val_by_client: bool = False
    notes: tuple[str, ...] = ()
    val_owner: Tensor | None = None
    held_out: tuple[Tensor, ...] = ()
    val_stages: tuple[tuple[int, int], ...] = ()
    named: Tensor | None = None

    @classmethod
    def from_clients(
        cls,
        train: Split,
        val: Split,
        test: Split,
        clients: Sequence[Tensor],
        num_classes: int | None,
        *,
        overlapping: bool = False,
        val_by_client: bool = False,
        notes: tuple[str, ...] = (),
        val_owner: Tensor | None = None,
        held_out: tuple[Tensor, ...] = (),
    ) -> FederatedData:
        """Build federated data from one list of training indices per client.

        Args:
            train: the samples that ``clients`` index.
            val: validation samples.
            test: test samples.
            clients: per client a 1-D int64 tensor; each training sample at most once over all.
            num_classes: the number of classes, None for a regression.
            overlapping: clients may share samples; each holds a sample at most once.
            val_by_client: see the attribute.
            notes: see the attribute.
            val_owner: see the attribute.
            held_out: see the attribute.

        Raises:
            DataError: there is no client, a client is empty, an index is out of range or used
                twice, the splits differ in shape, a label is not in ``0..num_classes - 1``, or
                validation samples have some owners, but not one each.
        """
        for name, split in (("train", train), ("validation", val), ("test", test)):
            _check_labels(name, split, num_classes)
            if split.x.shape[1:] != train.x.shape[1:]:
                raise DataError(
                    f"{name} samples have shape {tuple(split.x.shape[1:])}, "
                    f"training samples {tuple(train.x.shape[1:])}; they must be the same"
                )
        _check_clients(clients, len(train), overlapping)
        if val_owner is not None and val_owner.shape != val.y.shape[:1]:
            raise DataError(
                f"val_owner of shape {tuple(val_owner.shape)} is not allowed; must be one client "
                f"for each of {len(val)} validation samples"
            )
        order = torch.cat([indices.sort().values for indices in clients]).cpu()
        sizes = torch.tensor([len(indices) for indices in clients])
        return cls(
            train,
            val,
            test,
            order,
            sizes,
            num_classes,
            val_by_client,
            notes,
            val_owner,
            held_out,
        )

    @property
    def num_clients(self) -> int:
        """N, the number of all clients."""
        return len(self.sizes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train.x.shape[1:])

    def judging(self, rounds: int) -> int:
        """Return how many samples of ``val``, from its start, judge a model of so many rounds."""
        counts = [count for first, count in self.val_stages if first <= max(rounds, 1)]
        return counts[-1] if counts else len(self.val)

    @cached_property
    def uses(self) -> Tensor:
        """int64 ``[len(train)]``: how many clients hold each training sample."""
        return torch.bincount(self.order, minlength=len(self.train))

    @cached_property
    def offsets(self) -> Tensor:
        """int64 ``[N]``: where each client's slice of ``order`` starts."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def _bounds(self) -> list[int]:
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
        owner = torch.arange(self.num_clients).repeat_interleave(self.sizes)
        cell = owner * self.num_classes + self.train.y.cpu()[self.order]
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
        class figures are absent for a regression. ``train_samples`` counts a sample once, however
        many clients hold it; ``shared_samples`` are those that several hold. ``val_clients``, those
        whose samples validate (in the end, if they grow in number), is absent where these have no
        owners. ``partition_notes`` tells how
        samples were dealt where the partition's name does not: repairs, scaled sizes.
        """
        sizes, uses = self.sizes.double(), self.uses
        summary: dict[str, Any] = {
            "clients": self.num_clients,
            "train_samples": int((uses > 0).sum()),
            "unused_samples": int((uses == 0).sum()) - sum(map(len, self.held_out)),
            "shared_samples": int((uses > 1).sum()),
            "val_samples": len(self.val),
            "test_samples": len(self.test),
            "size_min": int(sizes.min()),
            "size_median": float(sizes.quantile(0.5)),
            "size_mean": float(sizes.mean()),
            "size_max": int(sizes.max()),
            "partition_notes": [*self.notes, *([_VAL_BY_CLIENT] if self.val_by_client else [])],
        }
        if self.val_owner is not None:
            summary["val_clients"] = len(self.val_owner.unique())
        if self.num_classes is not None:
            counts = self.histograms().double()
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
        """Return the data with all samples on a device; ``dtype`` is for floating tensors.

        Who holds which of them stays on the host, where cohorts are drawn.
        """
        return replace(
            self,
            train=self.train.to(device, dtype),
            val=self.val.to(device, dtype),
            test=self.test.to(device, dtype),
        )


VAL_IS_TEST = "the test samples are the validation samples too"
_VAL_BY_CLIENT = "validation samples were held out of every client in proportion"


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


def _check_clients(clients: Sequence[Tensor], num_samples: int, overlapping: bool) -> None:
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
    if overlapping:  # what counts is a sample's uses by one client
        owner = torch.arange(len(clients)).repeat_interleave(torch.tensor([*map(len, clients)]))
        everything = owner * num_samples + everything
    held, uses = everything.unique(return_counts=True)
    twice = held[uses > 1] % num_samples
    if len(twice):
        who = "each of the overlapping clients must hold a sample once"
        raise DataError(
            f"{len(twice)} training samples are held more than once (the first is sample "
            f"{int(twice[0])}); {who if overlapping else 'clients must be disjoint'}"
        )
