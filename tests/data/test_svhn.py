import hashlib
import sys
import types

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fltune.data.svhn import SVHN
from fltune.errors import DataError

TRAIN, TEST = 7, 5
MEAN, STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)


def images(n):
    """uint8 [32, 32, 3, n], as in the files."""
    return np.random.default_rng(n).integers(0, 256, (32, 32, 3, n), np.uint8)


def write(root, **train):
    labels = {n: (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None] for n in (TRAIN, TEST)}
    labels[TEST][0] = 10
    savemat(root / "train_32x32.mat", {"X": images(TRAIN), "y": labels[TRAIN], **train})
    packed = {"X": images(TEST), "y": labels[TEST]}
    savemat(root / "test_32x32.mat", packed, do_compression=True)


def test_svhn(tmp_path):
    write(tmp_path)
    raw = SVHN(root=str(tmp_path), verify=False).load()
    assert raw.train.x.shape == (TRAIN, 3, 32, 32)
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    assert raw.train.y.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert raw.test.y.tolist() == [0, 2, 3, 4, 5]  # a zero is labelled 10 in the file
    assert raw.num_classes == 10
    row, column, channel, sample = 3, 30, 1, 2
    value = images(TEST)[row, column, channel, sample] / 255
    expected = torch.tensor((value - MEAN[channel]) / STD[channel], dtype=torch.float32)
    torch.testing.assert_close(raw.test.x[sample, channel, row, column], expected)


def test_not_normalized_and_limited(tmp_path):
    write(tmp_path)
    raw = SVHN(root=str(tmp_path), verify=False, normalize=False, limit=3).load()
    expected = torch.from_numpy(images(TRAIN)[..., :3]).permute(3, 2, 0, 1) / 255
    torch.testing.assert_close(raw.train.x, expected)


def test_missing_files_name_folder_and_command(tmp_path):
    with pytest.raises(DataError) as caught:
        SVHN(root=str(tmp_path)).load()
    message = str(caught.value)
    assert f"train_32x32.mat, test_32x32.mat not found in {tmp_path}" in message
    assert message.count("download=True") == 2  # one call of torchvision for each split
    assert "split=" in message


def test_download_fetches_both_splits(tmp_path, monkeypatch):
    calls = []

    def fetch(root, split, download):
        calls.append(split)
        write(tmp_path)

    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(SVHN=fetch)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    SVHN(root=str(tmp_path), download=True, verify=False).load()
    assert calls == ["train", "test"]


def test_verify(tmp_path, monkeypatch):
    assert set(SVHN().files) <= set(SVHN().checksums())
    write(tmp_path)
    with pytest.raises(DataError, match=r"train_32x32.mat: its md5 sum .* is not the original's"):
        SVHN(root=str(tmp_path)).load()
    sums = {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in tmp_path.iterdir()}
    monkeypatch.setattr(SVHN, "checksums", lambda self: sums)
    assert len(SVHN(root=str(tmp_path)).load().train) == TRAIN


@pytest.mark.parametrize("keep", [0, 50, 300, -1000])
def test_truncated_files_are_corrupt(tmp_path, keep):
    write(tmp_path)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="corrupt or unreadable") as caught:
        SVHN(root=str(tmp_path), verify=False).load()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"X": images(TRAIN)[:, :, 0]}, "must be uint8"),
        ({"X": images(TRAIN) / 255}, "images of type float64"),
        ({"X": images(TRAIN)[:9]}, r"shape \(7, 3, 9, 32\)"),
        ({"y": np.full((TRAIN, 1), 11, np.uint8)}, "to 11"),
        ({"y": np.full((3, 1), 1, np.uint8)}, "and 3 labels"),
        ({"y": [[{"a": 1}]] * TRAIN}, "corrupt"),
    ],
)
def test_wrong_files_are_corrupt(tmp_path, train, message):
    write(tmp_path, **train)
    with pytest.raises(DataError, match=message):
        SVHN(root=str(tmp_path), verify=False).load()
