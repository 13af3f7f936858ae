"""Pathological label skew: sorted samples in equal shards, a few shards per client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fltune.data.partition import Assignment, Ints, Partition, classes_of
from fltune.errors import DataError
from fltune.parameters import parameter


@dataclass(frozen=True)
class Shards(Partition):
    """A client holds ``per_client`` equal shards of the samples sorted by class.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data"
    (2017, section 3) deal the N k shards at random. The authors of Haddadpour et al., "Federated
    Learning with Compression: Unified Analysis and Sharp Guarantees" (2021, their program) deal
    them in strides: client j has the shards j, j + N, ..., j + (k-1) N, so that neighbours share
    classes, and the seed changes nothing.

    A client has about k classes: fewer where two of its shards are of one class, more where a shard
    spans two. The last n mod N k sorted samples, of the last class, are unused.

    Raises:
        DataError: there are fewer samples than shards, or the labels are no class ids.
    """

    per_client: int = parameter(2, "shards of a client, about its number of classes", ge=1)
    deal: str = parameter(
        "strided",
        "who gets which shards: every N-th one, or random ones",
        choices=("strided", "random"),
    )

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Cut the sorted samples and deal the shards."""
        class_of, _ = classes_of(labels, self)
        shards = num_clients * self.per_client
        length = len(labels) // shards
        if length == 0:
            raise DataError(
                f"{num_clients} clients with {self.per_client} shards each need {shards} samples; "
                f"there are {len(labels)}"
            )
        client = np.arange(shards) % num_clients
        if self.deal == "random":
            client = rng.permutation(client)
        owner = np.full(len(labels), -1)
        by_class = np.argsort(class_of, kind="stable")
        owner[by_class[: shards * length]] = client.repeat(length)
        return Assignment.of_owners(owner, num_clients)
