"""The contract of a compressor.

A compressor maps vectors [C, d] to what the receiver decodes, and counts the bits of one message.
Its random numbers are uniforms in [0, 1) that depend on (seed, round, client) alone.

Its quality is q(v) = E |C(v) - v|^2 / |v|^2 (Haddadpour et al. 2021, Assumption 2): an unbiased
compressor may have any q, one with q < 1 is a contraction and needs error feedback if it is biased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fltune.errors import ConfigError
from fltune.parameters import Checked, parameter
from fltune.randomness import mix_keys, step_keys, uniform_rows

BITS_PER_FLOAT = 32


@dataclass(frozen=True, kw_only=True)
class Compressor(Checked):
    """No compression: 32 bits per number. Base of all compressors.

    A vector is cut into blocks (one, unless :class:`Blockwise`). Subclasses say what happens to a
    block: :meth:`encode`, :meth:`draws`, :meth:`block_bits`, :meth:`block_bound`.

    With ``error_feedback`` (Seide et al. 2014; Karimireddy et al. 2019) a client adds to its next
    message what compression took from the last ones: it sends C(m + v) and keeps m + v - C(m + v),
    so that all that was sent, plus m, is all that was to be sent. m is client state, d numbers per
    compressed vector, and changes only when the client takes part. It makes biased contractions
    converge (Stich et al. 2018); where q >= 1 the memory may grow without bound.
    """

    error_feedback: bool = parameter(False, "add to each message what earlier ones lost")
    sizes: tuple[int, ...] = field(default=(), repr=False)

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return what the receiver decodes of blocks v [..., n].

        Args:
            v: blocks of n numbers, each compressed on its own.
            uniforms: [..., draws(n)] in [0, 1).
        """
        return v

    def draws(self, n: int) -> int:
        """How many random numbers a block of n takes."""
        return 0

    def block_bits(self, n: int) -> float:
        """Bits of a block of n numbers."""
        return float(BITS_PER_FLOAT * n)

    def block_bound(self, n: int) -> float:
        """An upper bound on q(v) over all blocks of n numbers; infinity where none is known."""
        return 0.0 if type(self).encode is Compressor.encode else math.inf

    def bind(self, sizes: Sequence[int]) -> Compressor:
        """Return this compressor for a model whose tensors have these lengths, in order."""
        return replace(self, sizes=tuple(sizes))

    def blocks(self, dimension: int) -> list[tuple[int, int]]:
        """Return how a vector is cut, in order: (number of blocks, their length)."""
        return [(1, dimension)]

    def bits(self, dimension: int) -> float:
        """Return the bits of one message of a vector of this length."""
        return sum(count * self.block_bits(n) for count, n in self.blocks(dimension))

    def bound(self, dimension: int) -> float:
        """Return an upper bound on q(v) over all vectors of this length; infinity for none."""
        return max(self.block_bound(n) for _, n in self.blocks(dimension))

    def quality(self, v: Tensor, decoded: Tensor) -> Tensor:
        """Return the empirical q of some messages, to be compared with :meth:`bound`.

        sum |decoded - v|^2 / sum |v|^2 over all rows; 0 where all of v is 0. The mean over draws
        is at most the bound; a single draw may exceed it.

        Args:
            v: what was compressed [C, d], the memory of error feedback included.
            decoded: what the receiver decodes of it [C, d].
        """
        lost, total = (decoded - v).square().sum(), v.square().sum()
        return torch.where(total == 0, 0.0, lost / total)

    def uniforms(self, v: Tensor, keys: Tensor) -> Tensor:
        """Return the random numbers of a compression, a row for each of the int64 keys [C]."""
        count = sum(count * self.draws(n) for count, n in self.blocks(v.shape[1]))
        if count == 0:
            return v.new_empty(len(v), 0)
        return uniform_rows(mix_keys(step_keys(keys, -2)), count).to(v.dtype)

    def __call__(self, v: Tensor, keys: Tensor) -> Tensor:
        """Compress and decode vectors [C, d], with the randomness of the int64 keys [C].

        Raises:
            ConfigError: :meth:`encode` returned another shape.
        """
        if type(self) is Compressor:
            return v
        rows, blocks = len(v), self.blocks(v.shape[1])
        numbers = v.split([count * n for count, n in blocks], 1)
        draws = [count * self.draws(n) for count, n in blocks]
        decoded = []
        for (count, n), part, random in zip(
            blocks, numbers, self.uniforms(v, keys).split(draws, 1), strict=True
        ):
            random = random.reshape(rows, count, self.draws(n))
            v = part.reshape(rows, count, n)
            encoded = self.encode(v, random)
            if encoded.shape != v.shape:  # one of its own; another shape might broadcast
                raise ConfigError(
                    f"compression: {type(self).__name__}.encode must return what is decoded, "
                    f"{list(v.shape)} like its blocks; found {list(encoded.shape)}"
                )
            decoded.append(encoded.reshape(rows, -1))
        return decoded[0] if len(decoded) == 1 else torch.cat(decoded, 1)

    def with_memory(self, v: Tensor, memory: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return what error feedback sends of v [C, d], and the new memory [C, d]."""
        wanted = v + memory
        sent = self(wanted, keys)
        return sent, wanted - sent


@dataclass(frozen=True)
class Grid(Compressor):
    """Round to multiples of a step, half to even: deterministic, for tests."""

    step: float = parameter(0.25, "width of the grid", gt=0)

    def encode(self, v: Tensor, uniforms: Tensor) -> Tensor:
        """Return the nearest multiples."""
        return torch.round(v / self.step) * self.step

    def block_bound(self, n: int) -> float:
        """1: 0 is a multiple too, so that no number moves by more than itself."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Blockwise(Compressor):
    """A compressor of the whole vector, of each of the model's tensors, or of equal buckets.

    Raises:
        ValueError: granularity ``tensor`` and a vector that is not the model's.
    """

    granularity: str = parameter(
        "vector",
        "what is compressed on its own: the whole vector, each of the model's tensors, or buckets",
        choices=("vector", "tensor", "bucket"),
    )
    bucket: int = parameter(512, "numbers per bucket; the last may be shorter", ge=1)

    def blocks(self, dimension: int) -> list[tuple[int, int]]:
        """Return how a vector is cut."""
        if self.granularity == "bucket":
            full, rest = divmod(dimension, self.bucket)
            cut = [(full, self.bucket), (1, rest)]
            return [(count, n) for count, n in cut if count * n > 0]
        if self.granularity == "tensor" and self.sizes:
            if sum(self.sizes) != dimension:
                raise ValueError(
                    f"granularity tensor: the vector has {dimension} numbers, the model's tensors "
                    f"{sum(self.sizes)}"
                )
            return [(1, n) for n in self.sizes]
        return [(1, dimension)]
