"""Photographs of your own: a folder per split, in it a folder per class.

root/train/cat/001.png    root/test/cat/101.jpg
root/train/dog/001.png    root/test/dog/101.jpg
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fltune.data.augmentation import Augmentation
from fltune.data.dataset import RawData
from fltune.data.federated import Split
from fltune.data.images import Images
from fltune.errors import DataError
from fltune.parameters import parameter

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Images):
    """Images of your own: ``root/train/<class>/*.png|jpg`` and ``root/test/<class>/*``.

    ``x`` is float32 ``[n, channels, size, size]`` in [0, 1]. Class ids follow the sorted names of
    the folders in ``train``; files are taken in the order of their names.
    """

    root: str = parameter(doc="folder that holds train/<class>/ and test/<class>/")
    size: int = parameter(32, "pixels; every image is resized to a square of it", ge=1)
    channels: int = parameter(3, "3: colour; 1: grey", choices=tuple(MODES))

    def load(self) -> RawData:
        """Return the images; see :meth:`Dataset.load`."""
        train, test = (Path(self.root).expanduser() / part for part in ("train", "test"))
        classes = _folders(train)
        unknown = sorted(set(_folders(test)) - set(classes))
        if unknown:
            raise DataError(
                f"{test}: there is no class {', '.join(unknown)} in {train}; found there "
                f"{', '.join(classes)}"
            )
        without = [name for name in classes if not _files(train / name)]
        if without:
            raise DataError(
                f"{train / without[0]}: holds no image ({', '.join(SUFFIXES)}); put some there or "
                "remove the folder"
            )
        samples = self._split(train, classes, self.augmentation())
        return RawData(samples, self._split(test, classes), len(classes))

    def _split(
        self, folder: Path, classes: list[str], augmentation: Augmentation | None = None
    ) -> Split:
        paths = [_files(folder / name) for name in classes]
        files = [path for of_class in paths for path in of_class]
        if not files:
            raise DataError(f"{folder}: holds no image ({', '.join(SUFFIXES)})")
        x = np.empty((len(files), self.channels, self.size, self.size), np.uint8)
        for i, path in enumerate(files):
            x[i] = self._read(path)
        sizes = torch.tensor([len(of_class) for of_class in paths])
        y = torch.arange(len(classes)).repeat_interleave(sizes)
        return Split(torch.from_numpy(x).float().div_(255), y, augmentation)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        """Return one image as uint8 [channels, size, size]."""
        from PIL import Image

        try:
            with Image.open(path) as image:
                square = image.convert(MODES[self.channels]).resize((self.size, self.size))
        except Exception as error:  # a damaged image may raise nearly anything
            raise DataError(f"{path}: corrupt or no image ({error}); mend or remove it") from error
        return np.atleast_3d(np.asarray(square)).transpose(2, 0, 1)


def _folders(split: Path) -> list[str]:
    if not split.is_dir():
        raise DataError(
            f"{split}: not found; set data.root to a folder with train/ and test/ in it"
        )
    names = sorted(p.name for p in split.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise DataError(f"{split}: holds no folder; each class needs one, with its images in it")
    return names


def _files(folder: Path) -> list[Path]:
    """Return the images of one class, in the order of their names; none if there is no folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(p for p in found if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
