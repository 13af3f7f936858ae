"""Dropout whose mask is a function of a key, so that every execution strategy draws the same.

``nn.Dropout`` takes the next numbers of a global generator: a loop over clients and a stack of
clients then train different models. Here the mask is a hash of (seed, round, client, step, layer,
position).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fltune.randomness import kept, mix

WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """Zero each element with probability p and scale the rest by 1 / (1 - p), in training only.

    Args:
        p: probability in [0, 1).
        layer: the layer's number in its network; two layers never share a mask.
        channels: drop whole channels of samples [B, C, ...], as ``nn.Dropout2d`` does.

    Attributes:
        key: int64 scalar buffer. The local solver puts the key of (seed, round, client, step) here
            through ``torch.func.functional_call``.
    """

    key: Tensor

    def __init__(self, p: float, layer: int, channels: bool = False) -> None:
        super().__init__()
        self.p = p
        self.layer = layer
        self.channels = channels
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with dropped elements; a row's mask does not depend on the rows after it."""
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if self.channels else tuple(x.shape)
        keep = kept(mix(self.key + self.layer), shape, self.p)
        return x * (keep.to(x.dtype) / (1.0 - self.p))


def check_probability(name: str, p: float) -> None:
    """Refuse what is no probability of dropout.

    Raises:
        ValueError: it lies outside [0, 1).
    """
    if not 0.0 <= p < 1.0:
        raise ValueError(f"{name} = {p}: must be in [0, 1)")


def key_dropout(network: nn.Module) -> list[str]:
    """Replace every ``nn.Dropout`` (1d, 2d, 3d) of a network by :class:`KeyedDropout`, in place.

    Returns:
        the names of the key buffers, for ``functional_call``.
    """
    found = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, _DropoutNd) and type(child) in (nn.Dropout, *WHOLE_CHANNELS)
    ]
    for layer, (parent, name, child) in enumerate(found):
        setattr(parent, name, KeyedDropout(child.p, layer, type(child) in WHOLE_CHANNELS))
    return [
        f"{name}.key" if name else "key"
        for name, module in network.named_modules()
        if isinstance(module, KeyedDropout)
    ]
