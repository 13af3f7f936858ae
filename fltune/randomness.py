"""Random numbers that depend on what they are for, never on when they are drawn.

Every stream is a hash of its purpose: the run's seed, the round, the client, the position. No
generator is shared, so the order of clients, the number of workers and the execution strategy
cannot change a result. The hash is splitmix64 (Steele, Lea, Flood 2014) on int64 tensors, whose
arithmetic wraps: one call gives the shuffling keys of a whole cohort.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_GOLDEN_BITS, _FIRST_BITS, _SECOND_BITS = map(np.uint64, (_GOLDEN, _FIRST, _SECOND))
_SHIFTS = np.array([30, 27, 31], dtype=np.uint64)
_DROPPED = np.uint64(40)
_CACHED = 1 << 15
"""Numbers that are hashed together: they and what they become fit into a core's cache."""


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix_int(z: int) -> int:
    z = (z + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    # int64 has no logical right shift: the sign bits that come in are masked away
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mix(z: Tensor) -> Tensor:
    """Hash an int64 tensor elementwise; any shape, any device, the same numbers everywhere."""
    z = z + _signed(_GOLDEN)
    z = (z ^ _shift(z, 30)) * _signed(_FIRST)
    z = (z ^ _shift(z, 27)) * _signed(_SECOND)
    return z ^ _shift(z, 31)


def mix_keys(z: Tensor) -> Tensor:
    """Return :func:`mix` of an int64 tensor; on the host by NumPy, in a third of the time.

    Not for what runs under ``torch.vmap``, which NumPy cannot see.
    """
    if z.device.type != "cpu":
        return mix(z)
    return torch.from_numpy(mix_host(z.numpy().copy()))


def mix_host(z: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return :func:`mix` of a contiguous array, in its own memory."""
    _mix_in_place(z.view(np.uint64))
    return z


def hashed_places(count: int) -> NDArray[np.int64]:
    """Return :func:`mix` of 0..count-1; not to be written to."""
    if count > _CACHED:
        return mix_host(np.arange(count))
    return _hashed_places(0)[:count].view(np.int64)


def _mix_in_place(bits: NDArray[np.uint64]) -> None:
    bits += _GOLDEN_BITS  # in place, so that all steps wrap
    bits ^= bits >> _SHIFTS[0]
    bits *= _FIRST_BITS
    bits ^= bits >> _SHIFTS[1]
    bits *= _SECOND_BITS
    bits ^= bits >> _SHIFTS[2]


def derive_seed(seed: int, *purpose: int | str) -> int:
    """Return a seed in [0, 2**63) for one purpose of a run.

    >>> derive_seed(0, "partition") != derive_seed(0, "participation")
    True
    """
    z = _mix_int(seed & _MASK)
    for part in purpose:
        number = zlib.crc32(part.encode()) if isinstance(part, str) else part
        z = _mix_int(z ^ _mix_int(number & _MASK))
    return z >> 1


def generator(seed: int, *purpose: int | str) -> torch.Generator:
    """Return a fresh CPU generator for one purpose of a run."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


def client_keys(seed: int, round: int, clients: Tensor) -> Tensor:
    """Return one int64 key per client of a round: the root of all its random numbers.

    Args:
        seed: the run's seed.
        round: 0-based communication round t.
        clients: int64 ids [C].

    Returns:
        int64 [C]; the key of client i depends on (seed, t, i) alone.
    """
    return cohort_keys(seed, [round], [len(clients)], clients)


def cohort_keys(seed: int, rounds: Sequence[int], counts: Sequence[int], clients: Tensor) -> Tensor:
    """Return :func:`client_keys` of the cohorts of some rounds, one after the other.

    Args:
        seed: the run's seed.
        rounds: of each cohort.
        counts: clients of each cohort.
        clients: int64 ids, as many as the counts add up to; on the host.
    """
    purposes = [_signed(derive_seed(seed, "client", round)) for round in rounds]
    keys = mix_host(clients.numpy().copy())
    keys ^= np.repeat(np.array(purposes, np.int64), counts)
    return torch.from_numpy(mix_host(keys))


def visit_keys(seed: int, round: int, clients: Tensor) -> Tensor:
    """Return one int64 key [C] per visit: :func:`client_keys`, and another for each repetition.

    A client that works more than once in a round (a buffer of asynchronous updates) draws anew each
    time; its first visit has the key that it would have alone.
    """
    keys = client_keys(seed, round, clients)
    order = clients.argsort(stable=True)
    ranked = clients[order]
    place = torch.arange(len(clients), device=clients.device)
    earlier = torch.empty_like(clients)
    earlier[order] = place - torch.searchsorted(ranked, ranked)
    return torch.where(earlier > 0, mix_keys(keys ^ mix_keys(earlier)), keys)


def _fractions(seed: int, purpose: str, round: int, clients: Tensor) -> Tensor:
    keys = mix_keys(visit_keys(seed, round, clients) ^ _signed(derive_seed(seed, purpose)))
    return _shift(keys, 11).to(torch.float64) * 2.0**-53


def client_draws(seed: int, purpose: str, round: int, clients: Tensor, choices: int) -> Tensor:
    """Return one whole number in 0..choices-1 per visit of a client in a round, int64 [C]."""
    return (_fractions(seed, purpose, round, clients) * choices).floor().to(torch.int64)


def client_normals(seed: int, purpose: str, round: int, clients: Tensor) -> Tensor:
    """Return one standard normal number per visit of a client in a round, float64 [C]."""
    # below the smallest positive fraction: 0 itself would be minus infinity
    return torch.special.ndtri(_fractions(seed, purpose, round, clients).clamp(min=2.0**-54))


def step_keys(keys: Tensor, step: int | Tensor) -> Tensor:
    """Return the keys [C] of one local step, for the random layers of a network.

    With int64 steps [K, 1] these are the keys [K, C] of many steps, at the price of one.
    """
    return mix_keys(keys ^ mix_keys(torch.as_tensor(step, device=keys.device) + 1))


def seed_global(seed: int, device: torch.device) -> None:
    """Seed the global generators that layers on a device draw from.

    ``torch.manual_seed`` would look for accelerators of every make: up to a millisecond each time,
    more than a small client's whole training.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def uniform(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return float32 numbers in [0, 1) of the given shape, a pure function of one scalar key.

    Keys [C] give a row of numbers each, [C, *shape]. Works under ``torch.vmap`` with a batched key,
    where a generator would not.
    """
    count = math.prod(shape)
    position = torch.arange(count, device=key.device, dtype=torch.int64)
    bits = _shift(mix(mix(position) ^ key.unsqueeze(-1)), 40)  # 24 bits: all that float32 can hold
    return (bits.to(torch.float32) * 2.0**-24).reshape(*key.shape, *shape)


def uniform_rows(keys: Tensor, count: int) -> Tensor:
    """Return :func:`uniform` of keys [C], [C, count]; on the host by NumPy, within the cache.

    Not for what runs under ``torch.vmap``, which NumPy cannot see.
    """
    if keys.device.type != "cpu":
        return uniform(keys, (count,))
    found = np.empty((len(keys), count), np.float32)
    for place, bits in _hashed(keys, count):
        bits >>= _DROPPED
        found[place] = bits
    found *= np.float32(2.0**-24)
    return torch.from_numpy(found)


def kept_rows(keys: Tensor, count: int, p: float) -> Tensor:
    """Return ``uniform_rows(keys, count) >= p``, bool [C, count], in half the time.

    Args:
        keys: int64 [C].
        count: numbers of each key.
        p: in [0, 1), rounded to float32 as torch rounds it.
    """
    if keys.device.type != "cpu":
        return uniform(keys, (count,)) >= p
    found = np.empty((len(keys), count), np.bool_)
    least = math.ceil(float(np.float32(p)) * 2.0**24) << 40
    if least > _MASK:
        return torch.from_numpy(np.zeros_like(found))
    for place, bits in _hashed(keys, count):
        np.greater_equal(bits, np.uint64(least), out=found[place])
    return torch.from_numpy(found)


def kept(key: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Return ``uniform(key, shape) >= p`` of one scalar key, as :func:`kept_rows` does.

    Works under ``torch.vmap`` with a batched key, whose rows are drawn together, and under
    ``torch.compile``, which makes one loop of all.
    """
    if torch.compiler.is_compiling():
        return uniform(key, shape) >= p
    if torch._C._functorch.is_functorch_wrapped_tensor(key):
        found: Tensor = _Kept.apply(key, shape, p)
        return found
    return kept_rows(key.unsqueeze(0), math.prod(shape), p).view(shape)


class _Kept(torch.autograd.Function):
    """What vmap sees of :func:`kept`: it gets the keys as they are, for NumPy to read."""

    @staticmethod
    def forward(key: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
        return kept_rows(key.reshape(-1), math.prod(shape), p).view(*key.shape, *shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, key: Tensor, shape: Any, p: float) -> tuple[Tensor, int]:
        return kept_rows(key, math.prod(shape), p).view(len(key), *shape), 0


def _hashed(keys: Tensor, count: int) -> Iterator[tuple[tuple[slice, slice], NDArray[np.uint64]]]:
    """Yield the bits of keys [C] at ``count`` places, a block at a time, and where it belongs."""
    rows = keys.numpy().view(np.uint64)[:, None]
    wide = min(count, _CACHED)
    high = max(1, _CACHED // max(wide, 1))
    for start in range(0, count, wide or 1):
        places = _hashed_places(start)[: count - start]
        for row in range(0, len(rows), high):
            bits = places ^ rows[row : row + high]
            _mix_in_place(bits)
            yield (slice(row, row + high), slice(start, start + wide)), bits


@lru_cache(maxsize=32)
def _hashed_places(start: int) -> NDArray[np.uint64]:
    """Return the hashes of a block's places: the same for all keys, half of the work for one."""
    return mix_host(np.arange(start, start + _CACHED)).view(np.uint64)
