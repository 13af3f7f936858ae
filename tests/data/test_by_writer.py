import sys

import numpy as np
import pytest
import torch

from fltune.data.by_writer import EMNISTByWriter
from fltune.data.dataset import federate
from fltune.data.natural import Natural
from fltune.errors import ConfigError, DataError
from fltune.experiment import Experiment

h5py = pytest.importorskip("h5py")
WRITERS = {"f0001_41": [3, 1, 4], "f0000_14": [1, 5], "f0002_07": [9, 2, 6, 5]}


def write(path, writers, shape=(28, 28)):
    """Write what TensorFlow Federated's archive holds; every pixel is its writer's own number."""
    with h5py.File(path, "w") as file:
        for place, (writer, labels) in enumerate(writers.items()):
            group = file.create_group(f"examples/{writer}")
            pixels = np.full((len(labels), *shape), place / 4, dtype=np.float32)
            group.create_dataset("pixels", data=pixels)
            group.create_dataset("label", data=np.array(labels, dtype=np.int32))


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "FederatedEMNIST"
    folder.mkdir()
    for name in ("fed_emnist_digitsonly", "fed_emnist"):
        write(folder / f"{name}_train.h5", WRITERS)
        write(folder / f"{name}_test.h5", {"f0000_14": [7], "f0001_41": [8]})
    return tmp_path


def test_images_come_writer_by_writer_in_the_order_of_their_ids(root):
    raw = EMNISTByWriter(root=str(root)).load()
    assert raw.num_classes == 10
    assert raw.groups.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert raw.train.y.tolist() == [1, 5, 3, 1, 4, 9, 2, 6, 5]
    assert raw.train.x.shape == (9, 1, 28, 28)
    assert raw.train.x.dtype == torch.float32
    assert raw.train.x[:, 0, 0, 0].tolist() == [0.25] * 2 + [0.0] * 3 + [0.5] * 4  # as delivered
    assert raw.test.y.tolist() == [7, 8]


def test_letters_make_62_classes(root):
    assert EMNISTByWriter(root=str(root), digits_only=False).load().num_classes == 62


def test_the_clients_are_the_writers_unless_another_partition_is_named(root):
    data = {"name": "emnist_by_writer", "root": str(root), "clients": 2}
    section = Experiment.parse({"data": data}).data
    assert section.partition.component_name == "natural"
    dealt = federate(EMNISTByWriter(root=str(root)), Natural(), 3, val_fraction=0.3, seed=0)
    for client in range(3):
        assert len(dealt.train.x[dealt.client(client)].unique()) == 1  # of one writer


def test_what_is_missing_is_named_with_where_it_comes_from(tmp_path):
    with pytest.raises(DataError) as caught:
        EMNISTByWriter(root=str(tmp_path)).load()
    text = str(caught.value)
    assert "fed_emnist_digitsonly_train.h5 and fed_emnist_digitsonly_test.h5 not found" in text
    assert "tff-datasets-public/fed_emnist_digitsonly.tar.bz2; unpack it there" in text
    with pytest.raises(DataError, match=r"tff-datasets-public/fed_emnist\.tar\.bz2"):
        EMNISTByWriter(root=str(tmp_path), digits_only=False).load()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b"no such thing"), "signature"),
        (lambda path: write(path, {}), "examples"),
        (lambda path: write(path, {"a": [1, 2]}, shape=(14, 14)), r"images of shape \(2, 14, 14\)"),
        (lambda path: write(path, {"a": [1, 10]}), r"labels .*10.*, not in 0\.\.9"),
    ],
    ids=["bytes", "empty", "shape", "labels"],
)
def test_a_damaged_file_is_named(root, damage, message):
    path = root / "FederatedEMNIST" / "fed_emnist_digitsonly_train.h5"
    path.unlink()
    damage(path)
    with pytest.raises(DataError, match=rf"digitsonly_train\.h5: unreadable.*{message}"):
        EMNISTByWriter(root=str(root)).load()


def test_without_its_package_the_extra_is_named(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"emnist_by_writer needs .*fltune\[hdf5\]"):
        EMNISTByWriter(root=str(root)).load()
