"""Who holds what: dealing the training samples to clients.

A partition is a pure function of labels, number of clients, seed and (where the data set has them)
natural clients: it draws from a generator of its own, so the same four give the same clients
whatever ran before. Each family has a file of its own; here is their contract, and what they share.

    >>> clients = Iid()(torch.zeros(1000), num_clients=3, seed=0)
    >>> [len(indices) for indices in clients]
    [334, 333, 333]
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.errors import DataError
from fltune.parameters import Checked

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Assignment:
    """Who got what.

    Attributes:
        clients: one sorted int64 tensor of sample indices per client, on the CPU.
        notes: what a reader of results must know of how it came about, a sentence each.
        overlapping: whether a sample may belong to several clients.
    """

    clients: list[Tensor]
    notes: tuple[str, ...] = ()
    overlapping: bool = False

    @classmethod
    def of_owners(cls, owner: Ints, num_clients: int, *notes: str) -> Assignment:
        """Return disjoint clients from ``[n]`` owners in ``0..N-1``; -1 is an unused sample.

        Raises:
            DataError: owners that are no whole numbers, or no clients.
        """
        owner = np.asarray(owner)
        if not np.issubdtype(owner.dtype, np.integer):
            raise DataError(f"owners of samples are {owner.dtype}; must be whole numbers")
        if owner.max(initial=-1) >= num_clients:
            raise DataError(
                f"a sample is owned by client {owner.max()}; the {num_clients} clients are "
                f"0..{num_clients - 1}"
            )
        by_client = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner[owner >= 0], minlength=num_clients)
        dealt = torch.from_numpy(by_client[len(owner) - sizes.sum() :].astype(np.int64))
        return cls(list(dealt.split(sizes.tolist())), notes)


@dataclass(frozen=True)
class Partition(Checked, ABC):
    """Deals samples to clients. A subclass says who gets what, in :meth:`draw`.

    >>> class Halves(Partition):
    ...     def draw(self, labels, num_clients, rng, groups):
    ...         return Assignment.of_owners(np.arange(len(labels)) * 2 // len(labels), 2)
    """

    def __call__(
        self, labels: Tensor, num_clients: int, seed: int, groups: Tensor | None = None
    ) -> list[Tensor]:
        """Return the sample indices of each client; see :meth:`assign`."""
        return self.assign(labels, num_clients, seed, groups).clients

    def assign(
        self, labels: Tensor, num_clients: int, seed: int, groups: Tensor | None = None
    ) -> Assignment:
        """Return who gets what.

        Args:
            labels: ``[n]`` class ids (or ``[n, k]`` targets, where the partition ignores them).
            num_clients: N, in 1..n.
            seed: >= 0; the only source of randomness.
            groups: int64 ``[n]``, the client that each sample is known to come from, negative for
                none; see :meth:`known_clients`. None where nothing is known.

        Raises:
            DataError: there are more clients than samples, or the samples do not suffice for what
                the partition promises.
        """
        if num_clients < 1:
            raise DataError(f"{num_clients} clients are not allowed; at least 1 is needed")
        if num_clients > len(labels):
            raise DataError(
                f"{num_clients} clients cannot share {len(labels)} samples; "
                "use fewer clients or more data"
            )
        rng = np.random.default_rng(seed)
        known = None if groups is None else groups.cpu().numpy()
        dealt = self.draw(labels.detach().cpu().numpy(), num_clients, rng, known)
        self._check(dealt, num_clients)
        return dealt

    def _check(self, dealt: Any, num_clients: int) -> None:
        """Refuse what :meth:`draw` gave if it is no assignment to all clients."""
        found = f"a {type(dealt).__name__}"
        if isinstance(dealt, Assignment):
            if len(dealt.clients) == num_clients:
                return
            found = f"one to {len(dealt.clients)}"
        raise DataError(
            f"{type(self).__name__}.draw must return an Assignment to {num_clients} clients; "
            f"found {found}; Assignment.of_owners makes one of the owner of each sample"
        )

    @abstractmethod
    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Return who gets what; the arguments are those of :meth:`assign`, as arrays."""

    def known_clients(self, groups: Tensor | None, num_samples: int) -> Tensor | None:
        """Return the client of each sample where that is known before anything is dealt.

        Validation samples are then held out of every client in proportion; otherwise (None) of
        every class.

        Args:
            groups: int64 ``[n]``, the data set's own clients; None if it has none.
            num_samples: n, of the training samples before any is held out.
        """
        return None


@dataclass(frozen=True)
class Iid(Partition):
    """A random equal split: clients look like the whole, and sizes differ by at most one."""

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Deal a shuffled deck of samples in turn."""
        owner = np.empty(len(labels), np.int64)
        owner[rng.permutation(len(labels))] = np.arange(len(labels)) % num_clients
        return Assignment.of_owners(owner, num_clients)


def classes_of(labels: NDArray, partition: Partition) -> tuple[Ints, Ints]:
    """Return (class of each sample in ``0..C-1``, samples of each class), empty classes left out.

    Raises:
        DataError: the labels are no class ids.
    """
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{type(partition).__name__} needs class ids, found {labels.dtype} targets of "
            f"shape {labels.shape}; use iid for a regression"
        )
    _, class_of, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return class_of, class_sizes


def require(num_samples: int, num_clients: int, min_size: int) -> None:
    """Check that every client can hold ``min_size`` samples of its own.

    Raises:
        DataError: there are too few.
    """
    if min_size * num_clients > num_samples:
        raise DataError(
            f"{num_clients} clients with at least {min_size} samples each need "
            f"{min_size * num_clients} samples; there are {num_samples}"
        )


def cut(class_sizes: Ints, shares: Floats, rounded: Callable[[Floats], Floats] = np.floor) -> Ints:
    """Return the counts between the cuts ``rounded(n_c cumsum(p_c))``.

    Args:
        class_sizes: int64 ``[classes]``, n_c.
        shares: ``[classes, N]``, p_c.
        rounded: how a cut becomes whole; ``np.rint`` rounds half to even.

    Returns:
        int64 ``[classes, N]``; a row sums to n_c exactly, its last client takes what is left.
    """
    ends = rounded(class_sizes[:, None] * shares.cumsum(axis=1)).astype(np.int64)
    ends = np.minimum(ends, class_sizes[:, None])  # a cumulative sum may round to just above 1
    ends[:, -1] = class_sizes
    return np.diff(ends, axis=1, prepend=0)


def largest_remainder(total: int, shares: Floats) -> Ints:
    """Return whole numbers that sum to ``total``, in proportion to ``shares``.

    The rests go to the largest remainders of ``total * shares``, at a tie to the first.
    """
    counts = np.floor(total * shares).astype(np.int64)
    first = np.argsort(counts - total * shares, kind="stable")
    counts[first[: total - counts.sum()]] += 1
    return counts


def lognormal_sizes(normal: Floats, mu: float, sigma: float, add: int, clip: int | None) -> Ints:
    """Return ``floor(exp(mu + sigma z)) + add``, at most ``clip``, for standard normal draws z."""
    exponent = np.minimum(mu + sigma * normal, 30)  # more samples than there are anywhere
    sizes = np.floor(np.exp(exponent)).astype(np.int64) + add
    return sizes if clip is None else np.minimum(sizes, clip)


def owners_by_class(counts: Ints, class_of: Ints, shuffled: Ints) -> Ints:
    """Deal the shuffled samples of each class by counts.

    Args:
        counts: int64 ``[classes, N]``; a row sums to at most the samples of its class.
        class_of: int64 ``[n]`` in ``0..classes-1``.
        shuffled: a permutation of the samples.

    Returns:
        int64 ``[n]`` owners; -1 for what the counts leave over.
    """
    num_clients = counts.shape[1]
    rest = np.bincount(class_of, minlength=len(counts)) - counts.sum(1)
    takers = np.tile(np.append(np.arange(num_clients), -1), len(counts))
    by_class = shuffled[np.argsort(class_of[shuffled], kind="stable")]
    owner = np.empty(len(class_of), np.int64)
    owner[by_class] = takers.repeat(np.column_stack([counts, rest]).ravel())
    return owner


def moves(sizes: Ints, min_size: int) -> Iterator[tuple[int, int]]:
    """Yield (giver, receiver) of single samples, from the largest client to the smallest.

    It ends when all hold ``min_size``, which ``sizes.sum() >= len(sizes) * min_size`` allows.
    """
    # A receiver stops at min_size and a giver starts above it: nobody is ever both.
    needy = [(int(s), j) for j, s in enumerate(sizes) if s < min_size]
    rich = [(-int(s), j) for j, s in enumerate(sizes) if s > min_size]
    heapq.heapify(needy)
    heapq.heapify(rich)
    while needy:
        size, receiver = needy[0]
        negative, giver = rich[0]
        yield giver, receiver
        heapq.heapreplace(rich, (negative + 1, giver))
        if size + 1 < min_size:
            heapq.heapreplace(needy, (size + 1, receiver))
        else:
            heapq.heappop(needy)


def fill(owner: Ints, num_clients: int, min_size: int, shuffled: Ints) -> int:
    """Move single samples between clients until all hold ``min_size``; see :func:`moves`.

    Args:
        owner: ``[n]`` client of each sample, changed in place; n >= N * min_size.
        num_clients: N.
        min_size: samples that every client shall hold.
        shuffled: a permutation of the samples, which decides what a client gives away.

    Returns:
        How many samples were moved.
    """
    sizes = np.bincount(owner, minlength=num_clients)
    if sizes.min() >= min_size:
        return 0
    grouped = shuffled[np.argsort(owner[shuffled], kind="stable")]
    last = sizes.cumsum()
    moved = 0
    for giver, receiver in moves(sizes, min_size):
        last[giver] -= 1
        owner[grouped[last[giver]]] = receiver
        moved += 1
    return moved
