"""Dirichlet draws that hold at any concentration, and the redraws of partitions made of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fltune.data.partition import (
    Assignment,
    Floats,
    Ints,
    Partition,
    classes_of,
    fill,
    owners_by_class,
    require,
)
from fltune.parameters import parameter


def concentration(limits: str) -> float:
    """Declare the alpha of a Dirichlet partition; ``limits`` says what its ends are."""
    return parameter(0.5, f"concentration; {limits}", symbol="alpha", gt=0, lt=math.inf)


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


@dataclass(frozen=True)
class DirichletShares(Partition):
    """Deals every class by shares that :meth:`draw_counts` draws; all samples are used.

    While a client holds fewer than ``min_size`` samples, the whole partition is redrawn, at most
    ``max_tries`` times in all. Small alpha with many clients never gets there by chance (10,000
    clients, 54,000 samples, alpha 1: hopeless), so after the last try it is repaired: one random
    sample at a time goes from the largest client to the smallest, until all hold ``min_size``.

    Raises:
        DataError: ``min_size * N`` exceeds the number of samples, or the labels are no class ids.
    """

    alpha: float = concentration("towards infinity clients are iid")
    min_size: int = parameter(1, "samples that every client holds at least", ge=1)
    # A draw that succeeds once in five tries is found 99 times in 100; rarer ones are mostly
    # hopeless, and 10,000 clients pay for every try.
    max_tries: int = parameter(20, "draws before the last one is repaired", ge=1, le=1000)

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Draw until all clients hold ``min_size`` samples, or repair the last draw."""
        class_of, class_sizes = classes_of(labels, self)
        require(len(labels), num_clients, self.min_size)
        for _ in range(self.max_tries):  # sizes do not depend on the shuffle: draw it once, below
            counts = self.draw_counts(class_sizes, num_clients, rng)
            if counts.sum(0).min() >= self.min_size:
                break
        shuffled = rng.permutation(len(labels))
        owner = owners_by_class(counts, class_of, shuffled)
        moved = fill(owner, num_clients, self.min_size, shuffled)
        if not moved:
            return Assignment.of_owners(owner, num_clients)
        note = (
            f"repaired: after {self.max_tries} draws, {moved} samples were moved one by one from "
            f"the largest clients to those with fewer than {self.min_size}"
        )
        return Assignment.of_owners(owner, num_clients, note)

    @abstractmethod
    def draw_counts(self, class_sizes: Ints, num_clients: int, rng: np.random.Generator) -> Ints:
        """Draw int64 ``[classes, N]``: how many samples of each class each client takes."""
