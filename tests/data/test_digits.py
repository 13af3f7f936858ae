import pytest
import torch

from fltune.data.digits import Digits


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
