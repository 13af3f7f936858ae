import gzip
import shlex
import struct
import subprocess
import sys
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data import DATASETS
from fltune.data.datasets import MNIST, Digits, FashionMNIST, RawData, federate, split_validation
from fltune.data.federated import Split
from fltune.data.partition import DirichletClass, Iid
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


@pytest.fixture(scope="module")
def digits():
    return Digits().load()


def test_digits(digits):
    train, test = digits.train, digits.test
    assert (len(train), len(test), digits.num_classes) == (1437, 360, 10)
    assert train.x.shape == (1437, 64)
    assert (train.x.dtype, train.y.dtype) == (torch.float32, torch.int64)
    values = torch.cat([train.x, test.x])
    assert (values.min(), values.max()) == (0.0, 1.0)
    everywhere = torch.cat([train.y, test.y]).bincount() * 360 / 1797
    assert (test.y.bincount() - everywhere).abs().max() < 1


def test_digits_train_and_test_are_a_fixed_disjoint_cover(digits):
    from sklearn.datasets import load_digits

    original = torch.from_numpy(load_digits().data)
    parts = torch.cat([digits.train.x, digits.test.x])
    restored = (parts * 16).round().double()
    # All 1,797 digits are distinct images, so equal sets mean no overlap and nothing lost.
    assert len(original.unique(dim=0)) == 1797
    assert torch.equal(restored.unique(dim=0), original.unique(dim=0))
    torch.manual_seed(99)
    assert torch.equal(Digits().load().test.x, digits.test.x)


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
        ("train-labels-idx1-ubyte", idx(torch.full((TRAIN,), 10).byte()), "up to 10"),
        ("train-images-idx3-ubyte", idx(torch.zeros(TRAIN, 9, 9).byte()), r"\(30, 9, 9\)"),
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


def raw_data(labels):
    y = torch.tensor(labels)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return RawData(Split(x, y), Split(x[:1], y[:1]), num_classes=int(y.max()) + 1)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=200), st.floats(0.01, 0.99), st.data())
def test_validation_is_stratified_and_disjoint(labels, fraction, data):
    count = round(fraction * len(labels))
    raw = raw_data(labels)
    if not 0 < count < len(labels):
        with pytest.raises(DataError, match="each needs at least one"):
            split_validation(raw, fraction, 0)
        return
    train, val = split_validation(raw, fraction, data.draw(st.integers(0, 1000)))
    assert len(val) == count
    assert torch.equal(torch.cat([train.x, val.x]).sort(0).values, raw.train.x)
    for part in (train, val):
        assert torch.equal(part.y, raw.train.y[part.x[:, 0].long()])
    quota = raw.train.y.bincount() * count / len(labels)
    assert (val.y.bincount(minlength=len(quota)) - quota).abs().max() < 1


def test_validation_depends_on_its_seed_alone():
    raw = raw_data([0, 1] * 50)
    torch.manual_seed(1)
    first = split_validation(raw, 0.2, seed=5)[1].x
    torch.manual_seed(2)
    assert torch.equal(first, split_validation(raw, 0.2, seed=5)[1].x)
    assert not torch.equal(first, split_validation(raw, 0.2, seed=6)[1].x)


def test_validation_of_a_regression():
    x = torch.arange(10.0)[:, None]
    raw = RawData(Split(x, x * 2), Split(x, x), num_classes=None)
    train, val = split_validation(raw, 0.3, 0)
    assert (len(train), len(val)) == (7, 3)
    assert torch.equal(val.y, val.x * 2)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_validation_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match=r"must be in \(0, 1\)"):
        split_validation(raw_data([0, 1]), fraction, 0)


def test_federate(digits):
    data = federate(Digits(), DirichletClass(0.1), 50, val_fraction=0.1, seed=0)
    assert data.num_clients == 50
    assert (len(data.train), len(data.val), len(data.test)) == (1293, 144, 360)
    assert len(data.order) == 1293
    assert torch.equal(data.test.x, digits.test.x)
    other = federate(Digits(), DirichletClass(0.1), 50, val_fraction=0.1, seed=1)
    assert not torch.equal(other.order, data.order)
    assert torch.equal(other.val.x, data.val.x)  # another partition, the same validation samples
    resplit = federate(Digits(), Iid(), 50, val_fraction=0.1, seed=0, split_seed=1)
    assert not torch.equal(resplit.val.x, data.val.x)


def test_federate_more_clients_than_samples_is_an_error():
    with pytest.raises(DataError, match="2000 clients cannot share 1293 samples"):
        federate(Digits(), Iid(), 2000, val_fraction=0.1, seed=0)


def test_registered_names():
    loaded = {name: DATASETS.load(name) for name in DATASETS}
    assert loaded == {"digits": Digits, "mnist": MNIST, "fashion_mnist": FashionMNIST}


def test_listing_names_imports_nothing_and_loading_only_what_rounds_may_have():
    program = (
        "import sys; from fltune.data import DATASETS, PARTITIONS; list(DATASETS)\n"
        "assert 'torch' not in sys.modules\n"
        "DATASETS.load('digits'); PARTITIONS.load('iid')\n"
        "heavy = {'ray', 'optuna', 'mlflow', 'pydantic', 'sklearn', 'torchvision'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
