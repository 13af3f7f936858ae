"""Sparsifiers: fewer numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fltune.federation.compression.base import BITS_PER_FLOAT, Blockwise
from fltune.parameters import parameter


def largest(v: Tensor, k: int) -> Tensor:
    """Return the mask [..., n] of the k largest numbers of v [..., n], ties to the lowest index."""
    threshold = v.topk(k).values[..., -1:]
    above, tied = v > threshold, v == threshold
    room = k - above.sum(-1, keepdim=True)
    return above | (tied & (tied.cumsum(-1) <= room))


@dataclass(frozen=True)
class Sparsifier(Blockwise):
    """Keeps k numbers of a block: k itself, or by the ratio of compressed to full size.

    Raises:
        ValueError: both of ``k`` and ``ratio``.
    """

    k: int | None = parameter(None, "numbers kept of a block; null: by ratio", symbol="k", ge=1)
    ratio: float | None = parameter(
        None, "compressed over full size; 0.1 if k is null too", symbol="C_r", gt=0, le=1
    )

    words: ClassVar[int] = 1
    """32-bit words per number kept, for the ratio."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.ratio is not None:
            raise ValueError(f"k = {self.k} and ratio = {self.ratio} are both set; set one to null")

    def kept(self, n: int) -> int:
        """How many numbers are kept of a block of n."""
        if self.k is not None:
            return min(self.k, n)
        ratio = 0.1 if self.ratio is None else self.ratio
        return max(1, math.floor(ratio * n / self.words + 1e-9))  # 0.29 * 100 is below 29

    def block_bound(self, n: int) -> float:
        """1 - k / n: what is left out, at most."""
        return 1.0 - self.kept(n) / n


@dataclass(frozen=True)
class TopK(Sparsifier):
    """The k numbers of largest magnitude, ties to the lowest index.

    Papers: Stich, Cordonnier, Jaggi (2018); inside FedCOMGATE: Haddadpour et al. (2021), (8)-(9).
    Biased: |v - C(v)|^2 <= (1 - k/n) |v|^2. Use it with error feedback. Bits: k (32 + 32), a value
    and an index each, so that k = max(1, floor(C_r n / 2)); with ``packed`` indices 32 k +
    k ceil(log2 n).
    """

    packed: bool = parameter(False, "count ceil(log2 n) bits per index instead of 32")

    words: ClassVar[int] = 2

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the blocks with all but k numbers set to 0."""
        magnitude = torch.where(v.isnan(), math.inf, v.abs())  # a NaN shall be seen
        return torch.where(largest(magnitude, self.kept(v.shape[-1])), v, 0.0)

    def block_bits(self, n: int) -> float:
        """Values and indices."""
        index = (n - 1).bit_length() if self.packed else 32
        return float(self.kept(n) * (BITS_PER_FLOAT + index))


@dataclass(frozen=True)
class RandK(Sparsifier):
    """k numbers drawn uniformly without replacement.

    Paper: Stich, Cordonnier, Jaggi (2018). ``scaled`` by n/k it is unbiased, q = n/k - 1; unscaled
    it is biased, q = 1 - k/n, and meant for error feedback. The receiver draws the same indices
    from a seed: 32 k + 64 bits, so that k = max(1, floor(C_r n)).
    """

    scaled: bool = parameter(True, "times n/k, which makes it unbiased")

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the blocks with all but k numbers set to 0."""
        n = v.shape[-1]
        k = self.kept(n)
        factor = n / k if self.scaled else 1.0
        return torch.where(largest(uniforms, k), v * factor, 0.0)

    def draws(self, n: int) -> int:
        """One per number: the k largest win."""
        return n

    def block_bits(self, n: int) -> float:
        """Values and the seed of the indices."""
        return float(BITS_PER_FLOAT * self.kept(n) + 64)

    def block_bound(self, n: int) -> float:
        """Exactly q, which is the same for all vectors."""
        k = self.kept(n)
        return n / k - 1 if self.scaled else 1.0 - k / n
