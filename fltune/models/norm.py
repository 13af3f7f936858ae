"""Normalisation layers of convolutional networks, by name, and the images they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

Norm = Literal["group", "batch", "none"]
"""GroupNorm (Wu and He, 2018), BatchNorm (needs the run's ``batch_norm``), or nothing."""

GROUPS = 32
"""Groups of channels, as in Wu and He (2018); no paper of ours says how many it used."""


def norm_layer(norm: str, channels: int, groups: int = GROUPS) -> nn.Module:
    """Return a layer for samples [B, channels, H, W]; group and batch have 2 * channels parameters.

    Raises:
        ValueError: an unknown name, or channels that cannot be divided into so many groups.
    """
    if norm == "group":
        if groups < 1 or channels % groups:
            raise ValueError(f"groups = {groups}: must divide the {channels} channels of a layer")
        return nn.GroupNorm(groups, channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm != "none":
        raise ValueError(f"norm = {norm!r}: must be one of group, batch, none")
    return nn.Identity()


def image_channels(input_shape: Sequence[int], smallest: int) -> int:
    """Return the channels of images [C, H, W] that are large enough for a network.

    Raises:
        ValueError: samples that are no images, or smaller than ``smallest`` a side.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"found samples of shape {list(input_shape)}; must be images [channels, height, width] "
            f"of at least {smallest} x {smallest}"
        )
    return input_shape[0]
