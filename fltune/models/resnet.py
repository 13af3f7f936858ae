"""Residual networks for small images (He et al., 2016), normalised by groups.

The FedCDR experiments use the 20-layer one with GroupNorm, the FedSUM experiments an 18-layer one
whose details they do not give: here with the stem for 32x32 images, a 3x3 convolution of stride 1
and no max-pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from fltune.models.norm import GROUPS, Norm, image_channels, norm_layer

SHORTCUTS = ("padding", "projection")


class Padding(nn.Module):
    """He et al.'s option A: every ``stride``-th pixel, and zeros for the channels that are new."""

    def __init__(self, new: int, stride: int) -> None:
        super().__init__()
        self.new = new
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, C + new, ceil(H / stride), ceil(W / stride)] for [B, C, H, W]."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))


class Block(nn.Module):
    """Conv - norm - ReLU - conv - norm - add the shortcut - ReLU."""

    def __init__(
        self, before: int, after: int, stride: int, norm: Callable[[int], nn.Module], shortcut: str
    ) -> None:
        super().__init__()
        # a bias before a norm is undone by it
        bias = isinstance(norm(after), nn.Identity)
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=bias),
            norm(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=bias),
            norm(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if (before != after or stride != 1) and shortcut == "padding":
            self.shortcut = Padding(after - before, stride)
        elif before != after or stride != 1:
            projection = nn.Conv2d(before, after, 1, stride, bias=bias)
            self.shortcut = nn.Sequential(projection, norm(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, after, H / stride, W / stride] for [B, before, H, W]."""
        return F.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem - stages of blocks, the first block of all stages but the first of stride 2 - Linear."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        widths: Sequence[int],
        blocks: int,
        norm: Callable[[int], nn.Module],
        shortcut: str,
    ) -> None:
        super().__init__()
        channels = image_channels(input_shape, smallest=2 ** (len(widths) - 1))
        width = widths[0]
        bias = isinstance(norm(width), nn.Identity)
        layers = [nn.Conv2d(channels, width, 3, padding=1, bias=bias), norm(width), nn.ReLU()]
        for after in widths:
            for place in range(blocks):
                stride = 2 if place == 0 and after != widths[0] else 1
                layers.append(Block(width, after, stride, norm, shortcut))
                width = after
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for images [B, C, H, W]."""
        return self.head(self.layers(x).mean((2, 3)))


class ResNet20(ResNet):
    """20 layers: stages of 3 blocks with 16, 32, 64 channels; GroupNorm of 4, 8, 8 groups.

    269,722 parameters with padding, 272,474 with projection, for three channels and ten classes.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        shortcut: where the shape changes: ``padding`` has no parameters, ``projection`` is a 1x1
            convolution and a norm.

    Raises:
        ValueError: samples that are no images, or an unknown shortcut.
    """

    GROUPS: ClassVar[dict[int, int]] = {16: 4, 32: 8, 64: 8}

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        shortcut: Literal["padding", "projection"] = "padding",
    ) -> None:
        if shortcut not in SHORTCUTS:
            raise ValueError(f"shortcut = {shortcut!r}: must be one of {', '.join(SHORTCUTS)}")

        def norm(channels: int) -> nn.Module:
            return norm_layer("group", channels, self.GROUPS[channels])

        super().__init__(input_shape, num_classes, tuple(self.GROUPS), 3, norm, shortcut)


class ResNet18(ResNet):
    """18 layers: stages of 2 blocks with 64, 128, 256, 512 channels; projection shortcuts.

    11,173,962 parameters for three channels and ten classes, with either norm.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        norm: ``group``; ``batch``, which needs the run's ``batch_norm``; or ``none``, with biases
            in the convolutions instead.
        groups: of GroupNorm in every layer; must divide 64.

    Raises:
        ValueError: samples that are no images, an unknown norm, or groups that do not divide.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        norm: Norm = "group",
        groups: int = GROUPS,
    ) -> None:
        def layer(channels: int) -> nn.Module:
            return norm_layer(norm, channels, groups)

        widths = (64, 128, 256, 512)
        super().__init__(input_shape, num_classes, widths, 2, layer, "projection")
