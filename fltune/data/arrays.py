"""A data set of your own, as arrays in one .npz file.

>>> x, y = np.random.rand(100, 1, 8, 8), np.arange(100) % 10
>>> np.savez("mine.npz", x=x, y=y)
>>> Npz(path="mine.npz", test_fraction=0.2).load().num_classes
10
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.dataset import RawData
from fltune.data.federated import Split
from fltune.data.images import UNREADABLE, Images
from fltune.data.tensors import NOT_FINITE
from fltune.data.validation import hold_out
from fltune.errors import DataError
from fltune.parameters import parameter

Arrays = Mapping[str, NDArray[Any]]

NAMES = ("x", "y", "x_test", "y_test", "clients")


@dataclass(frozen=True, kw_only=True)
class Npz(Images):
    """Arrays of your own: ``x`` [n, ...] and ``y`` [n] in an .npz file; nothing in it is executed.

    Whole ``y`` are class ids, counted from 0; floating ``y``, [n] or [n, k], are the targets of a
    regression. Floating ``x`` are taken as they are, uint8 ones (images) divided by 255, other
    whole ones (token ids) kept as int64. To convolve, crop or flip, ``x`` must be [n, C, H, W].

    Optional arrays: ``x_test`` and ``y_test`` to report on, in the place of a held-out share; and
    ``clients`` [n], the id (a number or a text) of the client that each sample comes from, for the
    partition ``natural``.
    """

    path: str = parameter(doc="the .npz file, with arrays x and y")
    test_fraction: float = parameter(
        0.1,
        "share held out to report on where there is no x_test: stratified by class, or by client "
        "where there are clients, and the same whatever the seed",
        gt=0,
        lt=1,
    )

    def load(self) -> RawData:
        """Return the arrays; see :meth:`Dataset.load`."""
        arrays = self._arrays()
        train = self._split(arrays, "x", "y")
        groups = self._groups(arrays["clients"], len(train)) if "clients" in arrays else None
        if "x_test" in arrays or "y_test" in arrays:
            test = self._split(arrays, "x_test", "y_test")
            self._alike(train, test)
        else:
            train, test, groups = self._hold_out(train, groups)
        num_classes = None
        if train.y.dtype == torch.int64:
            num_classes = int(torch.cat([train.y, test.y]).max()) + 1
        try:
            train = Split(train.x, train.y, self.augmentation())
        except DataError as error:
            raise self._wrong(str(error)) from None
        return RawData(train, test, num_classes, groups)

    def _wrong(self, what: str) -> DataError:
        return DataError(f"{self.path}: {what}")

    def _arrays(self) -> Arrays:
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise self._wrong(
                "not found; data.path names an .npz file with arrays x [n, ...] and y [n]"
            )
        try:
            file = np.load(path, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it is a single array; save with numpy.savez(path, x=x, y=y)")
            with file:
                return {name: file[name] for name in NAMES if name in file.files}
        except (*UNREADABLE, zipfile.BadZipFile) as error:
            raise self._wrong(f"unreadable as an .npz file of plain arrays ({error})") from error

    def _split(self, arrays: Arrays, x_name: str, y_name: str) -> Split:
        for name in (x_name, y_name):
            if name not in arrays:
                raise self._wrong(
                    f"there is no array {name!r}; found {', '.join(arrays) or 'none known'}; "
                    "x and y are needed, x_test and y_test together or not at all"
                )
        x, y = self._inputs(x_name, arrays[x_name]), self._targets(y_name, arrays[y_name])
        if x.ndim < 2 or len(x) != len(y) or len(y) == 0:
            raise self._wrong(
                f"{x_name} of shape {tuple(x.shape)} and {y_name} of shape "
                f"{arrays[y_name].shape} are not allowed; must be [n, ...] and [n] with n >= 1"
            )
        return Split(x, y)

    def _inputs(self, name: str, values: NDArray[Any]) -> Tensor:
        if values.dtype == np.uint8:
            return torch.from_numpy(values).float().div_(255)
        if values.dtype.kind in "iu":
            return torch.from_numpy(values.astype(np.int64))
        if values.dtype.kind != "f":
            raise self._wrong(f"{name} is of type {values.dtype}; must be numbers")
        return self._floating(name, values)

    def _floating(self, name: str, values: NDArray[Any]) -> Tensor:
        if not np.isfinite(values).all():
            raise self._wrong(f"{name} {NOT_FINITE}")
        return torch.from_numpy(values.astype(np.float64 if values.itemsize >= 8 else np.float32))

    def _targets(self, name: str, values: NDArray[Any]) -> Tensor:
        kind = values.dtype.kind
        if kind in "iu" and values.ndim == 1:
            if values.size and values.min() < 0:
                raise self._wrong(f"{name} holds the class {values.min()}; classes count from 0")
            return torch.from_numpy(values.astype(np.int64))
        if kind == "f" and values.ndim in (1, 2):
            return self._floating(name, values.reshape(len(values), -1))
        raise self._wrong(
            f"{name} of shape {values.shape} and type {values.dtype} is not allowed; must be "
            "whole class ids [n], or floating targets [n] or [n, k] of a regression"
        )

    def _groups(self, ids: NDArray[Any], n: int) -> Tensor:
        if ids.shape != (n,) or ids.dtype.kind not in "iuUS":
            raise self._wrong(
                f"clients of shape {ids.shape} and type {ids.dtype} is not allowed; must be one "
                f"whole number or text for each of {n} samples"
            )
        return torch.from_numpy(np.unique(ids, return_inverse=True)[1].astype(np.int64))

    def _alike(self, train: Split, test: Split) -> None:
        found = [(tuple(s.x.shape[1:]), tuple(s.y.shape[1:]), s.y.dtype) for s in (train, test)]
        if found[0] != found[1]:
            (x, y, kind), (x_test, y_test, test_kind) = found
            raise self._wrong(
                f"a sample of x, y has shapes {x}, {y} and targets of {kind}; one of x_test, "
                f"y_test {x_test}, {y_test} and {test_kind}; must be the same"
            )

    def _hold_out(self, data: Split, groups: Tensor | None) -> tuple[Split, Split, Tensor | None]:
        strata, spare = (data.y, 0) if groups is None else (groups, 1)  # no client loses its last
        count = round(self.test_fraction * len(data))
        kept, held_out = hold_out(strata, count, np.random.default_rng(0), spare)
        if not 0 < len(held_out) < len(data):
            raise self._wrong(
                f"a test_fraction of {self.test_fraction} of {len(data)} samples leaves "
                f"{len(kept)} to train and {len(held_out)} to test on; each needs at least one"
            )
        train, test = (Split(data.x[part], data.y[part]) for part in (kept, held_out))
        return train, test, None if groups is None else groups[kept]
