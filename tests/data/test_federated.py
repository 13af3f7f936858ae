import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.data.dirichlet_class import DirichletClass
from fltune.data.federated import FederatedData, Split
from fltune.errors import DataError


def split(labels):
    y = torch.tensor(labels)
    return Split(torch.arange(len(y) * 2.0).view(-1, 2), y)


def regression(n):
    return Split(torch.zeros(n, 3), torch.zeros(n, 1))


@pytest.fixture
def data():
    train = split([0, 0, 1, 2, 2, 2, 1])
    clients = [torch.tensor([5, 0]), torch.tensor([2]), torch.tensor([1, 3, 4])]
    return FederatedData.from_clients(train, split([0]), split([1, 2]), clients, 3)


def test_clients_are_slices_of_order(data):
    assert data.order.tolist() == [0, 5, 2, 1, 3, 4]
    assert data.sizes.tolist() == [2, 1, 3]
    assert data.offsets.tolist() == [0, 2, 3]
    assert [data.client(i).tolist() for i in range(3)] == [[0, 5], [2], [1, 3, 4]]
    assert data.num_clients == 3
    assert data.input_shape == (2,)
    assert data.offsets is data.offsets


@pytest.mark.parametrize("i", [-1, 3])
def test_an_unknown_client_is_an_error(data, i):
    with pytest.raises(IndexError, match=rf"client {i} is not in 0\.\.2"):
        data.client(i)


def test_histograms(data):
    assert data.histograms().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 2]]


def test_report_by_hand(data):
    # pooled (2, 1, 3)/6; distances: (1/2,0,1/2) 1/6, (0,1,0) 5/6, (1/3,0,2/3) 1/6
    report = data.report()
    assert report.pop("label_distance_mean") == pytest.approx(7 / 18)
    assert report.pop("classes_per_client_mean") == pytest.approx(5 / 3)
    assert report == {
        "clients": 3,
        "train_samples": 6,
        "unused_samples": 1,
        "shared_samples": 0,
        "partition_notes": [],
        "val_samples": 1,
        "test_samples": 2,
        "size_min": 1,
        "size_median": 2.0,
        "size_mean": 2.0,
        "size_max": 3,
        "classes": 3,
    }
    assert json.loads(json.dumps(data.report())) == data.report()


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 100))
def test_round_trip_of_any_partition(num_clients, classes, seed):
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, classes, 200))
    train = Split(torch.zeros(200, 1), labels)
    clients = DirichletClass(0.2)(labels, num_clients, seed)
    data = FederatedData.from_clients(train, train, train, clients, classes)
    for i, indices in enumerate(clients):
        assert torch.equal(data.client(i), indices)
        expected = labels[indices].bincount(minlength=classes)
        assert torch.equal(data.histograms()[i], expected)


def test_regression_has_no_classes():
    clients = [torch.tensor([0]), torch.tensor([1, 2])]
    data = FederatedData.from_clients(regression(3), regression(1), regression(1), clients, None)
    assert data.report()["size_max"] == 2
    assert "classes" not in data.report()
    with pytest.raises(DataError, match="no classes"):
        data.histograms()


def test_dtype_is_for_floating_tensors_only(data):
    moved = data.to("meta", torch.float64)
    assert (moved.train.x.dtype, moved.train.y.dtype) == (torch.float64, torch.int64)
    tensors = [s for split in (moved.train, moved.val, moved.test) for s in (split.x, split.y)]
    assert {t.device.type for t in tensors} == {"meta"}
    holders = [moved.order, moved.sizes, moved.offsets]  # cohorts are drawn on the host
    assert {(t.device.type, t.dtype) for t in holders} == {("cpu", torch.int64)}
    assert data.train.x.dtype == torch.float32
    assert regression(2).to("cpu", torch.float64).y.dtype == torch.float64


def test_pickles(data):
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy.order, data.order)
    assert copy.client(2).tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "there is no client"),
        ([[0], []], r"1 of 2 clients hold no sample \(the first is client 1\)"),
        ([[0], [3]], r"reach from 0 to 3; 3 training samples allow 0\.\.2"),
        ([[-1], [2]], "reach from -1 to 2"),
        ([[0, 1], [2, 1]], r"1 training samples are held more than once .*sample 1"),
        ([[1, 1]], "held more than once"),
        ([[0.0]], "client 0: indices of shape .* must be 1-D torch.int64"),
        ([[[0]]], "must be 1-D"),
    ],
)
def test_wrong_clients(clients, message):
    tensors = [torch.tensor(c, dtype=None if c else torch.int64) for c in clients]
    with pytest.raises(DataError, match=message):
        FederatedData.from_clients(split([0, 1, 1]), split([0]), split([0]), tensors, 2)


@pytest.mark.parametrize(
    ("val", "num_classes", "message"),
    [
        (split([2]), 2, r"validation labels reach from 2 to 2; 2 classes allow 0\.\.1"),
        (split([-1]), 2, "validation labels reach from -1"),
        (split([0]), None, "train targets are torch.int64, but num_classes = None"),
        (Split(torch.zeros(1, 3), torch.tensor([0])), 2, r"validation samples have shape \(3,\)"),
        (Split(torch.zeros(1, 2), torch.zeros(1, 1)), 2, "validation targets are torch.float32"),
    ],
)
def test_wrong_splits(val, num_classes, message):
    with pytest.raises(DataError, match=message):
        FederatedData.from_clients(
            split([0, 1]), val, split([0]), [torch.tensor([0, 1])], num_classes
        )


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 1), torch.zeros(3, dtype=torch.int64), "same number of samples"),
        (torch.tensor(1.0), torch.tensor(1), "same number of samples"),
        (torch.zeros(2, 1), torch.zeros(2, dtype=torch.bool), "type torch.bool is not allowed"),
        (torch.zeros(2, 1), torch.zeros(2), "must be"),
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64), "must be"),
    ],
)
def test_wrong_split(x, y, message):
    with pytest.raises(DataError, match=message):
        Split(x, y)


def test_holdings_are_plain_lists_of_sizes_and_histograms():
    x, y = torch.zeros(6, 2), torch.tensor([0, 1, 1, 0, 1, 1])
    train, other = Split(x, y), Split(x[:2], y[:2])
    clients = [torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5])]
    data = FederatedData.from_clients(train, other, other, clients, num_classes=2)
    assert data.holdings() == {"client_sizes": [2, 4], "label_histograms": [[1, 1], [1, 3]]}


def test_overlapping_clients_are_counted_once_and_allowed_only_if_said():
    train = split([0, 0, 1, 1, 1])
    clients = [torch.tensor([0, 2]), torch.tensor([2, 3, 0]), torch.tensor([2])]
    with pytest.raises(DataError, match=r"2 training samples .* first is sample 0.*be disjoint"):
        FederatedData.from_clients(train, split([0]), split([1]), clients, 2)
    data = FederatedData.from_clients(
        train, split([0]), split([1]), clients, 2, overlapping=True, notes=("a note",)
    )
    assert data.uses.tolist() == [2, 0, 3, 1, 0]
    assert data.histograms().tolist() == [[1, 1], [1, 2], [0, 1]]
    report = data.report()
    counted = ("train_samples", "unused_samples", "shared_samples", "size_mean", "partition_notes")
    assert [report[key] for key in counted] == [3, 2, 2, 2.0, ["a note"]]
    # pooled (2, 4)/6; distances: (1/2, 1/2) 1/6, (1/3, 2/3) 0, (0, 1) 1/3
    assert report["label_distance_mean"] == pytest.approx(1 / 6)
    assert data.to("cpu", torch.float64).notes == ("a note",)


def test_an_overlapping_client_holds_a_sample_once():
    clients = [torch.tensor([0, 1]), torch.tensor([2, 1, 2])]
    with pytest.raises(DataError, match=r"1 training samples .* sample 2.*hold a sample once"):
        FederatedData.from_clients(
            split([0, 1, 1]), split([0]), split([0]), clients, 2, overlapping=True
        )


def test_every_validation_sample_has_one_owner_or_none_has():
    clients = [torch.tensor([0, 1])]
    with pytest.raises(DataError, match=r"val_owner of shape \(3,\) .* each of 2 validation"):
        FederatedData.from_clients(
            split([0, 1]), split([0, 1]), split([0]), clients, 2, val_owner=torch.zeros(3)
        )


def test_what_clients_hold_out_is_not_unused():
    train = split([0, 1, 1, 0, 1])
    data = FederatedData.from_clients(
        train,
        split([1, 0]),
        split([0]),
        [torch.tensor([0]), torch.tensor([2])],
        2,
        val_owner=torch.tensor([0, 1]),
        held_out=(torch.tensor([1]), torch.tensor([3])),
    )
    report = data.report()
    assert (report["train_samples"], report["unused_samples"], report["val_clients"]) == (2, 1, 2)
