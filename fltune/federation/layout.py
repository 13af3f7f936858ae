"""The memory layout of images: on a CPU, convolutions have favourites.

The quickest is ``blocked``, that of oneDNN, the library behind torch's convolutions. Not only they
keep it, but max-pooling and the dense layers too, so that nothing is laid out anew in between. It
took 0.70 of the time of channels last for a local step of two convolutions with max-pooling and
three dense layers (32 images 3x32x32), 0.60 and 0.78 for two networks on images 1x28x28, 0.97 for
four wider convolutions; one convolution on 8x8 pixels loses 0.2 ms a step, and is stacked anyway.
Its max-pooling and its ReLU turn NaN into numbers. Local steps bear that, because the parameters of
a network that diverges become NaN all the same; evaluation would not, and is done without it.

Next comes channels last, for many more layers: a third less time than the usual layout. In all of
them only sums are taken in another order. Only float32 on CPUs is measured, so that other types and
devices keep their layout.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fltune.federation.chain import has_hooks
from fltune.federation.glance import forward_one, leaves
from fltune.federation.precision import FULL

BLOCKED_LAYERS = (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Linear, nn.Flatten, nn.Identity)
"""Layers whose numbers are the same in the blocked layout; what lies between them is tried out."""

Arrange = Callable[[Tensor], Tensor]


def as_given(x: Tensor) -> Tensor:
    """Return samples as they are."""
    return x


def channels_last(x: Tensor) -> Tensor:
    """Return images [B, C, H, W] with the channels of a pixel side by side in memory."""
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    height, width = x.shape[2:]  # with one channel only the strides tell the layouts apart
    return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def blocked(x: Tensor) -> Tensor:
    """Return images in oneDNN's own layout; so is what a network makes of them."""
    return x.to_mkldnn()


def choose_layout(network: nn.Module, x: Tensor, precision: str) -> Arrange:
    """Return what brings samples x [n, ...] into the layout in which a network trains quickest.

    Args:
        network: in training mode.
        x: at least one sample.
        precision: of its arithmetic (:mod:`fltune.federation.precision`).
    """
    if precision == FULL and takes_blocked(network, x):
        return blocked
    return channels_last if prefers_channels_last(network, x) else as_given


def _measured(network: nn.Module, x: Tensor) -> bool:
    kind = x.dim() == 4 and x.dtype == torch.float32 and x.device.type == "cpu"
    return kind and any(isinstance(m, nn.Conv2d) for m in network.modules())


@torch.enable_grad()
def takes_blocked(network: nn.Module, x: Tensor) -> bool:
    """Whether a network can be trained on samples x [n, ...] in the blocked layout.

    Its layers must be known; what its forward does with them is tried out, and raises where the
    layout lacks it. No number has a say, so that a resumed run chooses as it did before.
    """
    if not _measured(network, x) or not torch.backends.mkldnn.is_available():
        return False
    known = all(type(module) in BLOCKED_LAYERS for module in leaves(network))
    if not known or any(map(has_hooks, network.modules())):
        return False
    parameters = [p for p in network.parameters() if p.requires_grad]
    try:
        torch.autograd.grad(network(blocked(x[:1])).to_dense().sum(), parameters)
    except RuntimeError:
        return False
    return True


def prefers_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Whether a network is quicker with channels last, and can take such samples x [n, ...]."""
    if not _measured(network, x):
        return False
    try:
        forward_one(network, channels_last(x[:1]))
    except RuntimeError:  # a forward that calls view on what is no longer contiguous
        return False
    return True
