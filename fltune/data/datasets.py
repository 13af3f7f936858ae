"""Whole data sets as tensors, their split into training and validation, and their federation.

    >>> from fltune.data.partition import Iid
    >>> data = federate(Digits(), Iid(), num_clients=50, val_fraction=0.1, seed=0)
    >>> data.report()["train_samples"], data.sizes.min()
    (1293, tensor(25))

Loading is lazy: a data set is a small object of hyperparameters until ``load()``, and what reads it
(scikit-learn, torchvision) is imported only then.
"""

from __future__ import annotations

import gzip
import math
import shlex
import struct
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.federated import FederatedData, Split
from fltune.data.partition import Partition
from fltune.errors import DataError
from fltune.parameters import Checked, parameter


@dataclass(frozen=True, eq=False)
class RawData:
    """A data set before it is federated.

    Attributes:
        train: samples to train and validate on.
        test: samples to report on.
        num_classes: None for a regression.
    """

    train: Split
    test: Split
    num_classes: int | None


@dataclass(frozen=True)
class Dataset(Checked, ABC):
    """A data set that can be loaded; its fields say where from and how."""

    @abstractmethod
    def load(self) -> RawData:
        """Return all samples, on the CPU.

        Raises:
            DataError: the data is missing, corrupt or smaller than asked for.
        """


@dataclass(frozen=True)
class Digits(Dataset):
    """1,797 real 8x8 handwritten digits inside scikit-learn: no download.

    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (1998). ``x`` is float32
    ``[n, 64]``: grey values in 0..16, divided by 16. 1,437 training and 360 test samples,
    stratified, the same ones whatever the seed of an experiment.
    """

    TEST_SIZE: ClassVar[int] = 360

    def load(self) -> RawData:
        """Return the digits."""
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        x = (torch.from_numpy(images) / 16).float()
        y = torch.from_numpy(labels).long()
        kept, held_out = _hold_out(y, self.TEST_SIZE, np.random.default_rng(0))
        return RawData(Split(x[kept], y[kept]), Split(x[held_out], y[held_out]), num_classes=10)


@dataclass(frozen=True)
class IdxImages(Dataset):
    """28x28 grey images of ten classes in the four idx files of MNIST; see its subclasses.

    ``x`` is float32 ``[n, 1, 28, 28]``. The files are those of torchvision, in its layout
    (``root/<name>/raw``); unpacked or as ``.gz``.
    """

    MEAN: ClassVar[float]
    STD: ClassVar[float]

    root: str = parameter("data", "folder that holds <name>/raw/*-ubyte (or *-ubyte.gz)")
    download: bool = parameter(False, "fetch missing files with torchvision")
    normalize: bool = parameter(True, "subtract mean and divide by std; else values in [0, 1]")
    limit: int | None = parameter(None, "only the first so many training images", ge=1)
    test_limit: int | None = parameter(None, "only the first so many test images", ge=1)

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser() / type(self).__name__ / "raw"

    def load(self) -> RawData:
        """Return the images; see :meth:`Dataset.load`."""
        if self.download and self._missing():
            self._fetch()
        missing = self._missing()
        if missing:
            raise DataError(
                f"{type(self).__name__}: {', '.join(missing)} not found in {self.folder} "
                f"(unpacked or as .gz). Fetch with `--set data.download=true`, or with\n"
                f"    {self._command()}\nor set data.root to where the files are"
            )
        train = self._split("train", self.limit)
        return RawData(train, self._split("t10k", self.test_limit), num_classes=10)

    def _missing(self) -> list[str]:
        names = [
            f"{s}-{k}-ubyte" for s in ("train", "t10k") for k in ("images-idx3", "labels-idx1")
        ]
        return [name for name in names if self._find(name) is None]

    def _find(self, name: str) -> Path | None:
        candidates = (self.folder / name, self.folder / f"{name}.gz")
        return next((path for path in candidates if path.is_file()), None)

    def _command(self) -> str:
        name = type(self).__name__
        code = f"from torchvision.datasets import {name}; {name}({self.root!r}, download=True)"
        return f"python -c {shlex.quote(code)}"

    def _fetch(self) -> None:
        try:
            from torchvision import datasets

            getattr(datasets, type(self).__name__)(self.root, download=True)
        except Exception as error:  # network, disk, server, checksum: the user's to mend
            raise DataError(
                f"{type(self).__name__}: torchvision could not fetch it to {self.folder}: {error}\n"
                "Put its four files there by hand, or set data.root to where they are"
            ) from error

    def _split(self, name: str, limit: int | None) -> Split:
        images = self._read(f"{name}-images-idx3-ubyte", dims=3)
        labels = self._read(f"{name}-labels-idx1-ubyte", dims=1)
        if len(images) != len(labels) or images.shape[1:] != (28, 28) or labels.max() > 9:
            raise DataError(
                f"{self.folder}: corrupt: {name} images of shape {tuple(images.shape)} and "
                f"{len(labels)} labels up to {int(labels.max())}; must be as many images of 28x28 "
                "and labels 0..9"
            )
        if limit is not None and limit > len(images):
            raise DataError(
                f"{type(self).__name__}: a limit of {limit} is not allowed; "
                f"{name} has {len(images)} images"
            )
        x = images[:limit, None].float().div_(255)
        if self.normalize:
            x.sub_(self.MEAN).div_(self.STD)
        return Split(x, labels[:limit].long())

    def _read(self, name: str, dims: int) -> Tensor:
        path = self._find(name)
        assert path is not None  # load() has looked
        try:
            return read_idx(path, dims)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise DataError(
                f"{path}: corrupt or unreadable ({error}); delete it and fetch it again with\n"
                f"    {self._command()}"
            ) from error


@dataclass(frozen=True)
class MNIST(IdxImages):
    """60,000 training and 10,000 test images of handwritten digits (LeCun et al., 1998).

    ``x`` is float32 ``[n, 1, 28, 28]``, standardised with mean 0.1307 and std 0.3081.
    """

    MEAN = 0.1307
    STD = 0.3081


@dataclass(frozen=True)
class FashionMNIST(IdxImages):
    """60,000 training and 10,000 test images of clothes (Xiao, Rasul and Vollgraf, 2017).

    ``x`` is float32 ``[n, 1, 28, 28]``, standardised with mean 0.2860 and std 0.3530.
    """

    MEAN = 0.2860
    STD = 0.3530


def read_idx(path: Path, dims: int) -> Tensor:
    """Return the bytes of an idx file (LeCun et al., 1998), packed by gzip or not, as uint8.

    torchvision reads only unpacked files; a read-only folder of packed ones is common.

    Args:
        path: the file; unpacked first if its name ends in ``.gz``.
        dims: the number of dimensions it must have.

    Raises:
        ValueError: it is no idx file of that many dimensions, is empty, or has the wrong length.
        OSError, EOFError, zlib.error: it cannot be read or unpacked.
    """
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    header = 4 + 4 * dims
    if len(raw) < header or raw[:4] != bytes([0, 0, 8, dims]):  # 8 = unsigned bytes
        raise ValueError(f"not an idx file of bytes with {dims} dimensions")
    shape = struct.unpack_from(f">{dims}I", raw, offset=4)
    found, expected = len(raw) - header, math.prod(shape)
    if found != expected or not found:
        raise ValueError(f"holds {found} values where its header announces {expected}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=header).view(shape)


def split_validation(raw: RawData, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide the training samples into (training, validation).

    Args:
        raw: the data set; its test samples are left alone.
        fraction: of the training samples, in (0, 1); rounded to whole samples. Each class gives
            its share of them, to within one sample.
        seed: >= 0; decides which ones, alone.

    Raises:
        DataError: the fraction is out of range, or one of the two would be empty.
    """
    if not 0 < fraction < 1:
        raise DataError(f"a validation fraction of {fraction} is not allowed; must be in (0, 1)")
    n = len(raw.train)
    count = round(fraction * n)
    if not 0 < count < n:
        raise DataError(
            f"a validation fraction of {fraction} of {n} samples leaves {n - count} to train and "
            f"{count} to validate on; each needs at least one"
        )
    kept, held_out = _hold_out(raw.train.y, count, np.random.default_rng(seed))
    x, y = raw.train.x, raw.train.y
    return Split(x[kept], y[kept]), Split(x[held_out], y[held_out])


def _hold_out(y: Tensor, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return sorted indices (kept, held out); stratified by largest remainders if y is classes."""
    labels = y.cpu().numpy() if y.ndim == 1 else np.zeros(len(y), np.int64)
    _, class_of, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(class_sizes * count, len(labels))  # in integers: no rounding
    # Ties are broken at random, or many classes of one sample would all give from the front.
    first = np.lexsort((rng.random(len(quota)), -remainder))
    quota[first[: count - quota.sum()]] += 1
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
        val_fraction: of the training samples, held out centrally before they are dealt.
        seed: of the partition.
        split_seed: of the hold-out; apart from ``seed``, so that new partitions are judged on the
            same validation samples.

    Raises:
        DataError: see :meth:`Dataset.load`, :func:`split_validation` and :class:`Partition`.
    """
    raw = dataset.load()
    train, val = split_validation(raw, val_fraction, split_seed)
    clients = partition(train.y, num_clients, seed)
    return FederatedData.from_clients(train, val, raw.test, clients, raw.num_classes)
