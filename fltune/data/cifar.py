"""CIFAR-10 and CIFAR-100: 32x32 colour photographs in pickle files.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009). Unpickling runs what a
file says, so these are read by an unpickler that knows arrays and plain values, and nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fltune.data.images import VerifiedImages
from fltune.parameters import parameter


@dataclass(frozen=True)
class CIFAR(VerifiedImages):
    """32x32 colour images in torchvision's pickle files; see its subclasses.

    ``x`` is float32 ``[n, 3, 32, 32]``, standardised per channel with mean .4914 .4824 .4467 and
    std .2471 .2435 .2616. Not augmented by default; the papers train with ``crop_padding`` 4 and
    ``flip`` true.
    """

    SHAPE = (3, 32, 32)
    MEAN = (0.4914, 0.4824, 0.4467)
    STD = (0.2471, 0.2435, 0.2616)
    FOLDER: ClassVar[str]

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser() / self.FOLDER

    def checksums(self) -> Mapping[str, str]:
        """Return the md5 sums that torchvision knows."""
        from torchvision import datasets

        known = getattr(datasets, type(self).__name__)
        return dict([*known.train_list, *known.test_list])

    @property
    def label_key(self) -> str:
        """What the files call the labels."""
        return "labels"

    def read_file(self, path: Path) -> tuple[Tensor, Tensor]:
        """Return one file's images and labels."""
        with self.reading(path, (Exception,)):  # a damaged pickle may raise nearly anything
            with path.open("rb") as file:
                content = ArrayUnpickler(file, encoding="latin1").load()
            images = np.asarray(content["data"])
            labels = np.asarray(content[self.label_key])
            if images.dtype != np.uint8 or labels.dtype.kind not in "iu":
                raise ValueError(
                    f"images of type {images.dtype} and labels of type {labels.dtype}; must be "
                    "uint8 and whole numbers"
                )
            x = torch.from_numpy(images.reshape(len(images), *self.SHAPE))
            return x, torch.from_numpy(labels.astype(np.int64))


@dataclass(frozen=True)
class CIFAR10(CIFAR):
    """50,000 training and 10,000 test photographs of ten kinds of things (Krizhevsky, 2009).

    ``x`` is float32 ``[n, 3, 32, 32]``, standardised per channel with mean .4914 .4824 .4467 and
    std .2471 .2435 .2616. Not augmented by default; the papers train with ``crop_padding`` 4 and
    ``flip`` true.
    """

    FOLDER = "cifar-10-batches-py"

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 10

    def parts(self, train: bool) -> list[str]:
        """The names of the files of one split."""
        return [f"data_batch_{k}" for k in range(1, 6)] if train else ["test_batch"]


@dataclass(frozen=True)
class CIFAR100(CIFAR):
    """50,000 training and 10,000 test photographs of a hundred kinds of things (Krizhevsky, 2009).

    ``x`` is float32 ``[n, 3, 32, 32]``, standardised with the constants of CIFAR-10, which the
    papers use for both. Not augmented by default; the papers train with ``crop_padding`` 4 and
    ``flip`` true.
    """

    FOLDER = "cifar-100-python"

    labels: str = parameter(
        "fine", "fine: 100 classes; coarse: the 20 families of them", choices=("fine", "coarse")
    )

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 100 if self.labels == "fine" else 20

    @property
    def label_key(self) -> str:
        """What the files call the labels."""
        return f"{self.labels}_labels"

    def parts(self, train: bool) -> list[str]:
        """The names of the files of one split."""
        return ["train" if train else "test"]


def _latin1(text: str, encoding: str) -> bytes:
    # how Python 3 writes bytes for Python 2; only this encoding occurs
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r} are not allowed")
    return text.encode("latin1")


_ARRAY_PARTS: dict[str, Callable[..., Any]] = {
    "ndarray": np.ndarray,
    "dtype": np.dtype,
    # numpy has moved these between modules, so they are taken from what writes them
    "_reconstruct": np.empty(1).__reduce__()[0],  # type: ignore[dict-item]
    "_frombuffer": np.empty(1).__reduce_ex__(5)[0],  # type: ignore[dict-item]
    "scalar": np.uint8(0).__reduce__()[0],  # type: ignore[dict-item]
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads dicts, lists, texts, numbers and numpy arrays; runs nothing that a file names.

    Raises:
        pickle.UnpicklingError: the file asks for anything else.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what a file may name: the parts of numpy arrays."""
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        if module.split(".")[0] == "numpy" and name in _ARRAY_PARTS:
            return _ARRAY_PARTS[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which arrays do not need")
