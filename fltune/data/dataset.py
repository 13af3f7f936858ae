"""A data set before it is federated, its hold-out of validation samples, and its federation.

    >>> from fltune.data.digits import Digits
    >>> from fltune.data.partition import Iid
    >>> data = federate(Digits(), Iid(), num_clients=50, val_fraction=0.1, seed=0)
    >>> data.report()["train_samples"], data.sizes.min()
    (1293, tensor(25))

Without clients of its own a data set gives validation samples of every class in proportion; with
them (a natural partition) of every client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.federated import FederatedData, Split
from fltune.data.partition import Partition
from fltune.errors import DataError
from fltune.parameters import Checked


@dataclass(frozen=True, eq=False)
class RawData:
    """A data set before it is federated.

    Attributes:
        train: samples to train and validate on.
        test: samples to report on.
        num_classes: None for a regression.
        groups: int64 ``[n]``, the natural client (writer, generator ...) of each training sample,
            negative for one that belongs to nobody; None where the data has no clients of its own.

    Raises:
        DataError: ``groups`` is no int64 vector of one id per training sample.
    """

    train: Split
    test: Split
    num_classes: int | None
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        groups = self.groups
        if groups is not None and (
            groups.dtype != torch.int64 or groups.shape != (len(self.train),)
        ):
            raise DataError(
                f"groups of shape {tuple(groups.shape)} and type {groups.dtype} are not allowed; "
                f"must be one torch.int64 id for each of {len(self.train)} training samples"
            )


@dataclass(frozen=True)
class Dataset(Checked, ABC):
    """A data set that can be loaded; its fields say where from and how.

    A field ``num_clients`` that is no :func:`fltune.parameters.parameter` is given
    ``data.clients``.

    Attributes:
        default_partition: what a config means that names no partition.
    """

    default_partition: ClassVar[str] = "iid"

    @abstractmethod
    def load(self) -> RawData:
        """Return all samples, on the CPU.

        Raises:
            DataError: the data is missing, corrupt or smaller than asked for.
        """


def split_validation(
    y: Tensor, fraction: float, seed: int, clients: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose which training samples are trained on, and which are held out.

    Args:
        y: ``[n]`` class ids or ``[n, k]`` targets.
        fraction: of the training samples, in (0, 1); rounded to whole samples.
        seed: >= 0; decides which ones, alone.
        clients: int64 ``[n]``, the client of each sample where it is known; negative for none.

    Returns:
        Sorted indices (kept, held out). Each class gives its share of the held-out ones, to within
        one sample. With ``clients`` each client does instead, whatever its classes, but never its
        last sample (so that where clients are tiny, fewer are held out), and samples of nobody are
        all kept.

    Raises:
        DataError: the fraction is out of range, or one of the two would be empty.
    """
    if not 0 < fraction < 1:
        raise DataError(f"a validation fraction of {fraction} is not allowed; must be in (0, 1)")
    rng = np.random.default_rng(seed)
    if clients is None:
        n = len(y)
        kept, held_out = hold_out(y, round(fraction * n), rng)
    else:
        owned = clients.ge(0).nonzero()[:, 0]
        n = len(owned)
        _, chosen = hold_out(clients[owned], round(fraction * n), rng, spare=1)
        held_out = owned[chosen]
        kept = torch.ones(len(clients), dtype=torch.bool).index_fill(0, held_out, False)
        kept = kept.nonzero()[:, 0]
    if not 0 < len(held_out) < n:
        raise DataError(
            f"a validation fraction of {fraction} of {n} samples leaves {n - len(held_out)} to "
            f"train and {len(held_out)} to validate on; each needs at least one"
        )
    return kept, held_out


def hold_out(
    y: Tensor, count: int, rng: np.random.Generator, spare: int = 0
) -> tuple[Tensor, Tensor]:
    """Return sorted indices (kept, held out); stratified by largest remainders if y is classes.

    Every stratum keeps at least ``spare`` samples; ``count`` is not reached where that forbids it.
    """
    labels = y.cpu().numpy() if y.ndim == 1 else np.zeros(len(y), np.int64)
    _, class_of, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(class_sizes * count, max(len(labels), 1))  # whole: no rounding
    most = class_sizes - spare
    # Ties are broken at random, or many classes of one sample would all give from the front.
    first = np.lexsort((rng.random(len(quota)), -remainder, quota >= most))
    quota[first[: count - quota.sum()]] += 1
    quota = np.minimum(quota, most)
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(class_of[shuffled], kind="stable")]
    rank = np.arange(len(labels)) - (class_sizes.cumsum() - class_sizes).repeat(class_sizes)
    held_out: NDArray[np.bool_] = np.empty(len(labels), np.bool_)
    held_out[by_class] = rank < quota.repeat(class_sizes)
    return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))


def federate(
    dataset: Dataset,
    partition: Partition,
    num_clients: int,
    val_fraction: float,
    seed: int,
    split_seed: int = 0,
) -> FederatedData:
    """Load a data set, hold out validation samples, and deal the rest to clients.

    Args:
        dataset: what to load.
        partition: who gets what.
        num_clients: N.
        val_fraction: of the training samples, held out before they are dealt; see
            :func:`split_validation`.
        seed: of the partition.
        split_seed: of the hold-out; apart from ``seed``, so that new partitions are judged on the
            same validation samples.

    Raises:
        DataError: see :meth:`Dataset.load`, :func:`split_validation` and :class:`Partition`.
    """
    raw = dataset.load()
    x, y = raw.train.x, raw.train.y
    known = partition.known_clients(raw.groups, len(y))
    kept, held_out = split_validation(y, val_fraction, split_seed, known)
    train = replace(raw.train, x=x[kept], y=y[kept])
    groups = raw.groups if known is None else known
    assigned = partition.assign(
        train.y, num_clients, seed, None if groups is None else groups[kept]
    )
    return FederatedData.from_clients(
        train,
        Split(x[held_out], y[held_out]),
        raw.test,
        assigned.clients,
        raw.num_classes,
        overlapping=assigned.overlapping,
        val_by_client=known is not None,
        notes=assigned.notes,
    )
