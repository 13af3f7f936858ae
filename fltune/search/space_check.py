"""Puts the values of a space through the typed config, before anything starts.

An entry is judged at partial points: its own candidates (the values of a list, both ends of a
range), combined with those of everything that decides over it: the parameters its conditions and
ties read, directly or through others, and the components whose section it stands in. All else is
left open.

All such combinations are judged where there are few. Of more than :data:`JUDGED`, that many are
taken at equal distances, each of the entry's own candidates at least once; and no more than
:data:`HELD` are held at a time. A mistake in a file lies in a value, in a formula or in a missing
condition and shows in all combinations or in a regular part of them. What hides in one of thousands
fails its own trial, with the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fltune.search.dimension import Dimension
from fltune.search.space import Point, Space
from fltune.search.walk import Walk, depends_on

JUDGED = 100
"""Combinations put through the typed config (about a millisecond each) for one entry."""
HELD = 1000
"""Combinations kept while they are made."""

Judge = Callable[[Mapping[str, Any]], list[str]]
"""Returns what is wrong with the config of a partial point."""


@dataclass
class Verdict:
    """What was found wrong with an entry at one partial point.

    Attributes:
        value: the entry's own value, in words; empty if it has none.
        context: the values of what decides over it.
        texts: problems, a sentence each.
    """

    value: str
    context: dict[str, Any]
    texts: list[str]


def space_problems(space: Space, judge: Judge, where: str) -> list[str]:
    """Return what is wrong with the values of a space, a sentence each.

    Args:
        space: what is searched.
        judge: the typed config.
        where: dotted key of the space, for messages.
    """
    found = []
    for name in space.order:
        verdicts, complete = _verdicts(space, name, judge)
        if not verdicts and complete:
            conditions = " and ".join(c.describe() for c in space.when[name])
            found.append(f"{where}.{name}: never counts; {conditions} never holds")
        for text, shown in _told(verdicts):
            other = text.split(":")[0]
            if other == name or other not in space.entries:  # else told of that one
                found.append(f"{where}.{name}{shown}: {text.removeprefix(f'{name}: ')}")
    if found:
        return found
    switches = [n for n in space.order if n in space.deciding or n in space.sections]
    verdicts = []
    for start, _ in _spread(_contexts(space, switches)[0], JUDGED):
        verdicts.append(Verdict("", start, judge(space.first(start))))
    return [f"{where}{shown}: {text}" for text, shown in _told(verdicts)]


def _verdicts(space: Space, name: str, judge: Judge) -> tuple[list[Verdict], bool]:
    """Judge one entry; also say whether all combinations were made."""
    contexts, complete = _contexts(space, _above(space, name))
    contexts = [(point, walk) for point, walk in contexts if walk.active(name)]
    own = max((len(_choices(space, name, walk)) for _, walk in contexts), default=1)
    verdicts = []
    for point, walk in _spread(contexts, max(1, JUDGED // own)):
        for choice in _choices(space, name, walk):
            here = walk.fork()
            here.settle(name, choice)
            drawn = next(iter(choice.values()), here.values.get(name))
            searched = bool(choice) or bool(point)
            text = str(drawn) if searched and name in here.values else ""
            wrong = here.failures.get(name)
            texts = [f"{name}: {wrong}"] if wrong else judge({**point, **choice})
            verdicts.append(Verdict(text, point, texts))
    return verdicts, complete


def _above(space: Space, name: str) -> list[str]:
    """Return the entries that decide over one: whether it counts, what it is, what it means."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        components = [c for c in space.sections if here.startswith(c.rpartition(".")[0] + ".")]
        for other in (*depends_on(here, space.entries, space.when), *components):
            if other in space.entries and other not in found and other != name:
                found.add(other)
                waiting.append(other)
    return [n for n in space.order if n in found]


def _contexts(space: Space, names: Iterable[str]) -> tuple[list[tuple[Point, Walk]], bool]:
    """Return the combinations of some entries' candidates, and whether these are all."""
    states, complete = [(Point(), Walk(space))], True
    for name in names:
        further = []
        for point, walk in states:
            for choice in _choices(space, name, walk):
                after = walk.fork()
                after.settle(name, choice)
                further.append(({**point, **choice}, after))
        states, complete = _spread(further, HELD), complete and len(further) <= HELD
    return states, complete


def _choices(space: Space, name: str, walk: Walk) -> list[Point]:
    """Enter an entry; return what may be drawn for it. A list of draws takes one value for all."""
    drawn = walk.enter(name)
    columns = {n: _candidates(space, n, d) for n, d in drawn.items()}
    count = max(map(len, columns.values()), default=1)
    return [{n: values[i] for n, values in columns.items()} for i in range(count)]


def _candidates(space: Space, name: str, dimension: Dimension) -> list[Any]:
    """Return the values to judge: of a range its ends, and what conditions compare it with."""
    if dimension.finite:
        return list(dimension.values)
    asked = [v for cs in space.when.values() for c in cs if c.name == name for v in c.wanted]
    return list(dict.fromkeys([*dimension.values, *(v for v in asked if v in dimension)]))


def _spread(items: list[Any], count: int) -> list[Any]:
    """Return at most ``count`` of the items, at equal distances."""
    if len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]


def _told(verdicts: list[Verdict]) -> Iterable[tuple[str, str]]:
    """Yield every problem once, with the values it is found at (nothing if at all of them)."""
    for text in dict.fromkeys(t for v in verdicts for t in v.texts):
        bad = [v for v in verdicts if text in v.texts]
        if len(bad) == len(verdicts):
            yield text, ""
            continue
        values = list(dict.fromkeys(v.value for v in bad))
        shown = f" = {', '.join(values)}" if any(values) else ""
        well = [v for v in verdicts if text not in v.texts and (not shown or v.value in values)]
        where = _where(bad, well) if well else ""
        yield text, shown if where in text else f"{shown} where {where}"


def _where(bad: list[Verdict], well: list[Verdict]) -> str:
    """Return what tells the bad contexts from the good ones: one parameter, or the first of all."""
    for name in bad[0].context:
        wrong = list(dict.fromkeys(str(v.context.get(name)) for v in bad))
        if not {str(v.context.get(name)) for v in well}.intersection(wrong):
            return f"{name} = {', '.join(wrong)}"
    return ", ".join(f"{name} = {value}" for name, value in bad[0].context.items())
