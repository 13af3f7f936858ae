"""What the image data sets share: limits, standardising, fetching, and what errors say.

A data set of torchvision's is read from the files that torchvision fetches, in its layout, but not
by torchvision: its loaders unpickle what they find, which runs the code of whoever wrote the file.
"""

from __future__ import annotations

import hashlib
import shlex
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fltune.data.augmentation import Augmentation
from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.errors import DataError
from fltune.parameters import parameter

UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
"""What reading a damaged file may raise, packed or not."""


@dataclass(frozen=True)
class Images(Dataset):
    """A data set whose training images can be augmented; off unless asked for."""

    crop_padding: int = parameter(
        0,
        "random crop of training images after so many pixels of black padding; 0: none. The papers "
        "take 4 for CIFAR and SVHN",
        ge=0,
    )
    flip: bool = parameter(
        False,
        "mirror each training image with probability 1/2; the papers do for CIFAR, not for digits",
    )

    def augmentation(self, fill: tuple[float, ...] = (0.0,)) -> Augmentation | None:
        """Return what the local solver shall do; ``fill`` is the value of black per channel."""
        if not self.crop_padding and not self.flip:
            return None
        return Augmentation(self.crop_padding, self.flip, fill)


@dataclass(frozen=True)
class TorchvisionImages(Images):
    """Labelled images in the files that torchvision fetches; see its subclasses.

    ``x`` is float32 ``[n, C, H, W]``. A subclass has the name of torchvision's class.

    Attributes:
        SHAPE: of one image.
        MEAN, STD: per channel, of values in [0, 1].
        ALSO_AS: other forms that a file may have, for the message that it is missing.
    """

    SHAPE: ClassVar[tuple[int, int, int]]
    MEAN: ClassVar[tuple[float, ...]]
    STD: ClassVar[tuple[float, ...]]
    ALSO_AS: ClassVar[str] = ""

    root: str = parameter("data", "folder that torchvision keeps its data in")
    download: bool = parameter(False, "fetch missing files with torchvision")
    normalize: bool = parameter(True, "subtract mean and divide by std; else values in [0, 1]")
    limit: int | None = parameter(None, "only the first so many training images", ge=1)
    test_limit: int | None = parameter(None, "only the first so many test images", ge=1)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where the files are expected."""

    @property
    @abstractmethod
    def files(self) -> list[str]:
        """The names of all files that are needed."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """The number of classes."""

    @abstractmethod
    def read(self, train: bool) -> tuple[Tensor, Tensor]:
        """Return uint8 images ``[n, C, H, W]`` and int64 labels ``[n]``, as the files hold them."""

    def load(self) -> RawData:
        """Return the images; see :meth:`Dataset.load`."""
        if self.download and self._missing():
            self._fetch()
        missing = self._missing()
        if missing:
            raise DataError(
                f"{type(self).__name__}: {', '.join(missing)} not found in {self.folder}"
                f"{self.ALSO_AS}. Fetch with `--set data.download=true`, or with\n"
                f"    {self.command}\nor set data.root to where the files are"
            )
        fill = tuple(-m / s for m, s in zip(self.MEAN, self.STD, strict=True))
        augmentation = self.augmentation(fill if self.normalize else (0.0,))
        train = Split(*self._split(True, self.limit), augmentation)
        return RawData(train, Split(*self._split(False, self.test_limit)), self.num_classes)

    def find(self, name: str) -> Path | None:
        """Return the path of one of :attr:`files`, None if it is missing."""
        path = self.folder / name
        return path if path.is_file() else None

    def path(self, name: str) -> Path:
        """Return the path of one of :attr:`files`, which :meth:`load` has found."""
        path = self.find(name)
        assert path is not None
        return path

    def _missing(self) -> list[str]:
        return [name for name in self.files if self.find(name) is None]

    @property
    def downloads(self) -> list[dict[str, Any]]:
        """The arguments of torchvision's class that fetch everything, call by call."""
        return [{}]

    @property
    def command(self) -> str:
        """The shell command that fetches the files."""
        name = type(self).__name__
        calls = [
            f"{name}({', '.join([repr(self.root), *(f'{k}={v!r}' for k, v in extra.items())])}, "
            "download=True)"
            for extra in self.downloads
        ]
        code = "; ".join([f"from torchvision.datasets import {name}", *calls])
        return f"python -c {shlex.quote(code)}"

    def _fetch(self) -> None:
        try:
            from torchvision import datasets

            for extra in self.downloads:
                getattr(datasets, type(self).__name__)(self.root, **extra, download=True)
        except Exception as error:  # network, disk, server, checksum: the user's to mend
            raise DataError(
                f"{type(self).__name__}: torchvision could not fetch it to {self.folder}: {error}\n"
                f"Put its files there by hand ({', '.join(self.files)}), or set data.root to where "
                "they are"
            ) from error

    @contextmanager
    def reading(
        self, path: Path, errors: tuple[type[Exception], ...] = UNREADABLE
    ) -> Iterator[None]:
        """Turn what a damaged file raises into a DataError that names the file and the remedy."""
        try:
            yield
        except errors as error:
            raise DataError(
                f"{path}: corrupt or unreadable ({error}); delete it and fetch it again with\n"
                f"    {self.command}"
            ) from error

    def _split(self, train: bool, limit: int | None) -> tuple[Tensor, Tensor]:
        part = "train" if train else "test"
        images, labels = self.read(train)
        low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, -1)
        same = len(images) == len(labels) > 0 and images.shape[1:] == self.SHAPE
        if not same or low < 0 or high >= self.num_classes:
            raise DataError(
                f"{self.folder}: corrupt: {part} images of shape {tuple(images.shape)} and "
                f"{len(labels)} labels from {low} to {high}; must be as many images of shape "
                f"{self.SHAPE} and labels in 0..{self.num_classes - 1}"
            )
        if limit is not None and limit > len(images):
            raise DataError(
                f"{type(self).__name__}: a limit of {limit} is not allowed; "
                f"{part} has {len(images)} images"
            )
        x = images[:limit].float().div_(255)
        if self.normalize:
            mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (self.MEAN, self.STD))
            x.sub_(mean).div_(std)
        return x, labels[:limit]


@dataclass(frozen=True)
class VerifiedImages(TorchvisionImages):
    """Images whose files have checksums of their own in torchvision's lists."""

    verify: bool = parameter(
        True, "refuse files whose md5 sum is not that of the original; false takes them as they are"
    )

    @abstractmethod
    def checksums(self) -> Mapping[str, str]:
        """Return the md5 sum of each of :attr:`files`."""

    def read(self, train: bool) -> tuple[Tensor, Tensor]:
        """Return the images and labels of the files, checked if asked for."""
        names = self.parts(train)
        if self.verify:
            self._verify(names)
        parts = [self.read_file(self.path(name)) for name in names]
        images, labels = zip(*parts, strict=True)
        return torch.cat(images), torch.cat(labels)

    @abstractmethod
    def parts(self, train: bool) -> list[str]:
        """The names of the files of one split."""

    @abstractmethod
    def read_file(self, path: Path) -> tuple[Tensor, Tensor]:
        """Return one file's images and labels, as :meth:`read` does."""

    @property
    def files(self) -> list[str]:
        """The names of all files that are needed."""
        return self.parts(True) + self.parts(False)

    def _verify(self, names: list[str]) -> None:
        known = self.checksums()
        for name in names:
            path = self.path(name)
            with self.reading(path):
                found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            if found != known[name]:
                raise DataError(
                    f"{path}: its md5 sum {found} is not the original's {known[name]}: damaged, or "
                    f"another version of {type(self).__name__}. Delete it and fetch it again with\n"
                    f"    {self.command}\nor take it as it is with `--set data.verify=false`"
                )
