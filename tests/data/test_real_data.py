"""The real MNIST and CIFAR-10, where they lie beside the checkout."""

import gzip

import pytest
import torch

from fltune.data.cifar import CIFAR10
from fltune.data.idx_images import MNIST
from fltune.errors import DataError


def test_mnist(real_data_root):
    raw = MNIST(root=str(real_data_root)).load()
    assert raw.train.x.shape == (60_000, 1, 28, 28)
    assert raw.test.x.shape == (10_000, 1, 28, 28)
    assert raw.train.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert raw.train.y.bincount().min() == 5421  # the fives
    assert raw.train.x.mean().abs() < 1e-3
    assert (raw.train.x.std() - 1).abs() < 1e-3
    plain = MNIST(root=str(real_data_root), normalize=False, test_limit=1).load().train.x
    assert plain.mean() == pytest.approx(0.1307, abs=5e-5)
    assert plain.std() == pytest.approx(0.3081, abs=5e-5)


def test_mnist_is_the_one_that_torchvision_reads(real_data_root):
    from torchvision import datasets

    theirs = datasets.MNIST(str(real_data_root), train=False)
    ours = MNIST(root=str(real_data_root), normalize=False, limit=1).load().test
    assert torch.equal((ours.x[:, 0] * 255).round().byte(), theirs.data)
    assert torch.equal(ours.y, theirs.targets)


def test_packed_mnist_is_the_same(prepare, real_data_root, tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for path in (prepare.HERE / "MNIST" / "raw").glob("*.gz"):
        (folder / path.name).symlink_to(path)
        assert gzip.decompress(path.read_bytes())[:2] == b"\0\0"
    packed = MNIST(root=str(tmp_path), limit=100).load()
    unpacked = MNIST(root=str(real_data_root), limit=100).load()
    assert torch.equal(packed.train.x, unpacked.train.x)
    assert torch.equal(packed.test.y, unpacked.test.y)


def test_cifar10_out_of_jpeg_is_refused_unless_it_is_asked_for(real_cifar_root):
    root = str(real_cifar_root)
    with pytest.raises(DataError, match=r"(?s)data_batch_1: its md5 sum .* data\.verify=false"):
        CIFAR10(root=root).load()
    raw = CIFAR10(root=root, verify=False).load()
    assert raw.train.x.shape == (50_000, 3, 32, 32)
    assert raw.test.x.shape == (10_000, 3, 32, 32)
    assert raw.train.y.bincount().tolist() == [5000] * 10
    assert raw.test.y.bincount().tolist() == [1000] * 10
    # the papers' constants are CIFAR-10's own; JPEG moves them little
    assert raw.train.x.mean((0, 2, 3)).abs().max() < 0.02
    assert (raw.train.x.std((0, 2, 3)) - 1).abs().max() < 0.03
