"""A data set before it is federated, its hold-out of validation samples, and its federation.

    >>> from fltune.data.digits import Digits
    >>> from fltune.data.partition import Iid
    >>> data = federate(Digits(), Iid(), num_clients=50, val_fraction=0.1, seed=0)
    >>> data.report()["train_samples"], data.sizes.min()
    (1293, tensor(25))

Without clients of its own a data set gives validation samples of every class in proportion; with
them (a natural partition) of every client. Or each client, of whatever kind, holds out its own.
Some papers draw all three splits anew from what is published, or choose by test data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fltune.data.federated import VAL_IS_TEST, FederatedData, Split
from fltune.data.partition import Assignment, Partition
from fltune.data.tensors import NOT_FINITE, client_ids, is_finite
from fltune.data.validation import (
    Growth,
    growing_panel,
    hold_out,
    hold_out_of_each,
    panel,
    split_validation,
)
from fltune.errors import DataError
from fltune.parameters import Checked
from fltune.randomness import derive_seed


@dataclass(frozen=True, eq=False)
class RawData:
    """A data set before it is federated.

    Attributes:
        train: samples to train and validate on.
        test: samples to report on.
        num_classes: None for a regression.
        groups: int64 ``[n]``, the natural client (writer, generator ...) of each training sample,
            negative for one that belongs to nobody; None where the data has no clients of its own.
            A list or a NumPy array of whole numbers becomes such a tensor.
        val: samples to validate on, where some are published or the training samples are not fit
            for it (of noisy labels); None: they are held out of ``train``.

    Raises:
        DataError: a split is none, or ``groups`` is no vector of one whole id per training sample.
    """

    train: Split
    test: Split
    num_classes: int | None
    groups: Tensor | None = None
    val: Split | None = None

    @property
    def splits(self) -> dict[str, Split]:
        """The splits there are, by name."""
        own = {} if self.val is None else {"val": self.val}
        return {"train": self.train, **own, "test": self.test}

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            if not isinstance(split, Split):
                raise DataError(f"{name} is a {type(split).__name__}; must be a Split(x, y)")
        if self.groups is None:
            return
        groups = client_ids(self.groups)
        object.__setattr__(self, "groups", groups)
        if groups.dtype != torch.int64 or groups.shape != (len(self.train),):
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


def federate(
    dataset: Dataset,
    partition: Partition,
    num_clients: int,
    val_fraction: float,
    seed: int,
    split_seed: int = 0,
    val_from: str = "pool",
    val_clients: int | Growth | None = None,
    resplit: Sequence[float] | None = None,
) -> FederatedData:
    """Load a data set, hold out validation samples, and deal the rest to clients.

    Args:
        dataset: what to load.
        partition: who gets what.
        num_clients: N.
        val_fraction: of the training samples, held out, where the data set has no validation
            samples of its own; see :mod:`fltune.data.validation`.
        seed: of the partition.
        split_seed: of the hold-out and the panel; apart from ``seed``, so that new partitions are
            judged on the same validation samples, if they come from the pool.
        val_from: ``pool``, held out before anything is dealt; ``clients``, of what each client was
            dealt. Only then, or where clients are known beforehand, do the samples have owners.
            ``test``: nothing is held out, the test samples are the validation samples too.
        val_clients: k, clients of a fixed panel whose samples alone validate, or of one that grows,
            by round; None: all do.
        resplit: shares of training, validation and test samples, of all that are published; in the
            place of ``val_fraction``. With ``val_from: test`` the validation share is left unused.
            None: the test samples are those published as such.

    Raises:
        DataError: see :meth:`Dataset.load`, :mod:`fltune.data.validation` and :class:`Partition`;
            what is loaded is no :class:`RawData`, has no samples to train or test on, or numbers
            that are not finite; clients that share samples are to hold out their own, or a panel is
            asked for of samples without owners, or data with clients or validation samples of its
            own is to be split anew.
    """
    raw = _loaded(dataset)
    _check_own_validation(raw, val_from, resplit is not None)
    if resplit is not None:
        raw = split_anew(raw, resplit[2], split_seed)
        val_fraction = resplit[1] / (resplit[0] + resplit[1])
    _check_samples(type(dataset).__name__, raw)
    y = raw.train.y
    known = partition.known_clients(raw.groups, len(y))
    groups = raw.groups if known is None else known
    if val_from == "clients":
        assigned = partition.assign(y, num_clients, seed, groups)
        data = _validated_by_clients(raw, assigned, val_fraction, split_seed)
    else:
        kept: Tensor | slice = slice(None)
        held_out = None
        if resplit is not None or (val_from != "test" and raw.val is None):
            kept, held_out = split_validation(y, val_fraction, split_seed, known)
        own = None if groups is None else groups[kept]
        assigned = partition.assign(y[kept], num_clients, seed, own)
        train = replace(raw.train, x=raw.train.x[kept], y=y[kept])
        if val_from == "test":
            raw, held_out = replace(raw, val=None), None
        data = _validated_apart(raw, train, held_out, assigned, known)
    data = replace(data, named=None if known is raw.groups else known)
    return data if val_clients is None else on_panel(data, val_clients, split_seed)


def _loaded(dataset: Dataset) -> RawData:
    raw = dataset.load()
    if not isinstance(raw, RawData):
        raise DataError(
            f"{type(dataset).__name__}: load() returned a {type(raw).__name__}; must be a "
            "RawData(train, test, num_classes)"
        )
    return raw


def _check_own_validation(raw: RawData, val_from: str, anew: bool) -> None:
    """Refuse to look for validation samples elsewhere where the data set has its own."""
    key = "resplit" if anew else "val_from: clients" if val_from == "clients" else ""
    if raw.val is not None and key:
        raise DataError(
            f"data.{key}: this data has validation samples of its own, which would be left unused. "
            f"Leave {key.partition(':')[0]} out"
        )


def _check_samples(name: str, raw: RawData) -> None:
    """Refuse splits without samples, and numbers that no model can be judged on.

    One NaN among the inputs would look like a run that diverges, whatever its rates.
    """
    for part, split in raw.splits.items():
        if not len(split):
            raise DataError(f"{name}: {part} has no samples; at least one is needed")
        for values, of in ((split.x, "x"), (split.y, "y")):
            if not is_finite(values):
                raise DataError(f"{name}: {of} of {part} {NOT_FINITE}")


def split_anew(raw: RawData, share: float, seed: int) -> RawData:
    """Return the data with test samples drawn anew from all there are, of each class in proportion.

    Args:
        raw: as published.
        share: of all samples, to test on; rounded to whole samples.
        seed: decides which ones.

    Raises:
        DataError: the data has clients of its own, whose test samples have no owner.
    """
    if raw.groups is not None:
        raise DataError(
            "data.resplit: this data has clients of its own, and whose the published test samples "
            "are is not known. Leave resplit out"
        )
    x, y = (torch.cat([getattr(s, name) for s in (raw.train, raw.test)]) for name in ("x", "y"))
    rng = np.random.default_rng(derive_seed(seed, "resplit"))
    kept, test = hold_out(y, round(share * len(y)), rng)
    train = replace(raw.train, x=x[kept], y=y[kept])
    return replace(raw, train=train, test=Split(x[test], y[test]))


def _validated_apart(
    raw: RawData, train: Split, judging: Tensor | None, assigned: Assignment, known: Tensor | None
) -> FederatedData:
    """Federate samples that nobody validates on.

    Args:
        raw: the data set.
        train: what ``assigned`` deals of it.
        judging: rows of its training samples that validate, of all clients there are; None: its
            own validation samples do, or else the test samples.
        assigned: who gets what.
        known: the client of each of its training samples; None where nothing is known.
    """
    val, owner, notes = raw.test, None, (*assigned.notes, VAL_IS_TEST)
    if raw.val is not None:
        val, notes = raw.val, assigned.notes
    elif judging is not None:
        val, notes = Split(raw.train.x[judging], raw.train.y[judging]), assigned.notes
        if known is not None:  # numbered as a partition of all of them would, whoever is left out
            owner = torch.searchsorted(known[known >= 0].unique(), known[judging])
    return FederatedData.from_clients(
        train,
        val,
        raw.test,
        assigned.clients,
        raw.num_classes,
        overlapping=assigned.overlapping,
        val_by_client=owner is not None,
        notes=notes,
        val_owner=owner,
    )


def _validated_by_clients(
    raw: RawData, assigned: Assignment, fraction: float, seed: int
) -> FederatedData:
    """Let each client hold out some of its samples; ``train`` stays whole, nobody trains on them.

    Raises:
        DataError: clients share samples, so that one would train on what another validates on.
    """
    if assigned.overlapping:
        raise DataError(
            "data.val_from: clients needs a partition whose clients share no samples: one client "
            "would train on what another validates on. Use data.val_from: pool, or another kind of "
            "partition"
        )
    kept, held_out = hold_out_of_each(assigned.clients, fraction, seed)
    rows = torch.cat(held_out)
    sizes = torch.tensor([len(indices) for indices in held_out])
    return FederatedData.from_clients(
        raw.train,
        Split(raw.train.x[rows], raw.train.y[rows]),
        raw.test,
        kept,
        raw.num_classes,
        val_by_client=True,
        notes=assigned.notes,
        val_owner=torch.arange(len(sizes)).repeat_interleave(sizes),
        held_out=tuple(held_out),
    )


def on_panel(data: FederatedData, clients: int | Growth, seed: int) -> FederatedData:
    """Return the data with the validation samples of a few clients alone.

    Args:
        data: whose validation samples have owners.
        clients: how many the panel has; by round, if it grows.
        seed: of the panel.

    Raises:
        DataError: the samples have no owners, or too few clients have some.
        ValueError: a growing panel that does not grow.
    """
    if data.val_owner is None:
        raise DataError(
            "data.val_clients: whose the validation samples are is not known, they come from a "
            "pool. Set data.val_from to clients"
        )
    stages: tuple[tuple[int, int], ...] = ()
    if isinstance(clients, int):
        chosen = torch.isin(data.val_owner, panel(data.val_owner, clients, seed))
    else:
        chosen, stages = growing_panel(data.val_owner, clients, seed)
    val = Split(data.val.x[chosen], data.val.y[chosen])
    return replace(data, val=val, val_owner=data.val_owner[chosen], val_stages=stages)
