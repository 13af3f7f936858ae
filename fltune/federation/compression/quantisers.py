"""Quantisers: fewer bits per number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.federation.compression.base import BITS_PER_FLOAT, Blockwise
from fltune.parameters import parameter


@dataclass(frozen=True)
class QSGD(Blockwise):
    """Stochastic rounding to s levels of the block's norm: unbiased.

    Paper: Alistarh, Grubic, Li, Tomioka, Vojnovic (2017), Section 3.1.

        r_j = s |v_j| / |v|;   level_j = floor(r_j) + [u_j < r_j - floor(r_j)]
        Q_j = |v| sign(v_j) level_j / s

    The variance is (|v| / s)^2 sum_j p_j (1 - p_j), p_j = r_j - floor(r_j). For the 2-norm
    q <= min(n / s^2, sqrt(n) / s) with n numbers per block (Lemma 3.1); for the maximum norm
    q <= min(n / (4 s^2), sqrt(n) / s). Bits, fixed length: 32 + n (1 + ceil(log2(s + 1))).
    """

    levels: int = parameter(
        127, "levels besides 0; 127 makes 8 bits per number, with the sign", symbol="s", ge=1
    )
    norm: str = parameter("l2", "the norm that scales a block", choices=("l2", "linf"))

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the rounded blocks."""
        order = 2.0 if self.norm == "l2" else math.inf
        norm = torch.linalg.vector_norm(v, order, dim=-1, keepdim=True)
        r = self.levels * v.abs() / torch.where(norm > 0, norm, 1.0)
        low = r.floor()
        level = low + (uniforms < r - low)
        return norm * v.sign() * level / self.levels

    def draws(self, n: int) -> int:
        """One per number."""
        return n

    def block_bits(self, n: int) -> float:
        """The norm, and a sign and a level per number."""
        return float(BITS_PER_FLOAT + n * (1 + self.levels.bit_length()))

    def block_bound(self, n: int) -> float:
        """The bound above."""
        quarter = 1 if self.norm == "l2" else 4
        return min(n / (quarter * self.levels**2), math.sqrt(n) / self.levels)


@dataclass(frozen=True)
class Affine(Blockwise):
    """Codes of b bits on equal steps between the block's minimum and maximum.

    Paper: Haddadpour, Kamani, Mokhtari, Mahdavi (2021), Section 6; Jacob et al. (2018) for the map.

        scale = (max - min) / (2^b - 1);   code_j = floor((v_j - min) / scale + u_j)
        Q_j = min + scale code_j

    ``stochastic`` draws u_j and is unbiased; ``nearest`` has u_j = 1/2 and is not (the authors'
    program). The default is unbiased, as the paper's theory needs. A constant block is sent as it
    is. Errors are at most ``scale`` per number, q <= n / (2 (2^b - 1)^2). Bits: 64 + b n.
    """

    width: int = parameter(8, "bits per number", symbol="b", ge=1, le=16)
    rounding: str = parameter(
        "stochastic", "stochastic is unbiased, nearest is not", choices=("stochastic", "nearest")
    )

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the rounded blocks."""
        n = v.shape[-1]
        low, high = v.amin(-1, keepdim=True), v.amax(-1, keepdim=True)
        scale = (high - low) / self._last
        u = uniforms[..., :n] if self.rounding == "stochastic" else 0.5
        code = ((v - low) / torch.where(scale > 0, scale, 1.0) + u).floor().clamp(0, self._last)
        code = code + self.shift(uniforms)
        return torch.where(scale > 0, low + scale * code, v)

    @property
    def _last(self) -> int:
        return 2**self.width - 1

    def shift(self, uniforms: Tensor) -> Tensor | float:
        """Return what is added to all codes of a block."""
        return 0.0

    def draws(self, n: int) -> int:
        """One per number, none for ``nearest``."""
        return n if self.rounding == "stochastic" else 0

    def block_bits(self, n: int) -> float:
        """The minimum, the scale and the codes."""
        return float(2 * BITS_PER_FLOAT + self.width * n)

    def block_bound(self, n: int) -> float:
        """From a variance of at most n scale^2 / 4, and (max - min)^2 <= 2 |v|^2."""
        return n / (2 * self._last**2)


@dataclass(frozen=True)
class NoisyAffine(Affine):
    """Affine codes with an integer from -R..R added to the zero-point, one draw per block.

    Paper: Haddadpour et al. (2021), Figure 9, which names neither R nor the bits. All numbers of a
    block move by scale times the draw: still unbiased, with n scale^2 R (R + 1) / 3 more variance,
    at the same bits. A knob for q: q <= (1/2 + 2 R (R + 1) / 3) n / (2^b - 1)^2.
    """

    noise: int = parameter(1, "range of the integer; 0 is affine", symbol="R", ge=0)

    def shift(self, uniforms: Tensor) -> Tensor:
        """Return the integer of each block."""
        return (uniforms[..., -1:] * (2 * self.noise + 1)).floor() - self.noise

    def draws(self, n: int) -> int:
        """One more, the last, for the zero-point."""
        return super().draws(n) + 1

    def block_bound(self, n: int) -> float:
        """The bound above."""
        more = 2 * self.noise * (self.noise + 1) / 3
        return super().block_bound(n) + more * n / self._last**2
