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
        merged["methods"] = {
            name: _with_whole_dimensions(base, raw, name, entry)
            for name, entry in methods.items()
            if entry is not None
        }
    return merged


def _with_whole_dimensions(base: dict[str, Any], raw: dict[str, Any], name: str, entry: Any) -> Any:
    """Replace dimensions of a space whole: half a grid laid over a range would be neither."""
    below, above = (((f.get("methods") or {}).get(name) or {}).get("space") for f in (base, raw))
    if isinstance(entry, dict) and isinstance(below, dict) and isinstance(above, dict):
        return {**entry, "space": {**below, **above}}
    return entry
