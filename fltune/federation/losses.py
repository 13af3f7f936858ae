"""Per-sample losses, by name: (output [B, ...], target [B, ...]) -> [B].

Means over batches are taken by the local solver, which knows what is padding.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fltune.registry import Registry

LOSSES = Registry(
    "loss",
    {
        "cross_entropy": "fltune.federation.losses:cross_entropy",
        "squared_error": "fltune.federation.losses:squared_error",
    },
)


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Return -log softmax(output)[target]: logits [B, classes], int64 targets [B]."""
    return F.cross_entropy(output, target, reduction="none")


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Return half the squared distance, summed over all but the first dimension."""
    return 0.5 * (output - target).square().flatten(1).sum(1)
