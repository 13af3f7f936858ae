"""A search file that starts from another one: ``extends: other.yaml``, and only what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fltune import dotted
from fltune.errors import ConfigError


def read_extended(path: str | Path) -> dict[str, Any]:
    """Read a YAML file with everything that it extends.

    A path after ``extends`` is taken from the folder of the file that says it. Mappings are laid
    over each other key by key; a section that names another component, a list and a method's
    ``space`` entry replace the old one. ``null`` removes a method.

    Raises:
        ConfigError: a file is missing or no YAML mapping, or the files extend each other in a ring.
    """
    return _read(Path(path), ())


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    here = path.resolve()
    if here in above:
        ring = " -> ".join(p.name for p in (*above, here))
        raise ConfigError(f"extends: the files extend each other in a ring: {ring}", str(path))
    raw = dotted.read_yaml(path)
    if "extends" not in raw:
        return raw
    parent = raw.pop("extends")
    if not isinstance(parent, str):
        text = f"extends: found {parent!r}; the name of one file belongs there"
        raise ConfigError(text, str(path))
    base = _read(path.parent / parent, (*above, here))
    merged = dotted.merge(base, raw)
    methods = merged.get("methods")
    if isinstance(methods, dict):
        old, new = (f.get("methods") or {} for f in (base, raw))
        merged["methods"] = {
            name: with_whole_dimensions(old.get(name), new.get(name), entry)
            for name, entry in methods.items()
            if entry is not None
        }
    return merged


def with_whole_dimensions(below: Any, above: Any, merged: Any) -> Any:
    """Replace dimensions of a space whole: half a grid laid over a range would be neither.

    Args:
        below, above: what a method's section was made of.
        merged: the one laid over the other.
    """
    spaces = [e.get("space") for e in (below, above) if isinstance(e, dict)]
    whole = [space for space in spaces if isinstance(space, dict)]
    return {**merged, "space": {**whole[0], **whole[1]}} if len(whole) == 2 else merged
