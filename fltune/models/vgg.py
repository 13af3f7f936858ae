"""VGG networks for small images (Simonyan and Zisserman, 2015), with one linear layer on top.

The FedGM experiments name a VGG without its depth: here configurations A (11 layers) and D (16),
with the three dense layers for large images replaced by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from fltune.models.norm import GROUPS, Norm, image_channels, norm_layer


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each followed by a max-pool - Linear 512 - C.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        norm: after every convolution: ``group``; ``batch``, which needs the run's ``batch_norm``;
            or ``none``.
        groups: of GroupNorm in every layer; must divide 64.

    Raises:
        ValueError: samples that are no images of at least 32x32, an unknown norm, or groups that
            do not divide.
    """

    STAGES: ClassVar[tuple[tuple[int, ...], ...]]

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        norm: Norm = "group",
        groups: int = GROUPS,
    ) -> None:
        super().__init__()
        width = image_channels(input_shape, smallest=32)
        layers: list[nn.Module] = []
        for stage in self.STAGES:
            for after in stage:
                layers += [nn.Conv2d(width, after, 3, padding=1), norm_layer(norm, after, groups)]
                layers.append(nn.ReLU())
                width = after
            layers.append(nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for images [B, C, H, W]."""
        return self.head(self.layers(x).mean((2, 3)))


class VGG11(VGG):
    """VGG with 8 convolutions: 9,225,610 parameters, 9,231,114 with a norm, for ten classes."""

    STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG16(VGG):
    """VGG with 13 convolutions: 14,719,818 parameters, 14,728,266 with a norm, for ten classes."""

    STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
