"""The memory layout of images: on a CPU, convolutions are quicker with channels last.

Measured for two convolutions with max-pooling on 3x32x32 images in float32: a third less time for a
local step. Only sums are taken in another order. Nothing else is measured, so that other types and
devices keep their layout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def channels_last(x: Tensor) -> Tensor:
    """Return images [B, C, H, W] with the channels of a pixel side by side in memory."""
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]  # with one channel only the strides tell the layouts apart
    return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


@torch.no_grad()
def prefers_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Whether a network is quicker with channels last, and can take such samples x [n, ...]."""
    measured = x.dim() == 4 and x.dtype == torch.float32 and x.device.type == "cpu"
    if not measured or not any(isinstance(m, nn.Conv2d) for m in network.modules()):
        return False
    training = network.training
    network.eval()  # no running statistics move
    try:
        network(channels_last(x[:1]))
    except RuntimeError:  # a forward that calls view on what is no longer contiguous
        return False
    finally:
        network.train(training)
    return True
