"""Label skew from the side of the clients: each client has its own distribution of classes.

Every client draws q_i ~ Dir_C(alpha). The three partitions differ in how the samples that exist
are made to fit: by normalising over clients, by serving equal clients until a class is used up, or
by giving clients log-normal sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fltune.data.dirichlet import (
    DirichletShares,
    concentration,
    dirichlet_shares,
    log_gamma_draws,
)
from fltune.data.partition import (
    Assignment,
    Floats,
    Ints,
    Partition,
    classes_of,
    cut,
    largest_remainder,
    lognormal_sizes,
    moves,
    owners_by_class,
    require,
)
from fltune.parameters import parameter

LIMITS = "towards 0 a client has one class, towards infinity clients are iid"


@dataclass(frozen=True)
class DirichletClientNormalised(DirichletShares):
    """Label skew: each client draws its classes, and a class is dealt in proportion to the draws.

    As the programs of Wang and Ji, "A Lightweight Method for Tackling Unknown Participation
    Statistics in Federated Averaging" (2023, FedAU), and Xiang et al., "Efficient Federated
    Learning against Heterogeneous and Non-stationary Client Unavailability" (2024, FedAWE)::

        q_i ~ Dir_C(alpha) for each client i,    p_ci = q_ic / sum_j q_jc
        client i takes the class's shuffled samples up to round(n_c (p_c1 + ... + p_ci))

    with halves rounded to even. Sizes vary; redrawn and repaired as :class:`DirichletShares` says,
    which lists the errors.
    """

    alpha: float = concentration(LIMITS)

    def draw_counts(self, class_sizes: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """Draw int64 ``[classes, N]``: how many samples of each class each client takes."""
        logs = log_gamma_draws(self.alpha, (num_clients, len(class_sizes)), rng)
        return cut(class_sizes, normalised_over_clients(logs, self.alpha), np.rint)


def normalised_over_clients(logs: Floats, alpha: float) -> Floats:
    """Return ``p_ci = q_ic / sum_j q_jc``, ``[classes, N]``, from the draws ``[N, classes]``.

    In logarithms throughout: at small alpha a class may have underflowed in every client's q.
    """
    top = logs - logs.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        totals = np.exp(top / alpha).sum(axis=1, keepdims=True)
    return dirichlet_shares((top - alpha * np.log(totals)).T, alpha)


@dataclass(frozen=True)
class DirichletClientEqual(Partition):
    """Label skew with equal sizes: each of floor(n/N) samples is of a class the client draws.

    Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification" (2019). With q_i ~ Dir_C(alpha), client i draws a class from q_i and
    takes one of its unused samples, floor(n/N) times; a class that is used up gets probability 0
    for everybody. Clients are served one after the other in a random order, so an id says nothing
    of being late. The n mod N samples left over are unused.

    Raises:
        DataError: the labels are no class ids.
    """

    alpha: float = concentration(LIMITS)

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Serve the clients, then deal each class's shuffled samples by what they drew."""
        class_of, class_sizes = classes_of(labels, self)
        sizes = np.full(num_clients, len(labels) // num_clients)
        logs = log_gamma_draws(self.alpha, (num_clients, len(class_sizes)), rng)
        counts, displaced = serve_all(sizes, logs, self.alpha, class_sizes, rng, rng.multinomial)
        owner = owners_by_class(counts, class_of, rng.permutation(len(labels)))
        return Assignment.of_owners(owner, num_clients, *_displaced_note(displaced, sizes))


@dataclass(frozen=True)
class DirichletClientLognormal(Partition):
    """Label and size skew: class proportions are Dirichlet draws and sizes log-normal ones.

    FedCDR (anonymous submission), appendix G.1.2::

        q_i ~ Dir_C(alpha),    n_i = min(floor(exp(Normal(mu, sigma))) + add, clip)

    and n_i q_i samples of the classes, rounded by largest remainders. The paper's 500 clients ask
    for 500 * 168 samples, more than MNIST or CIFAR hold, and it does not say how they are had, so
    ``allocation`` is a choice, and named in the report:

    - ``scale``: sizes that exceed the data in sum are its proportional parts; clients stay
      disjoint. Clients are served in a random order; one whose class is used up takes the rest
      from the others, in the proportions of its q_i.
    - ``reuse``: clients draw independently of each other, so a sample may belong to several; within
      a client it is there once.

    Sizes below ``min_size`` are raised to it, at the largest clients' cost.

    Raises:
        DataError: ``min_size * N`` exceeds the number of samples, or the labels are no class ids.
    """

    alpha: float = concentration(LIMITS)
    mu: float = parameter(4.0, "mean of a size's logarithm", symbol="mu", gt=-math.inf, lt=30)
    sigma: float = parameter(2.0, "its standard deviation; 0: equal sizes", ge=0, le=30)
    add: int = parameter(30, "samples added to every drawn size", ge=0, le=10**9)
    clip: int | None = parameter(500, "samples that no client exceeds; null: no bound", ge=1)
    allocation: str = parameter(
        "scale",
        "how sizes that exceed the data are had: smaller clients, or clients that overlap",
        choices=("scale", "reuse"),
    )
    min_size: int = parameter(1, "samples that every client holds at least", ge=1)

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Draw sizes and classes, then allocate."""
        class_of, class_sizes = classes_of(labels, self)
        require(len(labels), num_clients, self.min_size)
        normal = rng.standard_normal(num_clients)
        drawn = lognormal_sizes(normal, self.mu, self.sigma, self.add, self.clip)
        drawn = np.maximum(drawn, self.min_size)
        logs = log_gamma_draws(self.alpha, (num_clients, len(class_sizes)), rng)
        if self.allocation == "reuse":
            return self._reuse(drawn, logs, class_of, class_sizes, rng)
        sizes = fitted(drawn, len(labels), self.min_size)
        counts, displaced = serve_all(sizes, logs, self.alpha, class_sizes, rng, largest_remainder)
        owner = owners_by_class(counts, class_of, rng.permutation(len(labels)))
        asked, given = int(drawn.sum()), int(sizes.sum())
        note = f"allocation scale: clients ask for {asked} samples of {len(labels)}, "
        note += "as drawn" if asked == given else f"sizes scaled by {given / asked:.3f}; disjoint"
        return Assignment.of_owners(owner, num_clients, note, *_displaced_note(displaced, sizes))

    def _reuse(
        self, drawn: Ints, logs: Floats, class_of: Ints, class_sizes: Ints, rng: np.random.Generator
    ) -> Assignment:
        """Let every client draw from all samples."""
        sizes = np.minimum(drawn, len(class_of))  # nobody holds a sample twice
        by_class = np.split(np.argsort(class_of, kind="stable"), class_sizes.cumsum()[:-1])
        clients, displaced = [], 0
        for size, row in zip(sizes, logs, strict=True):
            counts, elsewhere = serve(size, row, self.alpha, class_sizes, largest_remainder)
            displaced += elsewhere
            taken = [
                rng.choice(members, count, replace=False)
                for members, count in zip(by_class, counts, strict=True)
                if count
            ]
            clients.append(np.sort(np.concatenate(taken)))
        note = (
            f"allocation reuse: clients hold {sizes.sum()} samples in all, drawn from "
            f"{len(class_of)}; a sample may belong to several"
        )
        notes = (note, *_displaced_note(displaced, sizes))
        return Assignment([torch.from_numpy(c) for c in clients], notes, overlapping=True)


def fitted(drawn: Ints, num_samples: int, min_size: int) -> Ints:
    """Return the drawn sizes, or their proportional parts of ``num_samples`` if they exceed it.

    All are at least ``min_size``, where ``drawn`` is, and ``num_samples`` allows it.
    """
    if drawn.sum() <= num_samples:
        return drawn
    sizes = largest_remainder(num_samples, drawn / drawn.sum())
    for giver, receiver in list(moves(sizes, min_size)):
        sizes[giver] -= 1
        sizes[receiver] += 1
    return sizes


def serve_all(
    sizes: Ints,
    logs: Floats,
    alpha: float,
    class_sizes: Ints,
    rng: np.random.Generator,
    split: Callable[[int, Floats], Ints],
) -> tuple[Ints, int]:
    """Serve disjoint clients one after the other, in a random order; see :func:`serve`.

    Args:
        sizes: int64 ``[N]``, samples of each client; in sum at most those that exist.
        logs: ``[N, classes]``, draws of :func:`log_gamma_draws`.
        alpha: their concentration.
        class_sizes: int64 ``[classes]``.
        rng: decides the order.
        split: as in :func:`serve`.

    Returns:
        Counts int64 ``[classes, N]``, and how many samples are of another class than drawn.
    """
    counts = np.zeros(logs.T.shape, np.int64)
    left, displaced = class_sizes.copy(), 0
    for i in rng.permutation(len(sizes)):
        counts[:, i], elsewhere = serve(sizes[i], logs[i], alpha, left, split)
        left -= counts[:, i]
        displaced += elsewhere
    return counts, displaced


def serve(
    size: int, logs: Floats, alpha: float, left: Ints, split: Callable[[int, Floats], Ints]
) -> tuple[Ints, int]:
    """Choose how many samples of each class one client takes.

    Args:
        size: its number of samples, at most ``left.sum()``.
        logs: ``[classes]``, the draw that its q is made of.
        alpha: the concentration of the draw.
        left: int64 ``[classes]``, unused samples.
        split: divides a number of samples among classes of given shares: ``rng.multinomial``
            draws them one by one, :func:`largest_remainder` keeps to the shares.

    Returns:
        Counts int64 ``[classes]``, and how many of them had to be of another class than q asked.
    """
    counts, missing, displaced = np.zeros_like(left), int(size), None
    open_ = np.ones(len(left), np.bool_)
    # What exceeds a class is split again among the others. For single draws that is the paper's
    # rule: drawing on from q and skipping used-up classes is drawing from q without them.
    while missing:
        shares = dirichlet_shares(np.where(open_, logs, -np.inf)[None], alpha)[0]
        counts += np.minimum(split(missing, shares), left - counts)
        open_ = counts < left
        missing = int(size - counts.sum())
        displaced = missing if displaced is None else displaced
    return counts, displaced or 0


def _displaced_note(displaced: int, sizes: Ints) -> tuple[str, ...]:
    if not displaced:
        return ()
    return (
        f"{displaced} of {sizes.sum()} samples are of another class than their client drew: that "
        "one was used up",
    )
