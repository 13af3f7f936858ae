"""Clients that a file names: those of a recorded run, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.natural import Natural
from fltune.data.partition import Assignment, Ints, Partition
from fltune.data.partition_file import SavedPartition, checksum, read_owners, read_partition
from fltune.errors import DataError
from fltune.parameters import parameter

ENDINGS = (".json", ".csv", ".npy")


@dataclass(frozen=True)
class FromFile(Partition):
    """The clients that a file names; its forms are those of :mod:`fltune.data.partition_file`.

    ``.json`` is what ``fltune run --save-partition`` wrote: the same clients, bit by bit, for the
    same training samples. ``.csv`` and ``.npy`` hold client ids of your own and are treated like a
    data set's natural clients: see :class:`fltune.data.natural.Natural`.

    Raises:
        ValueError: the path has another ending.
        DataError: the file cannot be read, was made for other samples, or for another number of
            clients.
    """

    path: str = parameter(
        doc="the file: .json (saved), .csv (sample,client) or .npy (a client each)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.path).suffix not in ENDINGS:
            raise ValueError(
                f"FromFile: path = {self.path!r} is not allowed; must end in {', '.join(ENDINGS)}"
            )

    @property
    def recorded(self) -> bool:
        """Whether the file is one that a run has saved."""
        return Path(self.path).suffix == ".json"

    def known_clients(self, groups: Tensor | None, num_samples: int) -> Tensor | None:
        """Return the user's own ids; for a recorded partition, what it was made with."""
        if not self.recorded:
            return read_owners(self.path, num_samples)
        saved = read_partition(self.path)
        if saved.named is None:
            return groups if saved.val_by_client else None
        if len(saved.named) != num_samples:
            raise DataError(
                f"{self.path}: names clients of {len(saved.named)} training samples; the data set "
                f"has {num_samples}. Use the data it was made for, or save a partition anew"
            )
        return saved.named

    def draw(
        self, labels: NDArray, num_clients: int, rng: np.random.Generator, groups: Ints | None
    ) -> Assignment:
        """Return the clients of the file."""
        if not self.recorded:
            known = read_owners(self.path, len(labels)).numpy() if groups is None else groups
            return Natural().draw(labels, num_clients, rng, known)
        saved = read_partition(self.path)
        if saved.num_samples != len(labels) or saved.checksum != checksum(labels):
            raise DataError(f"{self.path}: {_made_for_others(saved, len(labels))}")
        held = saved.assignment.clients
        if len(held) != num_clients:
            raise DataError(
                f"{self.path}: holds {len(held)} clients, {num_clients} are asked for; set "
                f"data.clients to {len(held)}"
            )
        return saved.assignment


def _made_for_others(saved: SavedPartition, found: int) -> str:
    made_by = saved.made_by.get("data", {})
    keys = ("name", "val_from", "val_fraction", "split_seed")
    what = ", ".join(f"{key} {made_by[key]}" for key in keys if key in made_by)
    return (
        f"made for {saved.num_samples} training samples ({what}); these are {found} with other "
        "labels. Use the data it was made for, or save a partition anew"
    )
