"""Random crops and flips of training images, the same ones under every execution strategy.

The usual augmentation of small images (He et al., "Deep Residual Learning for Image Recognition",
2016, section 4.2): pad with black, cut out a window of the old size, mirror half of the windows.
Only the local solver applies it, on the device, to a whole batch; models are judged on images as
they are.

    >>> images = torch.arange(18.0).view(1, 2, 1, 3, 3)  # one client, a batch of two
    >>> keys = torch.tensor([7])
    >>> Augmentation(crop_padding=1, flip=True)(images, keys).shape
    torch.Size([1, 2, 1, 3, 3])
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.randomness import derive_seed, mix, uniform

_PURPOSE = derive_seed(0, "augmentation")  # apart from dropout, which draws from the same key


@dataclass(frozen=True)
class Augmentation:
    """A random crop after padding, then a random horizontal flip.

    A sample's window is a hash of (key, position in the batch): it depends neither on the samples
    after it, such as padding, nor on who else is in the batch.

    Attributes:
        crop_padding: pixels of black added on each side before the crop; 0 crops nothing.
        flip: mirror each image with probability 1/2.
        fill: the value of black, per channel or one for all; not 0 where images are standardised.

    Raises:
        ValueError: a negative padding.
    """

    crop_padding: int = 0
    flip: bool = False
    fill: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise ValueError(f"crop_padding = {self.crop_padding} is not allowed; must be >= 0")

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether samples of this shape are images [C, H, W] with a value of black each."""
        return len(shape) == 3 and len(self.fill) in (1, shape[0])

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """Return the augmented batches.

        Args:
            x: ``[..., B, C, H, W]``, one batch of images for each key.
            key: int64 ``[...]``, the randomness of a client's local step
                (:func:`fltune.randomness.step_keys`).
        """
        height, width = x.shape[-2:]
        draws = uniform(mix(key ^ _PURPOSE), (x.shape[-4], 3)).unsqueeze(-1)  # [..., B, 3, 1]
        down, right, side = draws.unbind(-2)
        row = torch.arange(height, device=x.device) + self._shift(down)  # [..., B, H]
        column = torch.arange(width, device=x.device)
        if self.flip:
            column = torch.where(side < 0.5, column.flip(0), column)
        column = column + self._shift(right)  # [..., B, W]
        inside = _within(row, height).unsqueeze(-1) & _within(column, width).unsqueeze(-2)
        row, column = row.clamp(0, height - 1), column.clamp(0, width - 1)
        pixel = (row.unsqueeze(-1) * width + column.unsqueeze(-2)).flatten(-2).unsqueeze(-2)
        moved = x.flatten(-2).gather(-1, pixel.expand(*x.shape[:-2], -1)).view_as(x)
        black = _column(self.fill, x.dtype, x.device)
        return torch.where(inside.unsqueeze(-3), moved, black)

    def _shift(self, draw: Tensor) -> Tensor:
        """Return whole pixels in -p..p for numbers in [0, 1), all equally likely."""
        p = self.crop_padding
        return (draw * (2 * p + 1)).long().clamp(max=2 * p) - p  # a product may round up to 2p + 1


def _within(place: Tensor, size: int) -> Tensor:
    return (place >= 0) & (place < size)


@functools.lru_cache(maxsize=16)  # a copy to the device in every local step would wait for it
def _column(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)
