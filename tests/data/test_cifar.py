"""CIFAR-10 and CIFAR-100 in their own pickle files, as Python 2 and as Python 3 write them."""

import hashlib
import os
import pickle
import struct
import sys
import types

import numpy as np
import pytest
import torch

from fltune.data.cifar import CIFAR10, CIFAR100
from fltune.errors import DataError

N = 4  # images in each file
MEAN, STD = (0.4914, 0.4824, 0.4467), (0.2471, 0.2435, 0.2616)
BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def pixels(seed):
    return np.random.default_rng(seed).integers(0, 256, (N, 3072), np.uint8)


def short(text):
    return b"U" + bytes([len(text)]) + text.encode()


def whole(number):
    return b"J" + struct.pack("<i", number)


def python2(content):
    """The bytes that Python 2 and its numpy write, protocol 2: those of the original files."""
    out = b"\x80\x02}("
    for key, value in content.items():
        out += short(key)
        if isinstance(value, list):
            out += b"](" + b"".join(map(whole, value)) + b"e"
            continue
        raw = value.tobytes()
        out += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + whole(0) + b"\x85"
        out += short("b") + b"\x87R(" + whole(1) + b"".join(map(whole, value.shape)) + b"\x86"
        out += b"cnumpy\ndtype\n" + short("u1") + whole(0) + whole(1) + b"\x87R("
        out += whole(3) + short("|") + b"NNN" + whole(-1) + whole(-1) + whole(0) + b"tb"
        out += b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    return out + b"u."


WRITERS = {
    "python2": python2,
    "protocol2": lambda content: pickle.dumps(content, 2),
    "protocol5": lambda content: pickle.dumps(content, 5),
    "numpy_numbers": lambda content: pickle.dumps(
        {k: list(np.asarray(v)) if isinstance(v, list) else v for k, v in content.items()}
    ),
}


def write10(root, writer=python2):
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for k, name in enumerate(BATCHES):
        labels = [(k + i) % 10 for i in range(N)]
        (folder / name).write_bytes(writer({"data": pixels(k), "labels": labels}))
    return folder


def write100(root):
    folder = root / "cifar-100-python"
    folder.mkdir()
    for k, name in enumerate(("train", "test")):
        labels = {"fine_labels": [0, 99, 50, k], "coarse_labels": [19, 0, k, 7]}
        (folder / name).write_bytes(python2({"data": pixels(k), **labels}))
    return folder


@pytest.mark.parametrize("writer", WRITERS)
def test_cifar10(tmp_path, writer):
    write10(tmp_path, WRITERS[writer])
    raw = CIFAR10(root=str(tmp_path), verify=False).load()
    assert raw.train.x.shape == (5 * N, 3, 32, 32)
    assert raw.test.x.shape == (N, 3, 32, 32)
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    assert raw.num_classes == 10
    assert raw.train.y.tolist() == [(k + i) % 10 for k in range(5) for i in range(N)]
    assert raw.test.y.tolist() == [5, 6, 7, 8]
    images = torch.from_numpy(pixels(5)).view(N, 3, 32, 32) / 255
    for channel in range(3):
        expected = (images[:, channel] - MEAN[channel]) / STD[channel]
        torch.testing.assert_close(raw.test.x[:, channel], expected)


def test_not_normalized_and_limited(tmp_path):
    write10(tmp_path)
    kind = {"root": str(tmp_path), "verify": False, "normalize": False}
    raw = CIFAR10(**kind, limit=N + 1, test_limit=2).load()
    expected = torch.from_numpy(np.concatenate([pixels(0), pixels(1)[:1]])).view(-1, 3, 32, 32)
    torch.testing.assert_close(raw.train.x, expected / 255)
    assert len(raw.test) == 2
    with pytest.raises(DataError, match="a limit of 99 is not allowed; train has 20 images"):
        CIFAR10(**kind, limit=99).load()


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100(tmp_path, labels, classes):
    write100(tmp_path)
    raw = CIFAR100(root=str(tmp_path), labels=labels, verify=False).load()
    assert raw.num_classes == classes
    expected = {"fine": [0, 99, 50, 0], "coarse": [19, 0, 0, 7]}[labels]
    assert raw.train.y.tolist() == expected
    assert raw.train.x.shape == (N, 3, 32, 32)
    images = torch.from_numpy(pixels(1)).view(N, 3, 32, 32) / 255
    torch.testing.assert_close(raw.test.x[:, 0], (images[:, 0] - MEAN[0]) / STD[0])


def test_unknown_labels_are_an_error():
    with pytest.raises(ValueError, match="labels = 'rough' is not allowed; must be one of fine"):
        CIFAR100(labels="rough")


def test_a_missing_file_names_folder_and_command(tmp_path):
    folder = write10(tmp_path)
    (folder / "data_batch_3").unlink()
    with pytest.raises(DataError) as caught:
        CIFAR10(root=str(tmp_path)).load()
    message = str(caught.value)
    assert f"CIFAR10: data_batch_3 not found in {folder}." in message
    assert "from torchvision.datasets import CIFAR10; CIFAR10(" in message
    assert "--set data.download=true" in message


@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100])
def test_torchvision_knows_the_checksum_of_every_file(kind):
    known = kind().checksums()
    assert set(kind().files) <= set(known)
    assert all(len(md5) == 32 for md5 in known.values())


def fake_torchvision(monkeypatch, folder):
    """A torchvision that takes the files of a folder for the originals."""
    sums = [[p.name, hashlib.md5(p.read_bytes()).hexdigest()] for p in sorted(folder.iterdir())]
    known = types.SimpleNamespace(train_list=sums[:-1], test_list=sums[-1:])
    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(CIFAR10=known)
    monkeypatch.setitem(sys.modules, "torchvision", module)


def test_verify_lets_the_originals_in_and_nothing_else(tmp_path, monkeypatch):
    folder = write10(tmp_path)
    fake_torchvision(monkeypatch, folder)
    dataset = CIFAR10(root=str(tmp_path))
    assert dataset.verify
    assert len(dataset.load().train) == 5 * N
    path = folder / "test_batch"
    path.write_bytes(python2({"data": pixels(9), "labels": [0] * N}))
    with pytest.raises(DataError, match=r"(?s)its md5 sum .* is not the original's") as caught:
        dataset.load()
    assert str(path) in str(caught.value)
    assert "--set data.verify=false" in str(caught.value)
    assert CIFAR10(root=str(tmp_path), verify=False).load().test.y.tolist() == [0] * N


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("place", ["data", "labels", "aside"])
def test_a_pickle_that_runs_code_is_refused(tmp_path, place):
    folder = write10(tmp_path)
    content = {"data": pixels(0), "labels": [0] * N}
    content[place] = Evil(tmp_path / "harm")
    (folder / "data_batch_2").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"data_batch_2: corrupt.*asks for .*mkdir"):
        CIFAR10(root=str(tmp_path), verify=False).load()
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("keep", [0, 1, 30, 1000, -1])
def test_truncated_files_are_corrupt(tmp_path, keep):
    path = write10(tmp_path) / "data_batch_1"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="corrupt or unreadable") as caught:
        CIFAR10(root=str(tmp_path), verify=False).load()
    assert str(path) in str(caught.value)
    assert "download=True" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>404</html>", "corrupt or unreadable"),
        (pickle.dumps([1, 2]), "corrupt or unreadable"),
        (python2({"data": pixels(0)}), "'labels'"),
        (python2({"data": pixels(0)[:, :99], "labels": [0] * N}), "cannot reshape"),
        (pickle.dumps({"data": pixels(0) * 1.0, "labels": [0] * N}), "images of type float64"),
        (python2({"data": pixels(0), "labels": [0] * 3}), "and 19 labels"),
        (python2({"data": pixels(0), "labels": [10] * N}), r"to 10; must be .* labels in 0\.\.9"),
        (python2({"data": pixels(0), "labels": [-1] * N}), "labels from -1"),
    ],
)
def test_wrong_files_are_corrupt(tmp_path, content, message):
    (write10(tmp_path) / "data_batch_5").write_bytes(content)
    with pytest.raises(DataError, match=f"corrupt.*({message})"):
        CIFAR10(root=str(tmp_path), verify=False).load()


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    def fetch(root, download):
        raise OSError("no network")

    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(CIFAR10=fetch)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    with pytest.raises(DataError, match=r"(?s)could not fetch .*no network.*data_batch_1, "):
        CIFAR10(root=str(tmp_path), download=True).load()


def test_padding_of_crops_is_black(tmp_path):
    write10(tmp_path)
    kind = {"root": str(tmp_path), "verify": False, "crop_padding": 4, "flip": True}
    augmentation = CIFAR10(**kind).load().train.augmentation
    assert (augmentation.crop_padding, augmentation.flip) == (4, True)
    black = (torch.zeros(3) - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(torch.tensor(augmentation.fill), black)
    assert CIFAR10(**kind, normalize=False).load().train.augmentation.fill == (0.0,)
    assert CIFAR10(**kind).load().test.augmentation is None
