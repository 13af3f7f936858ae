import gzip
import shlex
import struct
import sys
import types

import pytest
import torch

from fltune.data.idx_images import EMNIST, MNIST, FashionMNIST
from fltune.errors import DataError

TRAIN, TEST = 30, 10


def idx(values):
    """Return a uint8 tensor as the bytes of an idx file."""
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + bytes(values.flatten().tolist())


def fake_arrays(name, n):
    generator = torch.Generator().manual_seed(n)
    images = torch.randint(0, 256, (n, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n, dtype=torch.uint8) % 10
    return {f"{name}-images-idx3-ubyte": images, f"{name}-labels-idx1-ubyte": labels}


ARRAYS = fake_arrays("train", TRAIN) | fake_arrays("t10k", TEST)


def write(root, name="MNIST", packed=False):
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for file, values in ARRAYS.items():
        content = gzip.compress(idx(values)) if packed else idx(values)
        (folder / (f"{file}.gz" if packed else file)).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
def test_idx_images(tmp_path, kind, packed):
    write(tmp_path, kind.__name__, packed)
    raw = kind(root=str(tmp_path)).load()
    assert raw.train.x.shape == (TRAIN, 1, 28, 28)
    assert raw.test.x.shape == (TEST, 1, 28, 28)
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    assert raw.train.y.tolist() == [i % 10 for i in range(TRAIN)]
    mean, std = {MNIST: (0.1307, 0.3081), FashionMNIST: (0.2860, 0.3530)}[kind]
    expected = (ARRAYS["t10k-images-idx3-ubyte"][:, None] / 255 - mean) / std
    torch.testing.assert_close(raw.test.x, expected)


def test_not_normalized_values_are_shares_of_255(tmp_path):
    write(tmp_path)
    raw = MNIST(root=str(tmp_path), normalize=False).load()
    torch.testing.assert_close(raw.train.x[:, 0], ARRAYS["train-images-idx3-ubyte"] / 255)


def test_limits_take_the_first_images(tmp_path):
    write(tmp_path)
    full = MNIST(root=str(tmp_path)).load()
    part = MNIST(root=str(tmp_path), limit=7, test_limit=3).load()
    assert torch.equal(part.train.x, full.train.x[:7])
    assert torch.equal(part.train.y, full.train.y[:7])
    assert torch.equal(part.test.x, full.test.x[:3])
    with pytest.raises(DataError, match="limit of 31 is not allowed; train has 30 images"):
        MNIST(root=str(tmp_path), limit=31).load()
    with pytest.raises(ValueError, match="test_limit = 0 is not allowed; must be >= 1"):
        MNIST(test_limit=0)


def test_missing_files_name_folder_and_command(tmp_path):
    root = tmp_path / "it's here"
    folder = write(root)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError) as caught:
        MNIST(root=str(root)).load()
    message = str(caught.value)
    assert f"t10k-labels-idx1-ubyte not found in {folder}" in message
    assert "train-images" not in message
    assert "--set data.download=true" in message
    command = next(line for line in message.splitlines() if line.startswith("    python"))
    program = shlex.split(command)
    assert program[:2] == ["python", "-c"]
    assert f"MNIST({str(root)!r}, download=True)" in program[2]
    compile(program[2], "command", "exec")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("keep", [0, 3, 15, 16, 500, -1])
def test_truncated_files_are_corrupt(tmp_path, packed, keep):
    folder = write(tmp_path, packed=packed)
    path = folder / ("train-images-idx3-ubyte" + ".gz" * packed)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="corrupt") as caught:
        MNIST(root=str(tmp_path)).load()
    assert str(path) in str(caught.value)
    assert "download=True" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", idx(torch.zeros(TRAIN, dtype=torch.uint8)), "3 dimensions"),
        ("train-images-idx3-ubyte", b"<html>404</html>" * 9, "not an idx file"),
        ("train-labels-idx1-ubyte", idx(torch.zeros(5, dtype=torch.uint8)), "and 5 labels"),
        ("train-labels-idx1-ubyte", idx(torch.full((TRAIN,), 10).byte()), "to 10;"),
        ("train-images-idx3-ubyte", idx(torch.zeros(TRAIN, 9, 9).byte()), r"\(30, 1, 9, 9\)"),
        ("train-labels-idx1-ubyte", idx(torch.zeros(0).byte()), "holds 0 values"),
        ("train-labels-idx1-ubyte", idx(torch.zeros(TRAIN).byte()) + b"x", "holds 31 values"),
    ],
)
def test_wrong_files_are_corrupt(tmp_path, name, content, message):
    (write(tmp_path) / name).write_bytes(content)
    with pytest.raises(DataError, match=f"corrupt.*{message}"):
        MNIST(root=str(tmp_path)).load()


def test_a_damaged_byte_in_a_packed_file_is_corrupt(tmp_path):
    path = write(tmp_path, packed=True) / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="corrupt"):
        MNIST(root=str(tmp_path)).load()


def fake_torchvision(monkeypatch, fetch):
    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(MNIST=fetch)
    monkeypatch.setitem(sys.modules, "torchvision", module)


def test_download_fetches_missing_files_only(tmp_path, monkeypatch):
    calls = []

    def fetch(root, download):
        calls.append((root, download))
        write(tmp_path)

    fake_torchvision(monkeypatch, fetch)
    dataset = MNIST(root=str(tmp_path), download=True)
    assert len(dataset.load().train) == TRAIN
    assert len(dataset.load().train) == TRAIN
    assert calls == [(str(tmp_path), True)]


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    def fetch(root, download):
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz")

    fake_torchvision(monkeypatch, fetch)
    with pytest.raises(DataError, match=r"could not fetch .*Error downloading") as caught:
        MNIST(root=str(tmp_path), download=True).load()
    assert str(tmp_path / "MNIST" / "raw") in str(caught.value)


def write_emnist(root, split, low, high):
    """Write the four files of one selection, with labels from low to high."""
    folder = root / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, n in (("train", TRAIN), ("test", TEST)):
        images, labels = fake_arrays(part, n).values()
        labels = torch.linspace(low, high, n).round().byte()
        (folder / f"emnist-{split}-{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


CLASSES = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


@pytest.mark.parametrize("split", CLASSES)
def test_emnist(tmp_path, split):
    first = 1 if split == "letters" else 0
    write_emnist(tmp_path, split, first, first + CLASSES[split] - 1)
    raw = EMNIST(root=str(tmp_path), split=split).load()
    assert raw.num_classes == CLASSES[split]
    assert raw.train.x.shape == (TRAIN, 1, 28, 28)
    assert raw.test.x.shape == (TEST, 1, 28, 28)
    for part in (raw.train, raw.test):
        assert (int(part.y.min()), int(part.y.max())) == (0, CLASSES[split] - 1)
    stored = fake_arrays("test", TEST)["test-images-idx3-ubyte"]
    expected = (stored.transpose(1, 2) / 255 - 0.1736) / 0.3317
    torch.testing.assert_close(raw.test.x[:, 0], expected)


def test_emnist_classes_are_those_of_torchvision():
    from torchvision import datasets

    theirs = {k: len(v) for k, v in datasets.EMNIST.classes_split_dict.items()}
    theirs["letters"] -= 1  # theirs has a class that never occurs, for the label 0
    assert theirs == CLASSES == EMNIST.CLASSES


def test_emnist_letters_count_from_one_in_the_files(tmp_path):
    write_emnist(tmp_path, "letters", 0, 25)
    with pytest.raises(DataError, match=r"labels from -1 to 24; must be .* in 0\.\.25"):
        EMNIST(root=str(tmp_path), split="letters").load()


def test_emnist_says_how_to_fetch_a_selection(tmp_path):
    folder = write_emnist(tmp_path, "digits", 0, 9)
    with pytest.raises(DataError) as caught:
        EMNIST(root=str(tmp_path), split="mnist").load()
    message = str(caught.value)
    assert f"emnist-mnist-test-labels-idx1-ubyte not found in {folder}" in message
    command = next(line for line in message.splitlines() if line.startswith("    python"))
    assert shlex.split(command)[2].endswith(
        f"EMNIST({str(tmp_path)!r}, split='mnist', download=True)"
    )
    with pytest.raises(ValueError, match="split = 'all' is not allowed; must be one of balanced"):
        EMNIST(split="all")


def test_augmented_only_where_asked_for(tmp_path):
    write(tmp_path)
    assert MNIST(root=str(tmp_path)).load().train.augmentation is None
    raw = MNIST(root=str(tmp_path), crop_padding=2).load()
    assert raw.train.augmentation.crop_padding == 2
    assert raw.train.augmentation.fill == pytest.approx((-0.1307 / 0.3081,))
    assert raw.test.augmentation is None
    with pytest.raises(ValueError, match="crop_padding = -1 is not allowed; must be >= 0"):
        MNIST(crop_padding=-1)
