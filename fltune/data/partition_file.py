"""Partitions in files: what a run recorded, and client ids of the user's own.

A recorded partition is one JSON object: the samples of each client, what the partition was made of
(``made_by``: the data section of the config and the seed), and a checksum of the labels it was made
for. Samples are counted after the validation samples were held out; where each client held out its
own (``val_from: clients``), before that, and they are among the client's samples. Where a file of
the user's named the clients it holds these too (``named``), of all samples before any was held out:
they say which ones validate.

A user's own ids come as CSV, ``sample,client`` in the header and one line per sample, or as an
``.npy`` vector with a client per sample, negative for an unused one. Samples are counted from 0 in
the data set's training samples, before any is held out. Client names of a CSV are whole numbers or
any words.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.federated import VAL_IS_TEST, FederatedData
from fltune.data.partition import Assignment, Ints
from fltune.errors import DataError

FORMAT = "fltune-partition"
VERSION = 1


@dataclass(frozen=True, eq=False)
class SavedPartition:
    """A recorded partition.

    Attributes:
        made_by: the data section of the config and the partition's seed.
        num_samples: n, training samples that were dealt.
        checksum: of their labels; see :func:`checksum`.
        val_by_client: whether validation samples were held out of every client in proportion.
        assignment: who got what.
        named: int64, see :attr:`fltune.data.federated.FederatedData.named`.
    """

    made_by: Mapping[str, Any]
    num_samples: int
    checksum: str
    val_by_client: bool
    assignment: Assignment
    named: Tensor | None = None


def checksum(labels: NDArray) -> str:
    """Return a hash of class ids ``[n]`` or targets ``[n, k]``, the same on every machine."""
    kind = "<i8" if np.issubdtype(labels.dtype, np.integer) else "<f8"
    return "sha256:" + hashlib.sha256(np.ascontiguousarray(labels, kind).tobytes()).hexdigest()


def write_partition(path: str | Path, data: FederatedData, made_by: Mapping[str, Any]) -> None:
    """Record who holds what.

    Args:
        path: a ``.json`` file; replaced if it exists.
        data: the federated data.
        made_by: what it came from, as plain values.

    Raises:
        DataError: the file has another ending, or cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise DataError(f"{path}: a partition is saved as JSON; name the file *.json")
    saved = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": dict(made_by),
        "samples": len(data.train),
        "labels": checksum(data.train.y.cpu().numpy()),
        "val_by_client": data.val_by_client,
        "overlapping": bool(data.uses.max() > 1),
        "notes": [note for note in data.notes if note != VAL_IS_TEST],  # of how it was dealt
        "clients": [_dealt(data, i).tolist() for i in range(data.num_clients)],
    }
    if data.named is not None:
        saved["named"] = data.named.tolist()
    try:
        path.write_text(json.dumps(saved, separators=(",", ":")) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error


def _dealt(data: FederatedData, i: int) -> Tensor:
    """Return what a client was dealt, what it holds out included."""
    own = data.client(i).cpu()
    return torch.cat([own, data.held_out[i]]).sort().values if data.held_out else own


def read_partition(path: str | Path) -> SavedPartition:
    """Read what :func:`write_partition` wrote.

    Raises:
        DataError: the file cannot be read, is no partition, or one of a newer version.
    """
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: corrupt: {error}") from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise DataError(
            f"{path}: no saved partition; make one with `fltune run ... --save-partition {path}`"
        )
    if saved.get("version") != VERSION:
        raise DataError(
            f"{path}: version {saved.get('version')!r} of the format is not known here, only "
            f"{VERSION}; make the file anew"
        )
    try:
        clients = [torch.tensor(c, dtype=torch.int64).sort().values for c in saved["clients"]]
        assignment = Assignment(clients, tuple(saved["notes"]), bool(saved["overlapping"]))
        named = saved.get("named")
        return SavedPartition(
            dict(saved["made_by"]),
            int(saved["samples"]),
            str(saved["labels"]),
            bool(saved["val_by_client"]),
            assignment,
            None if named is None else torch.tensor(named, dtype=torch.int64),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: corrupt ({type(error).__name__}: {error}); make it anew"
        ) from error


def read_owners(path: str | Path, num_samples: int) -> Tensor:
    """Read a user's own client ids, from ``.csv`` or ``.npy``.

    Args:
        path: the file.
        num_samples: n, training samples of the data set.

    Returns:
        int64 ``[n]``; negative for a sample that the file leaves out. Words are numbered in
        alphabetical order.

    Raises:
        DataError: the file cannot be read, or does not fit so many samples.
    """
    path = Path(path)
    try:
        owner = _from_npy(path) if path.suffix == ".npy" else _from_csv(path, num_samples)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    if owner.shape != (num_samples,):
        raise DataError(
            f"{path}: holds client ids of shape {owner.shape}; the data set has {num_samples} "
            "training samples, and each needs one (negative: unused)"
        )
    return torch.from_numpy(owner)


def _from_npy(path: Path) -> Ints:
    owner = np.load(path, allow_pickle=False)
    if not np.issubdtype(owner.dtype, np.integer):
        raise ValueError(f"holds {owner.dtype} values; client ids are whole numbers")
    return owner.astype(np.int64)


def _from_csv(path: Path, num_samples: int) -> Ints:
    """Return owners; ValueError with the line of what is wrong."""
    named: dict[int, str] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines, skipinitialspace=True)
        if not {"sample", "client"} <= set(reader.fieldnames or ()):
            raise ValueError(
                f"the header is {reader.fieldnames}; it needs the columns sample and client"
            )
        for row in reader:
            sample, client = row["sample"], row["client"]
            if not sample or not sample.isdecimal() or int(sample) >= num_samples:
                raise ValueError(
                    f"line {reader.line_num}: sample {sample!r} is not allowed; the data set has "
                    f"the training samples 0..{num_samples - 1}"
                )
            if not client or int(sample) in named:
                what = "has no client" if not client else "is there twice"
                raise ValueError(f"line {reader.line_num}: sample {sample} {what}")
            named[int(sample)] = client
    owner = np.full(num_samples, -1)
    owner[list(named)] = _numbered(list(named.values()))
    return owner


def _numbered(names: list[str]) -> Ints:
    try:
        return np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return np.unique(names, return_inverse=True)[1]
