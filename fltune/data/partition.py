"""Who holds what: dealing the training samples to clients.

A partition is a pure function of labels, number of clients and seed: it draws from a generator of
its own, so the same three give the same clients whatever ran before.

    >>> clients = Iid()(torch.zeros(1000), num_clients=3, seed=0)
    >>> [len(indices) for indices in clients]
    [334, 333, 333]
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.errors import DataError
from fltune.parameters import Checked, parameter

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Partition(Checked, ABC):
    """Deals samples to clients. A subclass says who owns each one, in :meth:`owners`."""

    def __call__(self, labels: Tensor, num_clients: int, seed: int) -> list[Tensor]:
        """Return the sample indices of each client.

        Args:
            labels: ``[n]`` class ids (or ``[n, k]`` targets, where the partition ignores them).
            num_clients: N, in 1..n.
            seed: >= 0; the only source of randomness.

        Returns:
            N sorted int64 tensors on the CPU, disjoint.

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
        owner = self.owners(labels.detach().cpu().numpy(), num_clients, rng)
        by_client = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner[owner >= 0], minlength=num_clients)
        dealt = torch.from_numpy(by_client[len(owner) - sizes.sum() :].astype(np.int64))
        return list(dealt.split(sizes.tolist()))

    @abstractmethod
    def owners(self, labels: NDArray, num_clients: int, rng: np.random.Generator) -> Ints:
        """Return int64 ``[n]``: the client of each sample in ``0..N-1``, -1 for an unused one."""


@dataclass(frozen=True)
class Iid(Partition):
    """A random equal split: clients look like the whole, and sizes differ by at most one."""

    def owners(self, labels: NDArray, num_clients: int, rng: np.random.Generator) -> Ints:
        """Deal a shuffled deck of samples in turn."""
        owner = np.empty(len(labels), np.int64)
        owner[rng.permutation(len(labels))] = np.arange(len(labels)) % num_clients
        return owner


@dataclass(frozen=True)
class DirichletClass(Partition):
    """Label skew: the shares of the clients in each class are drawn from a Dirichlet distribution.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks" (2019, section
    4); Li et al., "Federated Learning on Non-IID Data Silos" (2022, NIID-Bench, section IV-B). For
    each class c of n_c samples::

        p_c ~ Dir_N(alpha),    P_cj = p_c1 + ... + p_cj
        client j takes the class's shuffled samples from floor(n_c P_c,j-1) up to floor(n_c P_cj)

    Sizes vary, all samples are used. While a client holds fewer than ``min_size`` samples, the
    whole partition is redrawn, at most ``max_tries`` times in all. Small alpha with many clients
    never gets there by chance (10,000 clients, 54,000 samples, alpha 1: hopeless), so after the
    last try it is repaired: one random sample at a time goes from the largest client to the
    smallest, until all hold ``min_size``.

    Raises:
        DataError: ``min_size * N`` exceeds the number of samples, or the labels are no class ids.
    """

    alpha: float = parameter(
        0.5,
        "concentration; towards 0 a class has one owner, towards infinity clients are iid",
        symbol="alpha",
        gt=0,
        lt=math.inf,
    )
    min_size: int = parameter(1, "samples that every client holds at least", ge=1)
    # A draw that succeeds once in five tries is found 99 times in 100; rarer ones are mostly
    # hopeless, and 10,000 clients pay for every try.
    max_tries: int = parameter(20, "draws before the last one is repaired", ge=1, le=1000)
    balance: bool = parameter(
        False, "NIID-Bench: a client that holds n/N samples gets none of the further classes"
    )

    def owners(self, labels: NDArray, num_clients: int, rng: np.random.Generator) -> Ints:
        """Draw until all clients hold ``min_size`` samples, or repair the last draw."""
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise DataError(
                f"the dirichlet_class partition needs class ids, found {labels.dtype} targets of "
                f"shape {labels.shape}; use iid for a regression"
            )
        if self.min_size * num_clients > len(labels):
            raise DataError(
                f"{num_clients} clients with at least {self.min_size} samples each need "
                f"{self.min_size * num_clients} samples; there are {len(labels)}"
            )
        _, class_of, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
        for _ in range(self.max_tries):  # sizes do not depend on the shuffle: draw it once, below
            counts = self.draw_counts(class_sizes, num_clients, rng)
            if counts.sum(0).min() >= self.min_size:
                break
        shuffled = rng.permutation(len(labels))
        by_class = shuffled[np.argsort(class_of[shuffled], kind="stable")]
        owner = np.empty(len(labels), np.int64)
        owner[by_class] = np.tile(np.arange(num_clients), len(counts)).repeat(counts.ravel())
        fill(owner, num_clients, self.min_size, shuffled)
        return owner

    def draw_counts(self, class_sizes: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """Draw int64 ``[classes, N]``: how many samples of each class each client takes."""
        logs = log_gamma_draws(self.alpha, (len(class_sizes), num_clients), rng)
        if not self.balance:
            return cut(class_sizes, dirichlet_shares(logs, self.alpha))
        counts = np.zeros(logs.shape, np.int64)
        held = np.zeros(num_clients, np.int64)
        for c in range(len(class_sizes)):
            # Masked before it is normalised: at tiny alpha the shares left over may all round to 0.
            # Not everyone is full, or all n samples were dealt and class c would be empty.
            full = held * num_clients >= class_sizes.sum()
            shares = dirichlet_shares(np.where(full, -np.inf, logs[c : c + 1]), self.alpha)
            counts[c] = cut(class_sizes[c : c + 1], shares)[0]
            held += counts[c]
        return counts


def log_gamma_draws(alpha: float, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Return ``alpha * log(g)`` for draws g ~ Gamma(alpha, 1).

    The draws themselves underflow to 0 for small alpha, and a row of zeros has no shares. Their
    logarithms do not: Gamma(alpha) = Gamma(alpha + 1) U^(1/alpha) for U uniform (Marsaglia and
    Tsang, 2000), where -log U is a standard exponential. The factor alpha keeps them finite.
    """
    return alpha * np.log(rng.standard_gamma(alpha + 1, shape)) - rng.standard_exponential(shape)


def dirichlet_shares(logs: Floats, alpha: float) -> Floats:
    """Normalise each row of :func:`log_gamma_draws` to a draw of Dir(alpha); -inf is share 0."""
    with np.errstate(over="ignore"):  # exp(-inf) = 0 is the share that is meant
        shares = np.exp((logs - logs.max(axis=1, keepdims=True)) / alpha)
    return shares / shares.sum(axis=1, keepdims=True)


def cut(class_sizes: Ints, shares: Floats) -> Ints:
    """Return the counts between the cuts floor(n_c cumsum(p_c)).

    Args:
        class_sizes: int64 ``[classes]``, n_c.
        shares: ``[classes, N]``, p_c.

    Returns:
        int64 ``[classes, N]``; a row sums to n_c exactly, its last client takes what is left.
    """
    ends = np.floor(class_sizes[:, None] * shares.cumsum(axis=1)).astype(np.int64)
    ends = np.minimum(ends, class_sizes[:, None])  # a cumulative sum may round to just above 1
    ends[:, -1] = class_sizes
    return np.diff(ends, axis=1, prepend=0)


def fill(owner: Ints, num_clients: int, min_size: int, shuffled: Ints) -> None:
    """Move single samples from the largest client to the smallest until all hold ``min_size``.

    Args:
        owner: ``[n]`` client of each sample, changed in place; n >= N * min_size.
        num_clients: N.
        min_size: samples that every client shall hold.
        shuffled: a permutation of the samples, which decides what a client gives away.
    """
    sizes = np.bincount(owner, minlength=num_clients)
    if sizes.min() >= min_size:
        return
    grouped = shuffled[np.argsort(owner[shuffled], kind="stable")]
    ends = sizes.cumsum()
    # A receiver stops at min_size and a giver starts above it: nobody is ever both.
    needy = [(int(s), j) for j, s in enumerate(sizes) if s < min_size]
    rich = [(-int(s), j) for j, s in enumerate(sizes) if s > min_size]
    heapq.heapify(needy)
    heapq.heapify(rich)
    while needy:
        size, receiver = needy[0]
        negative, giver = rich[0]
        given = ends[giver] - (sizes[giver] + negative) - 1
        owner[grouped[given]] = receiver
        heapq.heapreplace(rich, (negative + 1, giver))
        if size + 1 < min_size:
            heapq.heapreplace(needy, (size + 1, receiver))
        else:
            heapq.heappop(needy)
