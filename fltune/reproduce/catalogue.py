"""Which files are an experiment: by their own name, or by the id that they give themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fltune import dotted
from fltune.errors import ConfigError, nearest
from fltune.report.spaces import space_files
from fltune.reproduce.claims import Claims, read_claims
from fltune.search.extends import read_extended

EVERYTHING = "all"


@dataclass(frozen=True)
class Entry:
    """One file of an experiment.

    Attributes:
        path: the file.
        paper, experiment, shows: as it says itself.
        stands_for: the papers' experiments that it is a small variant of; empty for a paper's own.
        claims: what is judged, and how its figure is drawn.
    """

    path: Path
    paper: str
    experiment: str
    shows: str
    stands_for: tuple[str, ...]
    claims: Claims

    @property
    def name(self) -> str:
        """What its pages are called; an experiment may have several files."""
        return self.path.stem

    @classmethod
    def read(cls, path: Path) -> Entry:
        """Read a file.

        Raises:
            ConfigError: it is no YAML mapping, or its claims are wrong.
        """
        about: Any = read_extended(path).get("about")
        about = about if isinstance(about, dict) else {}
        return cls(
            path,
            str(about.get("paper") or ""),
            str(about.get("experiment") or path.stem),
            str(about.get("shows") or ""),
            _listed(about.get("mini_of")),
            read_claims(path),
        )


def _listed(names: Any) -> tuple[str, ...]:
    return tuple(map(str, names)) if isinstance(names, list) else ()


def find(what: str, spaces: Path, mini: bool = False) -> list[Entry]:
    """Return the files of an experiment.

    Args:
        what: a file's name, which is that file alone; an id (``fedcdr-tab2``); or ``all``.
        spaces: the folder that holds ``papers`` and ``mini``.
        mini: the small variants: of the experiment, or all there are.

    Raises:
        ConfigError: there is no such experiment, or none of its small variants.
    """
    ours = _judged(spaces)
    if what == EVERYTHING:
        wanted = [entry for entry in ours if bool(entry.stands_for) == mini]
    else:
        wanted = [entry for entry in ours if what == entry.path.stem]
        wanted = wanted or [entry for entry in ours if what == entry.experiment]
        if mini and not any(entry.stands_for for entry in wanted):
            wanted = [entry for entry in ours if what in entry.stands_for]
    if not wanted:
        known = sorted({entry.experiment for entry in ours})
        small = " with a small variant" if mini else ""
        there = f"there are: {', '.join(known)}" if known else f"{spaces} holds none"
        raise ConfigError(f"no experiment {what!r}{small}{nearest(what, known)}; {there}")
    return [Entry.read(entry.path) for entry in wanted]


def views_beside(entry: Entry, spaces: Path) -> list[str]:
    """Return the names of the other files of an entry's experiment: fair ones, other data."""
    ours = [one for one in _judged(spaces) if one.experiment == entry.experiment]
    return [one.path.stem for one in ours if one.path.stem != entry.name]


def names(spaces: Path, mini: bool = False) -> set[str]:
    """Return the names of the papers' files, or of the small variants; none without the folder."""
    return {one.path.stem for one in _judged(spaces) if bool(one.stands_for) == mini}


def _judged(spaces: Path) -> list[_Named]:
    return [entry for entry in map(_Named.read, space_files(spaces)) if entry.judged]


@dataclass(frozen=True)
class _Named:
    """What a file says of itself, without what it extends: there are many files to look through."""

    path: Path
    experiment: str
    stands_for: tuple[str, ...]
    judged: bool

    @classmethod
    def read(cls, path: Path) -> _Named:
        raw = dotted.read_yaml(path)
        about = raw.get("about")
        about = about if isinstance(about, dict) else {}
        judged = bool(raw.get("claims") or raw.get("computes"))
        experiment = str(about.get("experiment") or path.stem)
        return cls(path, experiment, _listed(about.get("mini_of")), judged)
