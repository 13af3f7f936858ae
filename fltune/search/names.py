"""What a search may be called: its name becomes a folder."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 255
"""Of the name of a folder, on all usual file systems."""
SHOWN = 40
"""Characters of a name that is too long, in the message."""


def plain_name(name: str) -> str:
    """Return the name of a search, if a folder can have it.

    Nothing is appended to it later, so it may be as long as a folder's name.

    Raises:
        ValueError: it is empty, leads to another folder, or is too long; says what is allowed.
    """
    length = len(name.encode(errors="surrogateescape"))
    if length > MOST_BYTES:
        raise ValueError(
            f"found {name[:SHOWN] + '…'!r} of {length} bytes; must be a plain name, of at most "
            f"{MOST_BYTES}"
        )
    if name in ("", "..") or name != Path(name).name or "\0" in name:
        raise ValueError(f"found {name!r}; must be a plain name, without slashes")
    return name


def is_plain(name: str) -> bool:
    """Return whether a search can be called so."""
    try:
        plain_name(name)
    except ValueError:
        return False
    return True
