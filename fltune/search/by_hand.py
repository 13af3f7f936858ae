"""What is set by hand, ``--set KEY=VALUE``: in the base experiment or in a method's section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fltune import dotted
from fltune.errors import ConfigError
from fltune.experiment import DataSection, Experiment
from fltune.registry import UnknownNameError
from fltune.schema import declared, named_sections

NAMED = {
    f"{above}{section}.{named.key}": named
    for above, model in (("", Experiment), ("data.", DataSection))
    for section, named in named_sections(model).items()
}
"""The keys that name a section's component."""


def switch(raw: dict[str, Any], key: str, value: Any, below: Mapping[str, Any]) -> None:
    """Set a dotted key; a key that names another component drops what only the old one has.

    ``participation.kind=bernoulli`` leaves no ``per_round`` of uniform cohorts behind, which
    Bernoulli cohorts do not know. What both have stays, as do keys that
    neither has: those are slips, and are told as such.

    Args:
        raw: a nested mapping; it is changed in place.
        key, value: what is set.
        below: what ``raw`` is laid over: its component is the old one where ``raw`` names none.

    Raises:
        ConfigError: the key passes through a value that is no section.
    """
    leave(raw, key, value, below)
    dotted.assign(raw, key, value)


def leave(raw: Mapping[str, Any], key: str, value: Any, below: Mapping[str, Any]) -> None:
    """Drop what only the old component has, as :func:`switch` does, and set nothing."""
    if key not in NAMED:
        return
    section, _, last = key.rpartition(".")
    here = _section(raw, section)
    old = here.get(last) or _section(below, section).get(last) or NAMED[key].default
    if here and old != value:
        for gone in _own_keys(key, old) - _own_keys(key, value):
            here.pop(gone, None)


def _section(raw: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return a section; empty where it is not there, or its component a bare name."""
    here: Any = raw
    for part in section.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    if isinstance(here, str):
        return dotted.written_out(section, here)
    return here if isinstance(here, dict) else {}


def _own_keys(key: str, name: Any) -> set[str]:
    """Return the keys that a component has; none of one that cannot be had, as is told later."""
    try:
        return set(declared(NAMED[key].registry.load(name))) if isinstance(name, str) else set()
    except (UnknownNameError, TypeError, ValueError):
        return set()


def assign_to_method(raw: dict[str, Any], start: str, key: str, value: Any) -> None:
    """Set ``methods.NAME.KEY``; a space's keys hold dots.

    Args:
        raw: the nested file; it is changed in place.
        start: ``methods.NAME.``, with which the key begins; empty if it begins with no method.
        key, value: what is set.

    Raises:
        ConfigError: there is no such method, or the key passes through a value that is no section.
    """
    entries = raw.get("methods") or {}
    if not start:
        known = ", ".join(map(str, entries)) if isinstance(entries, Mapping) else ""
        raise ConfigError(f"{key}: names no method; known: {known or 'none'}")
    name = next(n for n in entries if f"methods.{n}." == start)
    rest = key.removeprefix(start)
    entry = entries[name] = _mapping(entries[name], start)
    if rest.startswith("space."):
        space = entry["space"] = _mapping(entry.get("space"), f"{start}space.")
        space[rest.removeprefix("space.")] = value
    else:
        base = raw.get("experiment")
        switch(entry, rest, value, base if isinstance(base, Mapping) else {})


def _mapping(written: Any, start: str) -> dict[str, Any]:
    """Return a copy of a section of the file that a key begins with; empty where nothing is."""
    if written is not None and not isinstance(written, Mapping):
        raise ConfigError(f"{start.rstrip('.')}: found {written!r}; a mapping belongs there")
    return dict(written or {})


def set_in_base(
    base: dict[str, Any],
    entries: Mapping[str, dict[str, Any]],
    overrides: Mapping[str, Any],
) -> None:
    """Set what is the base's; what methods say of an old component there is dropped.

    The rest, of sections that are the methods' own, :func:`fltune.search.method.build_method` sets.

    Args:
        base: the base experiment; it is changed in place.
        entries: the methods' sections, likewise.
        overrides: what is set, by dotted name.
    """
    for key, value in overrides.items():
        for entry in entries.values():
            leave(entry, key, value, base)
        if _is_of_base(key, base, entries):
            switch(base, key, value, {})


def _is_of_base(key: str, base: Mapping[str, Any], entries: Mapping[str, Any]) -> bool:
    """Whether a value set by hand is one of the base's; else its section is the methods' own."""
    section, dot, _ = key.partition(".")
    everywhere = bool(entries) and all(section in entry for entry in entries.values())
    return not dot or (section in base and not everywhere)
