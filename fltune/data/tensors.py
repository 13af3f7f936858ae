"""Samples as somebody's own data set hands them over: tensors or NumPy arrays, made alike.

>>> class_ids("y", np.array([0, 2, 1], dtype=np.int32))
tensor([0, 2, 1])
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fltune.errors import DataError

NOT_FINITE = "holds NaN or infinity; leave such samples out"


def plain(name: str, values: Any) -> Tensor:
    """Return a tensor of samples, without a graph; the memory of an array is shared, if it can be.

    Raises:
        DataError: they are neither a tensor nor a NumPy array of numbers.
    """
    if isinstance(values, Tensor):
        return values.detach() if values.requires_grad else values
    if not isinstance(values, np.ndarray):
        raise DataError(f"{name} is a {type(values).__name__}; must be a tensor or a NumPy array")
    if values.dtype.kind not in "biuf":
        raise DataError(f"{name} is an array of type {values.dtype}; must be numbers")
    # torch shares no memory that is read-only, runs backwards or has the other byte order
    native = np.require(values, values.dtype.newbyteorder("="), ["C", "W"])
    if native.dtype.kind == "f" and native.itemsize > 8:
        native = native.astype(np.float64)
    return torch.as_tensor(native)


def class_ids(name: str, values: Any) -> Tensor:
    """Return targets as a tensor; whole ones, of whatever width, as int64."""
    targets = plain(name, values)
    whole = not (targets.is_floating_point() or targets.is_complex())
    return targets.long() if whole and targets.dtype != torch.bool else targets


def client_ids(values: Any) -> Tensor:
    """Return the clients of samples, a tensor, an array or a list of whole numbers, as a tensor."""
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    return class_ids("groups", values)


def is_finite(values: Tensor) -> bool:
    """Whether no number is NaN or infinite.

    The extremes tell it, as NaN is one, in one pass and without a mask as large as the data.
    """
    if not values.is_floating_point() or not values.numel():
        return True
    low, high = torch.aminmax(values)
    return bool(low.isfinite() & high.isfinite())
