"""All parameters of a method that are searched, and what follows from them.

Three layers:

- what Optuna stores: numbers and positions, by the name of what is drawn;
- a *point*: one JSON-able value for everything that is drawn, by dotted name
  (``{"server.lr": 0.5}``). Records, warm starts and MLflow hold points;
- *values*: the dotted config values that a point means, with what is fixed, tied or made of several
  draws. A run's config is its method's with these assigned.

A parameter counts (is *active*) where its conditions hold. One that does not is not drawn, is not
in the point, and leaves the method's own value alone.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fltune.errors import nearest
from fltune.search.condition import Condition
from fltune.search.dimension import Dimension
from fltune.search.entries import Entry, Fixed
from fltune.search.walk import Walk, deciding, ordered

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from fltune.search.warm_points import WarmPoint

Point = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """What a method searches.

    Attributes:
        entries: by dotted name; a :class:`Dimension` is a parameter that is searched.
        when: by dotted name, the conditions of an entry; all must hold.
        own: the method's own value of every parameter, by dotted name, for ties and conditions.
        sections: by dotted name of a searched component (``server.name``), what its section holds
            when another component than the method's own is put there.
        points: where the search starts.

    Raises:
        ValueError: entries that depend on each other in a circle.
    """

    entries: Mapping[str, Entry]
    when: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    points: tuple[WarmPoint, ...] = ()

    def __post_init__(self) -> None:
        ordered(self.entries, self.when)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The entries, each after what it depends on, else as the file has them."""
        return ordered(self.entries, self.when)

    @cached_property
    def deciding(self) -> frozenset[str]:
        """The entries whose values decide which others are active, or how much is drawn."""
        return deciding(self.entries, self.when)

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """The parameters that are drawn themselves, in the file's order."""
        return {k: e for k, e in self.entries.items() if isinstance(e, Dimension)}

    @property
    def open_ended(self) -> list[str]:
        """The entries whose values cannot be counted off."""
        return [name for name, e in self.entries.items() if not e.countable]

    # points

    def propose(self, draw: Callable[[str, BaseDistribution], Any]) -> Point:
        """Return a new point.

        Args:
            draw: asks the sampler for one number; called for what is active, in a fixed order.
        """
        return self.draws(lambda name, d: d.decode(draw(name, d.distribution())))

    def first(self, start: Mapping[str, Any] | None = None) -> Point:
        """Return the point made of every dimension's first value, but for those of ``start``."""
        chosen = start or {}
        return self.draws(lambda name, d: chosen.get(name, d.values[0]))

    def draws(self, take: Callable[[str, Dimension], Any]) -> Point:
        """Return the point whose values ``take`` gives, asked for what is active."""
        point: Point = {}
        walk = Walk(self)
        for name in self.order:
            for drawn, dimension in walk.enter(name).items():
                point[drawn] = take(drawn, dimension)
            walk.settle(name, point)
        return point

    def active(self, point: Mapping[str, Any]) -> dict[str, Dimension]:
        """Return what is drawn at a point, by name; of a partial point, as far as it goes."""
        return self._visit(point)[1]

    def distributions(self, point: Mapping[str, Any] | None = None) -> dict[str, BaseDistribution]:
        """Return what Optuna draws from at a point, by name; without one, if all were active."""
        found = self.dimensions if point is None else self.active(point)
        return {name: d.distribution() for name, d in found.items()}

    def decode(self, drawn: Mapping[str, Any]) -> Point:
        """Return the point behind what Optuna stores."""
        return self.propose(lambda name, _: drawn[name])

    def encode(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return what Optuna stores for a point; :meth:`propose` backwards, exactly.

        Raises:
            ValueError: naming each parameter that is missing, unknown, not active, or outside.
        """
        wrong = self.faults(point)
        if wrong:
            raise ValueError("; ".join(f"{name}: {text}" for name, text in wrong.items()))
        return {name: d.encode(point[name]) for name, d in self.active(point).items()}

    def faults(self, point: Mapping[str, Any]) -> dict[str, str]:
        """Return why a point is none of this space: by parameter, a sentence."""
        walk, active = self._visit(point)
        wrong: dict[str, str] = {}
        for name, dimension in active.items():
            try:
                if name not in point:
                    raise ValueError(f"missing; allowed: {dimension.describe()}")
                dimension.encode(point[name])
            except ValueError as error:
                wrong[name] = str(error)
        if not wrong:  # else what is active hangs on a wrong value
            wrong.update({k: self._misplaced(k, walk) for k in point if k not in active})
        return wrong

    def _misplaced(self, name: str, walk: Walk) -> str:
        if name in self.when and name not in walk.values:
            return f"counts only when {' and '.join(c.describe() for c in self.when[name])}"
        if name in self.entries and not isinstance(self.entries[name], Dimension):
            return f"not searched; the space says {self.entries[name].describe()}"
        known = list(self.active(walk.point))
        return (
            f"not drawn at this point{nearest(name, known)}; drawn: {', '.join(known) or 'nothing'}"
        )

    def _visit(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> tuple[Walk, dict[str, Dimension]]:
        walk, found = Walk(self, point, beside), {}
        for name in self.order:
            found.update(walk.enter(name))
            walk.settle(name, point)
        return walk, found

    # values

    def resolve(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the config values of a point, sections before what is inside them.

        Names that are not of this space (``seed``) are passed on. What a partial point leaves open,
        and what hangs on it, keeps the method's own value. A component other than the method's own
        comes as its whole section, so that no parameter of the old one stays in it.

        Args:
            point: may be partial.
            beside: what a run sets beside it, such as the fewer rounds of a trial. Ties and lengths
                of stages follow it, and it is passed on.

        Raises:
            ValueError: a value cannot be computed at this point, or what is drawn is another with
                ``beside`` than without.
        """
        walk, found = self._computed(point, beside)
        others = {k: v for k, v in point.items() if k not in found and k not in self.entries}
        others.update(beside or {})
        values: dict[str, Any] = {}
        for name, value in {**walk.values, **others}.items():
            section, _, key = name.rpartition(".")
            if name in self.sections and value != self.own.get(name):
                values[section] = {**copy.deepcopy(dict(self.sections[name])), key: value}
            else:
                values[name] = copy.deepcopy(value)
        return dict(sorted(values.items(), key=lambda item: item[0].count(".")))

    def readable(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what a person wants to see of a point: ties and lists, not what they are made of.

        Raises:
            ValueError: as :meth:`resolve`.
        """
        walk, _ = self._computed(point, beside)
        shown = {k: v for k, v in walk.values.items() if not isinstance(self.entries[k], Fixed)}
        return {k: shown[k] for k in self.entries if k in shown}

    def _computed(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None
    ) -> tuple[Walk, dict[str, Dimension]]:
        walk, found = self._visit(point, beside)
        if walk.failures:
            raise ValueError("; ".join(f"{k}: {text}" for k, text in walk.failures.items()))
        if beside and (moved := found.keys() ^ self.active(point).keys()):
            raise ValueError(f"{min(moved)}: whether it is drawn hangs on {', '.join(beside)}")
        return walk, found

    # grids

    @cached_property
    def cells(self) -> int | None:
        """The number of points; None where a dimension is continuous or an integer range."""
        if self.open_ended:
            return None
        states = {"": (Walk(self), 1)}
        for name in self.order:
            counted: dict[str, tuple[Walk, int]] = {}
            for walk, count in states.values():
                for after, times in self._branches(walk, name):
                    key = after.key()
                    before = counted.get(key, (after, 0))[1]
                    counted[key] = (after, before + count * times)
            states = counted
        return sum(count for _, count in states.values())

    def _branches(self, walk: Walk, name: str) -> Iterator[tuple[Walk, int]]:
        """Yield what becomes of a walk at an entry; what decides nothing later is only counted."""
        drawn = walk.enter(name)
        if name not in self.deciding:
            yield walk, math.prod(len(d.values) for d in drawn.values())
            return
        for combination in itertools.product(*(d.values for d in drawn.values())):
            after = walk.fork()
            after.settle(name, dict(zip(drawn, combination, strict=True)))
            yield after, 1

    def grid(self) -> Iterator[Point]:
        """Yield every point once, the last dimension fastest.

        Raises:
            ValueError: a dimension cannot be counted off.
        """
        if self.open_ended:
            raise ValueError(f"{self.open_ended[0]} is a range; an exact grid needs grid or choice")
        yield from self._cells_from(0, Walk(self), {})

    def _cells_from(self, start: int, walk: Walk, point: Point) -> Iterator[Point]:
        if start == len(self.order):
            yield point
            return
        name = self.order[start]
        drawn = walk.enter(name)
        for combination in itertools.product(*(d.values for d in drawn.values())):
            further = {**point, **dict(zip(drawn, combination, strict=True))}
            after = walk.fork()
            after.settle(name, further)
            yield from self._cells_from(start + 1, after, further)

    # what is shown

    def edges(self, point: Mapping[str, Any]) -> dict[str, str]:
        """Return the parameters whose value lies on a border: name to lowest or highest."""
        found = {k: d.edge(point[k]) for k, d in self.active(point).items() if k in point}
        return {name: edge for name, edge in found.items() if edge is not None}

    def describe(self) -> dict[str, str]:
        """Return every entry in short, by dotted name."""
        return {
            name: " when ".join([e.describe(), *self._conditions(name)])
            for name, e in self.entries.items()
        }

    def _conditions(self, name: str) -> list[str]:
        conditions = self.when.get(name, ())
        return [" and ".join(c.describe() for c in conditions)] if conditions else []

    def to_yaml(self) -> dict[str, Any]:
        """Return the ``space`` section that says the same."""
        written = {}
        for name, entry in self.entries.items():
            conditions = {c.name: c.test for c in self.when.get(name, ())}
            written[name] = {**entry.to_yaml(), **({"when": conditions} if conditions else {})}
        return written
