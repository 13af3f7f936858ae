"""What a method takes over from another one's winner, and whether it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fltune.errors import ConfigError
from fltune.search.method import Method
from fltune.search.proposer import content_key
from fltune.search.settings import SearchSettings
from fltune.search.space import Point


def bequest(heir: Method, source: Method, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that an heir takes over from a point of its source's space.

    Raises:
        ValueError: a tied value cannot be computed there.
    """
    assert heir.inherit is not None
    space, own = source.space, heir.space.entries
    found = {**space.resolve(point), **space.readable(point)}
    drawn = [k for k in space.entries if any(d == k or d.startswith(f"{k}.") for d in point)]
    keys = heir.inherit.keys
    wanted = keys if keys is not None else [k for k in drawn if k in own]
    return {key: found[key] for key in wanted if key in found}


def bequest_problems(heir: Method, source: Method, search: SearchSettings) -> list[str]:
    """Return why a method could not take over what its source may find.

    A winner that its heirs cannot have would end the search hours after its start. So each value of
    a list that is taken over is tried, and both ends of a range; what both methods search alike has
    been judged already, unless a trial has fewer rounds than the winner.
    """
    where = f"methods.{heir.name}.inherit"
    found: dict[str, None] = {}
    first = [] if search.rounds is None else [source.space.first()]
    for point in (*first, *_winners(heir, source)):
        try:
            values = bequest(heir, source, point)
        except ValueError:  # such a point fails there, and never wins
            continue
        for text in _problems_with(heir, values, search):
            own = text.removeprefix(f"methods.{heir.name}.").removeprefix("space.")
            found[f"{where}: {own}, if {source.name!r} finds {_told(values)}"] = None
    return list(found)


def _winners(heir: Method, source: Method) -> Iterator[Point]:
    """Yield points that differ from the first in one value, which the heir may not know."""
    first = source.space.first()
    known = heir.space.entries
    wanted = (heir.inherit.keys if heir.inherit else None) or tuple(known)
    for name, dimension in source.space.active(first).items():
        key = next((k for k in source.space.entries if name == k or name.startswith(f"{k}.")), "")
        if key in wanted and known.get(key) != source.space.entries[key]:
            yield from (source.space.first({name: value}) for value in dimension.values)


def _problems_with(heir: Method, values: Mapping[str, Any], search: SearchSettings) -> list[str]:
    try:
        fixed = heir.fixing(values)
    except ConfigError as error:
        return error.problems
    point = {**values, **fixed.first_values()}
    found = fixed.problems(point)
    if found or search.rounds is None or not fixed.needs_trials(search):
        return found
    short = fixed.problems(point, fixed.of_trials(search))
    return [f"{text} (in a trial of search.rounds)" for text in short]


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in values.items())


def heirs_of(heir: Method, source: Method, points: Iterable[Point]) -> Iterator[Method]:
    """Yield an heir as it would be, if its source found each of some points; not where it cannot.

    Methods in which it has equal values are one and the same object.
    """
    made: dict[str, Method] = {}
    for point in points:
        try:
            values = bequest(heir, source, point)
            key = content_key(values)
            made[key] = made[key] if key in made else heir.fixing(values)
        except (ConfigError, ValueError):
            continue
        yield made[key]


def without_inherited(method: Method, methods: Mapping[str, Method]) -> Method:
    """Return a method of some with what it inherits set as by :func:`heir_of_first`."""
    if method.inherit is None:
        return method
    return heir_of_first(method, methods[method.inherit.source])


def heir_of_first(heir: Method, source: Method) -> Method:
    """Return an heir with what it inherits set to the first values of its source's space."""
    found = source.space.resolve(source.first_values())
    keys = (heir.inherit.keys if heir.inherit else None) or tuple(source.space.entries)
    try:
        return heir.fixing({key: found[key] for key in keys if key in found})
    except ConfigError:  # these values do not suit it, others may
        return heir
