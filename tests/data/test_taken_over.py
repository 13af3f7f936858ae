"""What a data set of one's own may hand over, and what is refused in words."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fltune.data.dataset import Dataset, RawData, federate
from fltune.data.federated import Split
from fltune.data.natural import Natural
from fltune.data.partition import Iid
from fltune.data.tensors import is_finite
from fltune.errors import DataError

N = 40
X = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2)
Y = np.arange(N) % 2


@dataclass(frozen=True)
class Own(Dataset):
    """Whatever a test hands over."""

    loaded: Any = field(default=None, compare=False)

    def load(self):
        return self.loaded


def raw(x=X, y=Y, num_classes: int | None = 2, groups=None):
    return RawData(Split(x[:30], y[:30]), Split(x[30:], y[30:]), num_classes, groups)


def taken(loaded, **options):
    partition = Iid() if getattr(loaded, "groups", None) is None else Natural()
    return federate(Own(loaded), partition, 3, val_fraction=0.1, seed=0, **options)


@pytest.mark.parametrize("width", [np.uint8, np.int8, np.int32, np.uint16, np.int64])
def test_arrays_are_the_tensors_of_the_same_numbers(width):
    x, y = torch.from_numpy(X.copy()), torch.from_numpy(Y.copy())
    of_arrays, of_tensors = taken(raw(X, Y.astype(width))), taken(raw(x, y))
    assert of_arrays.train.y.dtype == torch.int64
    assert torch.equal(of_arrays.order, of_tensors.order)
    for name in ("train", "val", "test"):
        one, other = getattr(of_arrays, name), getattr(of_tensors, name)
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)


def test_narrow_class_ids_of_a_tensor_are_widened():
    assert Split(torch.zeros(2, 1), torch.tensor([0, 1], dtype=torch.int32)).y.dtype == torch.int64


@pytest.mark.parametrize(
    "x", [X[::-1], X.astype(">f4"), np.broadcast_to(X[:1], X.shape), X.astype(np.longdouble)]
)
def test_arrays_of_any_layout(x, recwarn):
    assert np.array_equal(Split(x, Y).x.numpy(), x)
    assert not recwarn.list  # torch warns of memory that is read-only


def test_large_arrays_are_not_copied():
    x = X.copy()
    assert Split(x, Y).x.data_ptr() == x.ctypes.data


def test_a_graph_is_cut():
    x = torch.from_numpy(X.copy()).requires_grad_()
    assert not taken(raw(x * 2)).train.x.requires_grad


@pytest.mark.parametrize("kind", [list, np.array, lambda ids: np.array(ids, np.int16)])
def test_groups_as_a_list_or_an_array(kind):
    data = taken(raw(groups=kind([j % 3 for j in range(30)])))
    assert data.sizes.tolist() == [9, 9, 9]


@pytest.mark.parametrize("groups", [["ann", "bob"] * 15, [0.5] * 30, 3, [0, 1]])
def test_groups_that_are_no_ids(groups):
    with pytest.raises(DataError, match=r"^groups "):
        raw(groups=groups)


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [3, 35])
def test_inputs_that_are_not_finite(hole, row):
    x = X.copy()
    x[row, 1] = hole
    part = "train" if row < 30 else "test"
    message = f"^Own: x of {part} holds NaN or infinity; leave such samples out$"
    with pytest.raises(DataError, match=message):
        taken(raw(x))
    with pytest.raises(DataError, match="holds NaN"):
        taken(raw(x), resplit=(0.6, 0.2, 0.2))


def test_targets_that_are_not_finite():
    y = X[:, :1].copy()
    y[0] = np.nan
    with pytest.raises(DataError, match="y of train holds NaN"):
        taken(raw(y=y, num_classes=None))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_of_every_width_are_looked_at(dtype):
    values = torch.full((2, 3), torch.finfo(dtype).max, dtype=dtype)
    assert is_finite(values)  # a sum would have overflowed
    values[1, 1] = torch.nan
    assert not is_finite(values)


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        (None, r"^Own: load\(\) returned a NoneType; must be a RawData"),
        ((X, Y), r"^Own: load\(\) returned a tuple; must be a RawData"),
        (raw(X[:30], Y[:30]), "^Own: test has no samples; at least one is needed$"),
        (RawData(Split(X[:0], Y[:0]), Split(X, Y), 2), "^Own: train has no samples"),
    ],
)
def test_what_is_no_data(loaded, message):
    with pytest.raises(DataError, match=message):
        taken(loaded)


def test_all_samples_may_be_published_for_training_where_the_splits_are_drawn_anew():
    data = taken(raw(X[:30], Y[:30]), resplit=(0.6, 0.2, 0.2))
    assert len(data.test) == 6


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X.tolist(), Y, "^x is a list; must be a tensor or a NumPy array$"),
        (X, None, "^y is a NoneType; must be"),
        (X.astype(str), Y, "^x is an array of type <U.*; must be numbers$"),
        (X.astype(object), Y, "^x is an array of type object"),
    ],
)
def test_samples_that_are_no_numbers(x, y, message):
    with pytest.raises(DataError, match=message):
        Split(x, y)


def test_a_split_that_is_none():
    with pytest.raises(DataError, match=r"^test is a tuple; must be a Split\(x, y\)$"):
        RawData(Split(X, Y), (X, Y), 2)
