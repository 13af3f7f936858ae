"""A look at a network that leaves no trace in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def leaves(network: nn.Module) -> list[nn.Module]:
    """Return the modules of a network that are made of no others."""
    return [m for m in network.modules() if not any(True for _ in m.children())]


@torch.no_grad()
def forward_one(network: nn.Module, x: Tensor) -> Any:
    """Return the output for the first of samples x [n, ...]; no running statistics move."""
    training = network.training
    network.eval()
    try:
        return network(x[:1])
    finally:
        network.train(training)
