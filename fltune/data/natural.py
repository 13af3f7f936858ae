"""The clients that a data set comes with: writers, users, generators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.partition import Assignment, Ints, Partition
from fltune.errors import DataError


@dataclass(frozen=True)
class Natural(Partition):
    """The data set's own clients, such as the writers of handwritten letters.

    Caldas et al., "LEAF: A Benchmark for Federated Settings" (2018). Client j is the j-th smallest
    id. Where ``data.clients`` asks for fewer than there are, so many are drawn with the
    partition's seed, uniformly and without replacement, and the samples of the others are unused.
    Validation samples are held out of every client in proportion, also of those not drawn, so that
    they do not depend on the partition's seed.

    Raises:
        DataError: the data set has no clients of its own, or fewer than asked for.
    """

    def known_clients(self, groups: Tensor | None, num_samples: int) -> Tensor:
        """Return the data set's own clients.

        Raises:
            DataError: it has none.
        """
        if groups is None:
            raise DataError(_NONE_KNOWN)
        return groups

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Give every client its own samples."""
        if groups is None:
            raise DataError(_NONE_KNOWN)
        ids = np.unique(groups[groups >= 0])
        if num_clients > len(ids):
            raise DataError(
                f"{num_clients} clients are asked for; the data has {len(ids)} of its own. "
                f"Set data.clients to {len(ids)} or fewer"
            )
        notes: list[str] = []
        if num_clients < len(ids):
            notes.append(f"{num_clients} of the data's {len(ids)} clients, drawn at random")
            ids = np.sort(rng.choice(ids, num_clients, replace=False))
        position = np.minimum(np.searchsorted(ids, groups), num_clients - 1)
        owner = np.where(ids[position] == groups, position, -1)
        return Assignment.of_owners(owner, num_clients, *notes)


_NONE_KNOWN = (
    "the natural partition needs a data set with clients of its own, and this one has none; "
    "choose another kind, or give client ids in a file (kind: file)"
)
