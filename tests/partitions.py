"""What the tests of all partitions share."""

import numpy as np
import torch
from hypothesis import strategies as st

ALPHAS = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


def labels_of(n, classes, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, classes, n))


def sizes_of(clients):
    return [len(indices) for indices in clients]


def counts_of(clients, labels):
    """Return the label histograms, [N, classes]."""
    classes = int(labels.max()) + 1
    return torch.stack([labels[indices].bincount(minlength=classes) for indices in clients])


def distance_to_iid(clients, labels):
    """Return the mean total variation distance of the clients' labels to those of all."""
    counts = counts_of(clients, labels).double()
    pooled = counts.sum(0) / counts.sum()
    return float((counts / counts.sum(1, keepdim=True) - pooled).abs().sum(1).mean() / 2)


def assert_clients(clients, num_clients, n):
    """Check what every partition promises: so many clients, none empty, sorted indices below n."""
    assert len(clients) == num_clients
    for indices in clients:
        assert (indices.dtype, indices.device.type) == (torch.int64, "cpu")
        assert 0 <= indices[0] <= indices[-1] < n
        assert (indices.diff() > 0).all()  # sorted, none twice


def assert_disjoint(clients):
    assert sum(sizes_of(clients)) == len(torch.cat(clients).unique())


def assert_disjoint_cover(clients, n):
    assert torch.equal(torch.cat(clients).sort().values, torch.arange(n))


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@st.composite
def problems(draw):
    """Return labels, a number of clients that have a sample each, and a seed."""
    n = draw(st.integers(1, 300))
    clients = draw(st.integers(1, n))
    labels = labels_of(n, draw(st.integers(1, 20)), draw(st.integers(0, 5)))
    return labels, clients, draw(st.integers(0, 2**32))
