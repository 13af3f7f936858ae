"""SVHN: 32x32 colour photographs of house numbers in MATLAB files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fltune.data.images import VerifiedImages


@dataclass(frozen=True)
class SVHN(VerifiedImages):
    """73,257 training and 26,032 test photographs of digits on houses (Netzer et al., 2011).

    ``x`` is float32 ``[n, 3, 32, 32]``, standardised per channel with mean .4377 .4438 .4728 and
    std .1980 .2010 .1970. The files lie in ``root`` itself. Not augmented by default; the papers
    train with ``crop_padding`` 4 (and no flip: a mirrored digit is none).
    """

    SHAPE = (3, 32, 32)
    MEAN = (0.4377, 0.4438, 0.4728)
    STD = (0.1980, 0.2010, 0.1970)

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser()

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 10

    @property
    def downloads(self) -> list[dict[str, Any]]:
        """torchvision fetches one split at a time."""
        return [{"split": "train"}, {"split": "test"}]

    def checksums(self) -> Mapping[str, str]:
        """Return the md5 sums that torchvision knows."""
        from torchvision import datasets

        return {name: md5 for _, name, md5 in datasets.SVHN.split_list.values()}

    def parts(self, train: bool) -> list[str]:
        """The name of the file of one split."""
        return ["train_32x32.mat" if train else "test_32x32.mat"]

    def read_file(self, path: Path) -> tuple[Tensor, Tensor]:
        """Return one file's images and labels; a 0 is labelled 10 in the file."""
        from scipy.io import loadmat

        with self.reading(path, (Exception,)):  # a damaged file may raise nearly anything
            content = loadmat(path, variable_names=("X", "y"))
            images, labels = content["X"], content["y"].reshape(-1)
            if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype.kind not in "iu":
                raise ValueError(
                    f"images of type {images.dtype} and shape {images.shape}, labels of type "
                    f"{labels.dtype}; must be uint8 [32, 32, 3, n] and whole numbers"
                )
            x = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
            y = torch.from_numpy(labels.astype(np.int64))
            return x, torch.where(y == 10, 0, y)
