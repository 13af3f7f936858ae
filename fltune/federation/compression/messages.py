"""A round's messages on their way to the server: what is decoded, kept by clients, and lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fltune.federation.compression.base import Compressor

MEMORY = "memory@"
"""Client rows of error feedback: ``memory@update`` is what was lost of the entry ``update``."""

Entries = dict[str, Tensor]


@dataclass(frozen=True)
class Sent:
    """The messages of a cohort.

    Attributes:
        message: entries [C, d] as the server decodes them.
        memory: client rows that error feedback now remembers.
        quality: of the compression: ``compression/q``, the empirical q over all of the cohort's
            compressed vectors, and ``compression/bound``, what its mean over draws does not exceed,
            where that is known; empty where nothing is compressed.
    """

    message: Entries
    memory: Entries = field(default_factory=dict)
    quality: Entries = field(default_factory=dict)


def fresh_memory(compressor: Compressor, names: Sequence[str], x: Tensor) -> Entries:
    """Return what error feedback remembers of a client that has sent nothing yet."""
    return {MEMORY + name: torch.zeros_like(x) for name in names if compressor.error_feedback}


def without_memory(stored: Entries) -> Entries:
    """Return the algorithm's part of client rows."""
    return {k: v for k, v in stored.items() if not k.startswith(MEMORY)}


def send(
    compressor: Compressor, names: Sequence[str], message: Entries, stored: Entries, keys: Tensor
) -> Sent:
    """Compress and decode some entries of a message.

    Args:
        compressor: of the run.
        names: the entries that are compressed.
        message: what the clients want to send, [C, d].
        stored: their rows, with the memory of error feedback if there is such.
        keys: int64 [C], randomness of each client in this round; on the host.
    """
    if type(compressor) is Compressor and not compressor.error_feedback:
        return Sent(message)
    if names:
        keys = keys.to(message[names[0]].device)
    decoded, memory, wanted = dict(message), {}, {}
    for entry, name in enumerate(names):
        key, vector, kept = keys + entry, message[name], MEMORY + name
        if kept in stored:
            decoded[name], memory[kept] = compressor.with_memory(vector, stored[kept], key)
            vector = decoded[name] + memory[kept]
        else:
            decoded[name] = compressor(vector, key)
        wanted[name] = vector
    if not wanted:
        return Sent(decoded)
    before, after = _side_by_side([*wanted.values()]), _side_by_side([decoded[k] for k in wanted])
    dimension = message[names[0]].shape[1]
    quality = {"compression/q": compressor.quality(before, after)}
    bound = compressor.bound(dimension)
    if math.isfinite(bound):
        quality["compression/bound"] = after.new_tensor(bound)
    return Sent(decoded, memory, quality)


def _side_by_side(entries: Sequence[Tensor]) -> Tensor:
    return entries[0] if len(entries) == 1 else torch.cat(list(entries), 1)  # one is not copied
