"""Handwritten digits and letters by the person who wrote them, as TensorFlow Federated has them.

torchvision's EMNIST does not tell who wrote an image. TensorFlow Federated's files do: they are
EMNIST as LEAF (Caldas et al., 2018) sorts it by writer, in two HDF5 files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.dataset import RawData
from fltune.data.federated import Split
from fltune.data.images import Images
from fltune.errors import DataError
from fltune.extras import require
from fltune.parameters import parameter

SOURCE = "https://storage.googleapis.com/tff-datasets-public"


@dataclass(frozen=True)
class EMNISTByWriter(Images):
    """EMNIST by writer (Cohen et al., 2017; Caldas et al., 2018), in TensorFlow Federated's files.

    Digits alone: 3,383 writers, 341,873 training and 40,832 test images of 10 classes. All: 3,400
    writers, 671,585 and 77,483 images of 62 classes, digits before capitals before small letters.
    ``x`` is float32 ``[n, 1, 28, 28]`` in [0, 1], as delivered. The clients are the writers, in the
    order of their ids; the test images are those of all writers, whoever takes part.

    Needs the extra ``hdf5``. The two files of ``fed_emnist_digitsonly.tar.bz2`` (or
    ``fed_emnist.tar.bz2``, for all) belong into ``root/FederatedEMNIST``.
    """

    default_partition: ClassVar[str] = "natural"

    root: str = parameter("data", "folder that holds FederatedEMNIST and its two .h5 files")
    digits_only: bool = parameter(True, "the ten digits alone; false: letters too, 62 classes")

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser() / "FederatedEMNIST"

    @property
    def archive(self) -> str:
        """The name of the archive, and what the names of its files begin with."""
        return "fed_emnist_digitsonly" if self.digits_only else "fed_emnist"

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 10 if self.digits_only else 62

    def load(self) -> RawData:
        """Return the images; see :meth:`Dataset.load`.

        Raises:
            ConfigError: the package h5py is not installed.
        """
        paths = [self.folder / f"{self.archive}_{part}.h5" for part in ("train", "test")]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise DataError(
                f"EMNISTByWriter: {' and '.join(missing)} not found in {self.folder}. They are in "
                f"{SOURCE}/{self.archive}.tar.bz2; unpack it there (tar -xjf), or set data.root to "
                "the folder that holds FederatedEMNIST"
            )
        (x, y, writers), (x_test, y_test, _) = map(self._read, paths)
        return RawData(
            Split(x, y, self.augmentation()), Split(x_test, y_test), self.num_classes, writers
        )

    def _read(self, path: Path) -> tuple[Tensor, Tensor, Tensor]:
        """Return a file's images, labels and writers, writer by writer."""
        h5py = require("h5py", "hdf5", "the data set emnist_by_writer")
        try:
            with h5py.File(path, "r") as file:
                examples = file["examples"]
                held = [self._of_one(examples[writer]) for writer in sorted(examples)]
            images, labels = (np.concatenate(parts) for parts in zip(*held, strict=True))
        except (OSError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: unreadable ({error}); must hold examples/WRITER/pixels and label. Unpack "
                "the archive again"
            ) from error
        sizes = torch.tensor([len(own) for _, own in held])
        writers = torch.arange(len(sizes)).repeat_interleave(sizes)
        return torch.from_numpy(images)[:, None], torch.from_numpy(labels), writers

    def _of_one(self, group: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return one writer's images ``[n, 28, 28]`` and labels ``[n]``.

        Raises:
            ValueError: they are not.
        """
        images = np.asarray(group["pixels"], dtype=np.float32)
        labels = np.asarray(group["label"], dtype=np.int64).reshape(-1)
        if images.shape != (len(labels), 28, 28):
            raise ValueError(f"{len(labels)} labels and images of shape {images.shape}")
        if not ((labels >= 0) & (labels < self.num_classes)).all():
            raise ValueError(f"labels {sorted(set(labels))}, not in 0..{self.num_classes - 1}")
        return images, labels
