"""MNIST and its relatives: 28x28 grey images in idx files.

torchvision reads only unpacked files; a read-only folder of packed ones is common, so both are read
here.
"""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fltune.data.images import TorchvisionImages
from fltune.parameters import parameter


@dataclass(frozen=True)
class IdxImages(TorchvisionImages):
    """28x28 grey images in four idx files; see its subclasses.

    ``x`` is float32 ``[n, 1, 28, 28]``. The files are those of torchvision, in its layout
    (``root/<name>/raw``); unpacked or as ``.gz``.
    """

    SHAPE = (1, 28, 28)
    ALSO_AS = " (unpacked or as .gz)"

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser() / type(self).__name__ / "raw"

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 10

    @property
    def files(self) -> list[str]:
        """The names of all files that are needed."""
        return [name for train in (True, False) for name in self.pair(train)]

    def pair(self, train: bool) -> tuple[str, str]:
        """Return the names of one split's files, images and labels."""
        prefix = "train" if train else "t10k"
        return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"

    def find(self, name: str) -> Path | None:
        """Return the path of a file, packed or not; None if it is missing."""
        return super().find(name) or super().find(f"{name}.gz")

    def read(self, train: bool) -> tuple[Tensor, Tensor]:
        """Return one split's images and labels."""
        images, labels = self.pair(train)
        return self._idx(images, dims=3).unsqueeze(1), self._idx(labels, dims=1).long()

    def _idx(self, name: str, dims: int) -> Tensor:
        path = self.path(name)
        with self.reading(path):
            return read_idx(path, dims)


@dataclass(frozen=True)
class MNIST(IdxImages):
    """60,000 training and 10,000 test images of handwritten digits (LeCun et al., 1998).

    ``x`` is float32 ``[n, 1, 28, 28]``, standardised with mean 0.1307 and std 0.3081.
    """

    MEAN = (0.1307,)
    STD = (0.3081,)


@dataclass(frozen=True)
class FashionMNIST(IdxImages):
    """60,000 training and 10,000 test images of clothes (Xiao, Rasul and Vollgraf, 2017).

    ``x`` is float32 ``[n, 1, 28, 28]``, standardised with mean 0.2860 and std 0.3530.
    """

    MEAN = (0.2860,)
    STD = (0.3530,)


@dataclass(frozen=True)
class EMNIST(IdxImages):
    """Handwritten letters and digits in six selections (Cohen et al., 2017).

    ``x`` is float32 ``[n, 1, 28, 28]``, standardised with mean 0.1736 and std 0.3317. The files
    hold each image with rows and columns exchanged; here it stands upright, as in MNIST.
    ``letters`` count from 1 in the files, from 0 here. Who wrote an image, the files do not say.
    """

    MEAN = (0.1736,)
    STD = (0.3317,)
    CLASSES: ClassVar[dict[str, int]] = {
        "balanced": 47,
        "byclass": 62,
        "bymerge": 47,
        "digits": 10,
        "letters": 26,
        "mnist": 10,
    }

    split: str = parameter(
        "balanced",
        "the selection: byclass is all 814,255 images of 62 classes; bymerge and balanced have 47 "
        "classes, letters 26, digits and mnist 10",
        choices=tuple(CLASSES),
    )

    @property
    def num_classes(self) -> int:
        """The number of classes of the selection."""
        return self.CLASSES[self.split]

    @property
    def downloads(self) -> list[dict[str, Any]]:
        """torchvision wants the selection named, and fetches all six."""
        return [{"split": self.split}]

    def pair(self, train: bool) -> tuple[str, str]:
        """Return the names of one split's files, images and labels."""
        prefix = f"emnist-{self.split}-{'train' if train else 'test'}"
        return f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"

    def read(self, train: bool) -> tuple[Tensor, Tensor]:
        """Return one split's images, upright, and labels from 0 on."""
        images, labels = super().read(train)
        return images.transpose(2, 3), labels - 1 if self.split == "letters" else labels


def read_idx(path: Path, dims: int) -> Tensor:
    """Return the bytes of an idx file (LeCun et al., 1998), packed by gzip or not, as uint8.

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
