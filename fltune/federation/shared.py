"""Tensors in memory that several processes see.

The memory is an anonymous file of the kernel's (``memfd``, Linux only): it has no name, so nothing
is left of it when the last process ends, however it ends; and no mount limits its size.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes; what torch's own allocations have."""

Layout = dict[str, tuple[int, tuple[int, ...], torch.dtype]]
"""By name: where a tensor begins in bytes, its shape, its type."""


def lay_out(tensors: Mapping[str, Tensor]) -> tuple[Layout, int]:
    """Return where tensors like these lie one after another, and the bytes that they take."""
    layout: Layout = {}
    end = 0
    for name, value in tensors.items():
        layout[name] = (end, tuple(value.shape), value.dtype)
        end += -(value.nbytes // -ALIGNMENT) * ALIGNMENT
    return layout, end


class SharedMemory:
    """Memory that grows; every process that has the file maps it for itself.

    Args:
        file: descriptor of memory that another process made; None for new memory.

    Attributes:
        file: the descriptor, to be passed on to a process that is started.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("fltune") if file is None else file
        self._map: mmap.mmap | None = None

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes; what was written stays."""
        if size > os.fstat(self.file).st_size:
            os.ftruncate(self.file, -(size // -mmap.PAGESIZE) * mmap.PAGESIZE)

    def store(self, data: bytes) -> None:
        """Write bytes, from the beginning."""
        self.reserve(len(data))
        with mmap.mmap(self.file, len(data)) as whole:
            whole[:] = data

    def stored(self) -> bytes:
        """Return all bytes, zeros behind those that were stored."""
        with mmap.mmap(self.file, 0) as whole:
            return whole[:]

    def tensors(self, layout: Layout) -> dict[str, Tensor]:
        """Return the tensors of a layout, views of the memory."""
        size = os.fstat(self.file).st_size
        if self._map is None or len(self._map) < size:  # views of the old one keep it alive
            self._map = mmap.mmap(self.file, size) if size else None
        return {name: self._view(*place) for name, place in layout.items()}

    def _view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)

    def close(self) -> None:
        """Give the memory back, once no view of it is left."""
        os.close(self.file)
        self._map = None
