"""How many samples are evaluated at once: as many as their activations leave room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fltune.data.federated import Split
from fltune.federation.glance import forward_one, leaves
from fltune.randomness import generator

EVALUATION_CHUNK = 4096
"""Most samples evaluated at once."""
EVALUATION_BYTES = 16 * 2**20
"""Bytes of the largest activation of a chunk: what a cache still holds. BERT base makes 0.75 MiB
per sentence of 64 tokens, so that 4096 of them would take 3 GiB."""


def samples_at_once(network: nn.Module, split: Split) -> int:
    """Return the size of a chunk for a network, by the largest output of a layer for one sample."""
    if len(split) == 0:
        return EVALUATION_CHUNK
    largest = [1, split.x[:1].nbytes]

    def look(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            largest.append(output.nbytes)

    hooks = [module.register_forward_hook(look) for module in leaves(network)]
    try:
        forward_one(network, split.x)
    finally:
        for hook in hooks:
            hook.remove()
    return max(1, min(EVALUATION_CHUNK, EVALUATION_BYTES // max(largest)))


class Chunks:
    """A split in evaluation batches; views of it, nothing is copied.

    Args:
        split: the samples.
        size: of a batch.
    """

    def __init__(self, split: Split, size: int = EVALUATION_CHUNK) -> None:
        self.size = size
        self.parts = list(zip(split.x.split(size), split.y.split(size), strict=True))

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.parts)


MIXED_CHUNK = 256
"""Samples in a batch of :class:`MixedChunks`, at most: large, and the same for all networks."""


class MixedChunks(Chunks):
    """A split in evaluation batches of samples from all over it, nearly equal in size.

    For networks that normalise by the batch they are given: in the order of a file, one class after
    another, say, every batch would be normalised by statistics of its own class. The mix is the
    same in all runs; neither the model's size nor the run's seed has a say. Copies the samples.
    """

    def __init__(self, split: Split) -> None:
        self.size = MIXED_CHUNK
        count = -(len(split) // -MIXED_CHUNK)
        order = torch.randperm(len(split), generator=generator(0, "evaluation"))
        own = order.to(split.y.device).tensor_split(max(count, 1))
        self.parts = [(split.x[part], split.y[part]) for part in own if len(part)]


class GrowingChunks:
    """The first samples of a split in evaluation batches, as many as count each time.

    It has no length: Lightning asks for that once, and would never evaluate more.

    Args:
        split: the samples.
        size: of a batch.
        count: says how many of them are evaluated now.
    """

    def __init__(self, split: Split, size: int, count: Callable[[], int]) -> None:
        self.split = split
        self.size = size
        self.count = count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        n = self.count()
        return iter(Chunks(Split(self.split.x[:n], self.split.y[:n]), self.size))
