"""One compressor of each kind, and vectors and keys to try them on."""

import pytest
import torch

from fltune.federation.compression import (
    QSGD,
    Affine,
    Compressor,
    Grid,
    NoisyAffine,
    RandK,
    TopK,
)
from fltune.randomness import client_keys

ALL = {
    "identity": Compressor(),
    "grid": Grid(0.25),
    "qsgd": QSGD(4),
    "qsgd_linf": QSGD(4, "linf"),
    "qsgd_bucket": QSGD(4, granularity="bucket", bucket=3),
    "affine": Affine(4),
    "affine_nearest": Affine(4, "nearest"),
    "noisy_affine": NoisyAffine(4, noise=2),
    "topk": TopK(2),
    "topk_tensor": TopK(1, granularity="tensor", sizes=(3, 4)),
    "randk": RandK(2),
    "randk_unscaled": RandK(2, scaled=False),
}
every = pytest.mark.parametrize("compressor", ALL.values(), ids=ALL)


def keys(count, seed=0, round=0):
    return client_keys(seed, round, torch.arange(count))


def normal(rows, d, seed=0):
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
