"""One pass over the entries of a space: which are active, what is drawn, what follows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fltune.search.condition import Condition
from fltune.search.dimension import Dimension
from fltune.search.entries import Entry, OpenError

if TYPE_CHECKING:
    from fltune.search.space import Space


class CircleError(ValueError):
    """Entries that depend on each other in a circle.

    Args:
        members: their names; the first is also the last.
    """

    def __init__(self, members: Sequence[str]) -> None:
        self.members = tuple(members)
        super().__init__(f"depends on itself: {' -> '.join(members)}")


def depends_on(
    name: str, entries: Mapping[str, Entry], when: Mapping[str, tuple[Condition, ...]]
) -> list[str]:
    """Return the parameters that an entry's conditions and value read."""
    return list(dict.fromkeys([*(c.name for c in when.get(name, ())), *entries[name].reads]))


def ordered(
    entries: Mapping[str, Entry], when: Mapping[str, tuple[Condition, ...]]
) -> tuple[str, ...]:
    """Return the entries, each after those it depends on, else as they come.

    Raises:
        CircleError: there is no such order.
    """
    done: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise CircleError([*path[path.index(name) :], name])
        if name in entries and name not in done:
            for other in depends_on(name, entries, when):
                visit(other, (*path, name))
            done[name] = None

    for name in entries:
        visit(name, ())
    return tuple(done)


def deciding(
    entries: Mapping[str, Entry], when: Mapping[str, tuple[Condition, ...]]
) -> frozenset[str]:
    """Return the entries whose values decide which others are active, or how much is drawn."""
    found: set[str] = set()
    waiting = [c.name for conditions in when.values() for c in conditions]
    waiting += [n for e in entries.values() if e.draws_vary for n in e.reads]
    while waiting:
        name = waiting.pop()
        if name in entries and name not in found:
            found.add(name)
            waiting += entries[name].reads
    return frozenset(found)


class Walk:
    """The state of one pass over the entries, in the space's order.

    For each entry call :meth:`enter`, then :meth:`settle`.

    Args:
        space: what is walked.
        point: the point, if it is known; a name that is missing in it is left open.
        beside: what a run sets beside its point, such as fewer rounds; entries read it there.
    """

    def __init__(
        self,
        space: Space,
        point: Mapping[str, Any] | None = None,
        beside: Mapping[str, Any] | None = None,
    ) -> None:
        self.space = space
        self.point = dict(point or {})
        self.beside = beside or {}
        self.values: dict[str, Any] = {}
        self.open: set[str] = set()
        self.failures: dict[str, str] = {}
        self._drawn: dict[str, Dimension] | None = None

    def fork(self) -> Walk:
        """Return a copy that goes another way from here."""
        other = Walk(self.space, self.point, self.beside)
        other.values, other.open = dict(self.values), set(self.open)
        other.failures, other._drawn = dict(self.failures), self._drawn
        return other

    def key(self) -> str:
        """Return a text that is equal for walks with the same future."""
        deciding = {k: v for k, v in self.values.items() if k in self.space.deciding}
        return json.dumps(deciding, sort_keys=True, default=repr)

    def look(self, name: str) -> Any:
        """Return the value of a parameter: set beside the point, of it, or the method's own.

        Raises:
            ValueError: it has none here: not active, or of a component that is not there.
            OpenError: the point leaves it open, and the method's own value is not known.
        """
        space = self.space
        if name in self.beside:
            return self.beside[name]
        if name in self.values:
            return self.values[name]
        if name in space.entries and name not in self.open:
            raise ValueError(f"{name} has no value here ({self.failures.get(name, 'not active')})")
        for component, kept in space.sections.items():
            section = component.rpartition(".")[0]
            there = self.values.get(component, space.own.get(component))
            inside = name.startswith(f"{section}.") and name != component
            key = name.removeprefix(f"{section}.").split(".")[0]
            if inside and key not in kept and there != space.own.get(component):
                raise ValueError(f"{name} has no value here ({component} is {there!r})")
        if name not in space.own:
            raise OpenError(name)
        return space.own[name]

    def enter(self, name: str) -> dict[str, Dimension]:
        """Return what is drawn for an entry: nothing if it is not active."""
        self._drawn = None
        if self.active(name):
            try:
                self._drawn = self.space.entries[name].draws(name, self.look)
            except (ValueError, OpenError) as error:
                self._without_value(name, error)
        return self._drawn or {}

    def settle(self, name: str, point: Mapping[str, Any]) -> None:
        """Work out the value of the entry that was entered last."""
        if self._drawn is None:
            return
        try:
            drawn = {n: point[n] for n in self._drawn}
        except KeyError:
            self.open.add(name)
            return
        try:
            self.values[name] = self.space.entries[name].value(name, drawn, self.look)
        except (ValueError, OpenError) as error:
            self._without_value(name, error)

    def active(self, name: str) -> bool:
        """Whether an entry's conditions hold; those before it must be settled."""
        for condition in self.space.when.get(name, ()):
            try:
                met = condition.holds(self.look(condition.name))
            except (ValueError, OpenError):  # what has no value meets no condition
                met = False
            if not met:
                return False
        return True

    def _without_value(self, name: str, error: Exception) -> None:
        reads = self.space.entries[name].reads
        if isinstance(error, OpenError) or not self.open.isdisjoint(reads):
            self.open.add(name)  # a partial point says too little
        else:
            self.failures[name] = str(error)
