"""Compression of what clients send: one mechanism for any method's uplink.

A compressor maps vectors [C, d] to what the receiver decodes, and counts the bits of one message.
Its random numbers are uniforms in [0, 1) that depend on (seed, round, client) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.parameters import Checked, parameter
from fltune.randomness import mix, step_keys, uniform
from fltune.registry import Registry

COMPRESSORS = Registry(
    "compressor",
    {
        "identity": "fltune.federation.compression:Compressor",
        "grid": "fltune.federation.compression:Grid",
    },
)

BITS_PER_FLOAT = 32


@dataclass(frozen=True)
class Compressor(Checked):
    """No compression: 32 bits per number. Base of all compressors.

    Subclasses implement :meth:`encode` and :meth:`bits`.
    """

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return what the receiver decodes, [C, d], for vectors v [C, d].

        Args:
            v: one vector per client.
            uniforms: [C, d] in [0, 1), for stochastic rounding.
        """
        return v

    def bits(self, dimension: int) -> float:
        """Return the bits of one message of a vector of this length."""
        return BITS_PER_FLOAT * dimension

    def uniforms(self, v: Tensor, keys: Tensor) -> Tensor:
        """Return the random numbers of a compression, [C, d], from one int64 key per client."""
        rows = [uniform(mix(key), (v.shape[1],)) for key in step_keys(keys, -2).unbind()]
        return torch.stack(rows).to(v.dtype) if rows else torch.empty_like(v)

    def __call__(self, v: Tensor, keys: Tensor, sizes: Sequence[int] = ()) -> Tensor:
        """Compress and decode vectors [C, d]; ``sizes`` are the lengths of the model's tensors."""
        return self.encode(v, self.uniforms(v, keys))


@dataclass(frozen=True)
class Grid(Compressor):
    """Round to multiples of a step, half to even: deterministic, for tests."""

    step: float = parameter(0.25, "width of the grid", gt=0)

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the nearest multiples."""
        return torch.round(v / self.step) * self.step
