import json

import numpy as np
import pytest
import torch
from partitions import labels_of, same

from fltune.data.dataset import federate
from fltune.data.digits import Digits
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.dirichlet_client import DirichletClientLognormal
from fltune.data.federated import FederatedData, Split
from fltune.data.from_file import FromFile
from fltune.data.natural import Natural
from fltune.data.partition_file import checksum, read_owners, read_partition, write_partition
from fltune.data.synthetic import Synthetic
from fltune.errors import DataError


def saved(path, partition, dataset=None, clients=30):
    data = federate(dataset or Digits(), partition, clients, val_fraction=0.1, seed=3)
    write_partition(path, data, {"data": {"name": "digits", "val_fraction": 0.1}, "seed": 3})
    return data


@pytest.mark.parametrize(
    ("partition", "dataset"),
    [
        (DirichletClass(0.1), Digits()),
        (DirichletClientLognormal(0.1, allocation="reuse"), Digits()),
        (Natural(), Synthetic(num_clients=30)),
    ],
    ids=["disjoint", "overlapping", "natural"],
)
def test_a_saved_partition_comes_back_whole(tmp_path, partition, dataset):
    path = tmp_path / "part.json"
    data = saved(path, partition, dataset)
    again = federate(dataset, FromFile(str(path)), 30, val_fraction=0.1, seed=99)
    for name in ("order", "sizes"):
        assert torch.equal(getattr(again, name), getattr(data, name))
    assert torch.equal(again.train.x, data.train.x)
    assert torch.equal(again.val.x, data.val.x)
    assert again.report() == data.report()
    assert read_partition(path).made_by["seed"] == 3
    twice = tmp_path / "again.json"
    write_partition(twice, again, read_partition(path).made_by)
    assert twice.read_text() == path.read_text()


@pytest.mark.parametrize(
    ("partition", "dataset"),
    [(DirichletClass(0.1), Digits()), (Natural(), Synthetic(num_clients=30))],
    ids=["digits", "natural"],
)
def test_a_partition_saved_where_clients_validate_comes_back_with_what_they_hold_out(
    tmp_path, partition, dataset
):
    path = tmp_path / "part.json"
    given = {"val_fraction": 0.1, "seed": 3, "val_from": "clients"}
    data = federate(dataset, partition, 30, **given)
    write_partition(path, data, {"data": {"val_from": "clients"}, "seed": 3})
    again = federate(dataset, FromFile(str(path)), 30, **{**given, "seed": 99})
    for name in ("order", "sizes", "val_owner"):
        assert torch.equal(getattr(again, name), getattr(data, name))
    assert torch.equal(again.val.x, data.val.x)
    assert again.report() == data.report()
    less = federate(dataset, FromFile(str(path)), 30, **given, val_clients=4)
    twice = tmp_path / "again.json"
    write_partition(twice, less, read_partition(path).made_by)  # a panel leaves nobody out
    assert twice.read_text() == path.read_text()
    with pytest.raises(DataError, match=r"made for \d+ training samples \(val_from clients\)"):
        federate(dataset, FromFile(str(path)), 30, val_fraction=0.1, seed=3)


@pytest.mark.parametrize(
    ("dataset", "given"),
    [
        (Digits(), {}),
        (Digits(), {"resplit": (0.8, 0.1, 0.1), "val_from": "test"}),
        (Synthetic(num_clients=60), {}),
    ],
    ids=["pool", "test", "clients of its own"],
)
def test_a_partition_saved_by_a_file_of_ones_own_comes_back_without_it(tmp_path, dataset, given):
    n = len(dataset.load().train) if not given else round(0.9 * 1797)
    mine, path = tmp_path / "mine.npy", tmp_path / "part.json"
    np.save(mine, np.arange(n) % 7 - 1)  # every seventh is unused, one of the six takes no part
    data = federate(dataset, FromFile(str(mine)), 5, val_fraction=0.1, seed=3, **given)
    write_partition(path, data, {"data": {}, "seed": 3})
    mine.unlink()
    again = federate(dataset, FromFile(str(path)), 5, val_fraction=0.1, seed=99, **given)
    assert torch.equal(again.order, data.order)
    assert torch.equal(again.val.x, data.val.x)
    assert (again.val_owner is None) == (data.val_owner is None) == bool(given)
    assert again.report() == data.report()
    write_partition(tmp_path / "again.json", again, {"data": {}, "seed": 3})
    assert (tmp_path / "again.json").read_text() == path.read_text()
    edited(path, named=[0, 1])
    with pytest.raises(DataError, match=rf"names clients of 2 .*; the data set has {n}"):
        federate(dataset, FromFile(str(path)), 5, val_fraction=0.1, seed=3, **given)


@pytest.mark.parametrize("change", [{"val_fraction": 0.2}, {"split_seed": 1}])
def test_other_training_samples_are_refused(tmp_path, change):
    path = tmp_path / "part.json"
    saved(path, DirichletClass(0.1))
    with pytest.raises(DataError, match=r"made for 1293 .* \(name digits, val_fraction 0.1\)"):
        federate(Digits(), FromFile(str(path)), 30, **{"val_fraction": 0.1, "seed": 3, **change})


def test_another_number_of_clients_is_refused(tmp_path):
    path = tmp_path / "part.json"
    saved(path, DirichletClass(0.1))
    with pytest.raises(DataError, match="holds 30 clients, 20 are asked for; set data"):
        federate(Digits(), FromFile(str(path)), 20, val_fraction=0.1, seed=3)


def test_the_checksum_is_of_the_values_alone():
    labels = np.arange(5)
    assert checksum(labels) == checksum(labels.astype(np.int32)) != checksum(labels[::-1])
    assert checksum(np.ones((2, 1), np.float32)) == checksum(np.ones((2, 1)))


def edited(path, **changes):
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "x"}, "no saved partition; make one with"),
        ({"version": 2}, "version 2 of the format is not known"),
        ({"clients": None}, "KeyError: 'clients'"),
        ({"clients": [["a"]]}, "corrupt"),
        ({"notes": 3}, "corrupt"),
    ],
)
def test_damaged_files(tmp_path, changes, message):
    path = tmp_path / "part.json"
    saved(path, DirichletClass(0.1))
    edited(path, **changes)
    with pytest.raises(DataError, match=message):
        read_partition(path)


def test_files_that_are_no_json_or_not_there(tmp_path):
    path = tmp_path / "part.json"
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_partition(path)
    path.write_text("{")
    with pytest.raises(DataError, match="corrupt: Expecting"):
        read_partition(path)
    data = federate(Digits(), DirichletClass(), 5, val_fraction=0.1, seed=0)
    with pytest.raises(DataError, match=r"saved as JSON; name the file \*.json"):
        write_partition(tmp_path / "part.txt", data, {})
    with pytest.raises(DataError, match="cannot be written"):
        write_partition(tmp_path / "missing" / "part.json", data, {})


def test_a_saved_client_may_not_name_a_sample_twice(tmp_path):
    path = tmp_path / "part.json"
    saved(path, DirichletClientLognormal(0.1, allocation="reuse"), clients=2)
    edited(path, clients=[[0, 0], [0, 1]])
    with pytest.raises(DataError, match="1 training samples are held more than once"):
        federate(Digits(), FromFile(str(path)), 2, val_fraction=0.1, seed=3)


def test_a_csv_of_names_or_numbers(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("sample,client\n4,bob\n0,ann\n1,bob\n")
    assert read_owners(path, 6).tolist() == [0, 1, -1, -1, 1, -1]
    path.write_text("client, sample, why\n12, 4, x\n3, 0, y\n-1, 1, z\n")
    assert read_owners(path, 5).tolist() == [3, -1, -1, -1, 12]


def test_an_npy_of_owners(tmp_path):
    path = tmp_path / "mine.npy"
    np.save(path, np.array([2, 2, -1, 0], np.int32))
    assert read_owners(path, 4).tolist() == [2, 2, -1, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a,b\n1,2\n", r"the header is \['a', 'b'\]; it needs the columns sample and client"),
        ("", "the header is None"),
        ("sample,client\n0,a\n5,a\n", "line 3: sample '5' is not allowed; .* samples 0..4"),
        ("sample,client\nx,a\n", "line 2: sample 'x' is not allowed"),
        ("sample,client\n0,a\n0,b\n", "line 3: sample 0 is there twice"),
        ("sample,client\n0,\n", "line 2: sample 0 has no client"),
    ],
)
def test_wrong_csv(tmp_path, lines, message):
    path = tmp_path / "mine.csv"
    path.write_text(lines)
    with pytest.raises(DataError, match=message):
        read_owners(path, 5)


def test_wrong_npy(tmp_path):
    path = tmp_path / "mine.npy"
    np.save(path, np.zeros(4, np.int64))
    with pytest.raises(DataError, match=r"ids of shape \(4,\); the data set has 5 training"):
        read_owners(path, 5)
    np.save(path, np.zeros(5))
    with pytest.raises(DataError, match="holds float64 values"):
        read_owners(path, 5)
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"mine.npy: "):
        read_owners(path, 5)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_owners(tmp_path / "missing.npy", 5)


def test_a_users_own_ids_count_the_samples_before_any_is_held_out(tmp_path):
    path = tmp_path / "mine.npy"
    owner = np.arange(1437) % 7
    owner[:100] = -1
    np.save(path, owner)
    data = federate(Digits(), FromFile(str(path)), 7, val_fraction=0.1, seed=0)
    original = Digits().load().train
    row_of = {tuple(x.tolist()): i for i, x in enumerate(original.x)}  # digits are distinct
    for i in range(7):
        rows = [row_of[tuple(x.tolist())] for x in data.train.x[data.client(i)]]
        assert all(owner[row] == i for row in rows)
    # 191 each, a tenth of the 1337 held out, 19 of each and one more; a hundred are nobody's
    assert data.sizes.sort().values.tolist() == [171] + [172] * 6
    assert (len(data.val), data.report()["unused_samples"]) == (134, 100)


def test_without_a_hold_out_the_file_is_read_as_it_is(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("sample,client\n" + "".join(f"{i},{i % 3}\n" for i in range(9)))
    labels = labels_of(9, 2)
    assert same(FromFile(str(path))(labels, 3, 0), [torch.arange(i, 9, 3) for i in range(3)])


def test_the_ending_is_checked():
    with pytest.raises(ValueError, match=r"path = 'x.txt' is not allowed; must end in .json, .csv"):
        FromFile("x.txt")


def test_a_regression_can_be_saved_too(tmp_path):
    path = tmp_path / "part.json"
    split = Split(torch.zeros(3, 1), torch.tensor([[0.5], [1.5], [2.5]]))
    clients = [torch.tensor([0]), torch.tensor([1, 2])]
    write_partition(path, FederatedData.from_clients(split, split, split, clients, None), {})
    assert same(FromFile(str(path))(split.y, 2, 0), clients)
    with pytest.raises(DataError, match="made for 3 training samples"):
        FromFile(str(path))(split.y + 1, 2, 0)
