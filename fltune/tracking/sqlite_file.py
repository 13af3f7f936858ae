"""The sqlite file of a tracking store: proven writable, and written while others read it.

In sqlite's usual mode a commit waits for all who read, as an open MLflow UI does, and for the disk
some three times: four commits a run took 12 ms each beside other work. With a write-ahead log it
waits for no reader, and took 3 ms. Such a log wants memory that all who have the file open share,
which a network file system does not give: there, the file stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
"""File systems of one machine."""


def prove_writable(path: Path) -> None:
    """See that a database can be written, which is made if need be.

    Raises:
        OSError, sqlite3.Error: why it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):  # sqlite needs a journal beside the file
        raise PermissionError(f"no permission to write in {path.parent}")
    with closing(sqlite3.connect(path, timeout=5)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.rollback()


def log_ahead(path: Path) -> None:
    """Give a writable database a write-ahead log, where its file system bears one.

    The file keeps it for good. Somebody who is using the file just now may prevent it; the next
    search will do.
    """
    if file_system(path) not in LOCAL:
        return
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=0)) as database:
        database.execute("PRAGMA journal_mode = WAL")


def file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Return the kind of file system that a path lies on; "" where that cannot be told.

    Args:
        path: of something that exists.
        mounts: the table of what is mounted, in Linux's form.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system
        return ""
    kinds = {}  # the later of two at one place hides the earlier
    for line in lines:
        _, place, kind, *_ = line.split()
        kinds[Path(place.replace("\\040", " "))] = kind
    real = path.resolve()
    above = [folder for folder in (real, *real.parents) if folder in kinds]
    return kinds[above[0]] if above else ""
