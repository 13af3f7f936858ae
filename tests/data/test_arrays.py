import io

import numpy as np
import pytest
import torch

from fltune.data.arrays import Npz
from fltune.errors import DataError

N = 40


def arrays(**other):
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 3)).astype(np.float32)
    return {"x": x, "y": np.arange(N) % 4, **other}


def load(tmp_path, arrays, **options):
    path = tmp_path / "mine.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return Npz(path=str(path), **options).load()


def test_a_share_is_held_out_the_same_one_each_time(tmp_path):
    raw = load(tmp_path, arrays(), test_fraction=0.2)
    assert (len(raw.train), len(raw.test), raw.num_classes, raw.groups) == (32, 8, 4, None)
    assert raw.test.y.bincount().tolist() == [2, 2, 2, 2]
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    both = torch.cat([raw.train.x, raw.test.x])
    assert torch.equal(both.unique(dim=0), torch.from_numpy(arrays()["x"]).unique(dim=0))
    torch.manual_seed(5)
    assert torch.equal(load(tmp_path, arrays(), test_fraction=0.2).test.x, raw.test.x)


def test_own_test_samples(tmp_path):
    own = {"x_test": np.ones((5, 3), np.float32), "y_test": np.array([5, 0, 0, 1, 2])}
    raw = load(tmp_path, arrays(**own))
    assert (len(raw.train), len(raw.test)) == (N, 5)
    assert raw.test.y.tolist() == [5, 0, 0, 1, 2]
    assert raw.num_classes == 6  # a class may occur in the test samples alone


@pytest.mark.parametrize(
    ("x", "kind", "factor"),
    [
        (np.arange(N * 4, dtype=np.uint8).reshape(N, 1, 2, 2), torch.float32, 255),
        (np.arange(N * 4, dtype=np.float64).reshape(N, 4), torch.float64, 1),
        (np.arange(N * 4, dtype=">f4").reshape(N, 4), torch.float32, 1),
        (np.arange(N * 4, dtype=np.float16).reshape(N, 4), torch.float32, 1),
        (np.arange(N * 4, dtype=np.int16).reshape(N, 4), torch.int64, 1),
    ],
)
def test_kinds_of_inputs(tmp_path, x, kind, factor):
    raw = load(tmp_path, arrays(x=x, x_test=x, y_test=np.arange(N) % 4))
    assert raw.train.x.dtype == kind
    assert raw.train.x.shape == x.shape
    torch.testing.assert_close((raw.test.x * factor).double(), torch.from_numpy(x.astype(float)))


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 2)])
def test_floating_targets_are_a_regression(tmp_path, shape):
    y = np.random.default_rng(1).normal(size=shape)
    raw = load(tmp_path, arrays(y=y), test_fraction=0.25)
    assert raw.num_classes is None
    assert raw.train.y.shape == (30, 1 if len(shape) == 1 else shape[1])
    both = torch.cat([raw.train.y, raw.test.y]).sort(0).values
    assert torch.equal(both, torch.from_numpy(y.reshape(N, -1)).sort(0).values)


@pytest.mark.parametrize("ids", [np.arange(N) // 10 * 7, np.array(list("dcba")).repeat(10)])
def test_clients_of_the_samples(tmp_path, ids):
    own = {"x_test": np.ones((2, 3), np.float32), "y_test": np.array([0, 1])}
    groups = load(tmp_path, arrays(clients=ids, **own)).groups
    assert groups.dtype == torch.int64
    expected = np.unique(ids, return_inverse=True)[1]  # the sorted ids, counted from 0
    assert groups.tolist() == expected.tolist()


def test_clients_follow_their_samples_when_some_are_held_out(tmp_path):
    ids = np.arange(N) // 10
    x = np.stack([ids, np.arange(N)], 1).astype(np.float32)
    raw = load(tmp_path, arrays(x=x, clients=ids), test_fraction=0.2)
    assert torch.equal(raw.groups, raw.train.x[:, 0].long())
    assert raw.test.x[:, 0].long().bincount().tolist() == [2, 2, 2, 2]


def test_no_client_loses_its_last_sample_to_the_test(tmp_path):
    raw = load(tmp_path, arrays(clients=np.arange(N) % 30), test_fraction=0.5)
    assert raw.groups.unique().tolist() == list(range(30))
    assert len(raw.test) == 10  # all but one of each: half of the samples would be too much


def test_images_can_be_augmented_and_nothing_else(tmp_path):
    images = np.zeros((N, 3, 8, 8), np.uint8)
    raw = load(tmp_path, arrays(x=images), crop_padding=1)
    assert raw.train.augmentation.fill == (0.0,)
    assert raw.test.augmentation is None
    with pytest.raises(DataError, match=r"mine.npz: samples of shape \(3,\) cannot be cropped"):
        load(tmp_path, arrays(), flip=True)


BAD = {
    "no_y": ({"y": None}, "there is no array 'y'; found x;"),
    "half_a_test": ({"x_test": np.ones((2, 3))}, "there is no array 'y_test'"),
    "lengths": ({"y": np.arange(3)}, r"x of shape \(40, 3\) and y of shape \(3,\)"),
    "flat_x": ({"x": np.ones(N)}, r"must be \[n, ...\] and \[n\]"),
    "nothing": ({"x": np.ones((0, 3)), "y": np.ones(0, int)}, "n >= 1"),
    "text": ({"x": np.array([["a"]] * N)}, "x is of type <U1; must be numbers"),
    "nan": ({"x": np.full((N, 3), np.nan)}, "x holds NaN or infinity"),
    "nan_target": ({"y": np.full(N, np.inf)}, "y holds NaN or infinity"),
    "negative": ({"y": np.arange(N) - 1}, "y holds the class -1; classes count from 0"),
    "one_hot": ({"y": np.eye(N, dtype=int)}, r"y of shape \(40, 40\) and type int64"),
    "bool": ({"y": np.arange(N) > 3}, "type bool is not allowed"),
    "clients": ({"clients": np.arange(3)}, r"clients of shape \(3,\)"),
    "client_kind": ({"clients": np.ones(N)}, "type float64 is not allowed"),
    "objects": ({"x": np.array([None] * N)}, "unreadable as an .npz file of plain arrays"),
    "test_shape": (
        {"x_test": np.ones((2, 4), np.float32), "y_test": np.arange(2)},
        r"a sample of x, y has shapes \(3,\)",
    ),
    "test_kind": (
        {"x_test": np.ones((2, 3), np.float32), "y_test": np.ones(2)},
        "must be the same",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_arrays(tmp_path, case):
    wrong, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, arrays(**wrong))
    assert "mine.npz: " in str(caught.value)


def npy():
    file = io.BytesIO()
    np.save(file, np.ones(3))
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"PK\3\4 broken", npy()])
def test_files_that_are_no_archive(tmp_path, content):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"unreadable as an \.npz file"):
        Npz(path=str(path)).load()


def test_damaged_and_missing_files(tmp_path):
    load(tmp_path, arrays())
    path = tmp_path / "mine.npz"
    content = bytearray(path.read_bytes())
    content[300] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"unreadable as an \.npz file"):
        Npz(path=str(path)).load()
    with pytest.raises(DataError, match=r"gone.npz: not found; data.path names an .npz file"):
        Npz(path=str(tmp_path / "gone.npz")).load()


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_hold_out_that_leaves_nothing(tmp_path, fraction):
    with pytest.raises(DataError, match="each needs at least one"):
        load(tmp_path, arrays(), test_fraction=fraction)
