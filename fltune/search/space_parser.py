"""Reads the ``space`` section of a method.

Everything that can be said without running the typed config over values is said here: kinds and
bounds, names that exist, conditions that can hold, ties and conditions without circles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fltune import dotted
from fltune.errors import nearest
from fltune.search.condition import Condition, parse_conditions
from fltune.search.dimension import FINITE, RANGES, Dimension
from fltune.search.entries import Entry, Fixed, Paired, Tied
from fltune.search.expression import Expression
from fltune.search.space import Space
from fltune.search.stages import parse_stages
from fltune.search.walk import CircleError, depends_on, ordered

KINDS = (*FINITE, *RANGES, "fixed", "tied", "paired", "stages")
OPTIONS = ("when", "step", "with")


@dataclass(frozen=True)
class Surroundings:
    """What a space stands in.

    Attributes:
        own: the method's own value of every parameter, by dotted name; None if its config is wrong,
            and nothing can be said about names.
        given: parameters set by hand (``--set``), by dotted name; their entries are dropped.
        kept: by a section's dotted name, what stays in it when another component comes there.
    """

    own: Mapping[str, Any] | None
    given: Mapping[str, Any]
    kept: Callable[[str], Mapping[str, Any]]


def parse_space(
    written: Mapping[Any, Any], around: Surroundings, where: str, found: list[str]
) -> Space:
    """Read a ``space`` section, and add what is wrong with it to ``found``.

    What is wrong, and what hangs on it, is left out of the space, so that the rest can be judged.

    Args:
        written: the section.
        around: what is known of the method.
        where: dotted key of the section, for messages.
        found: problems, a sentence each.
    """
    entries: dict[str, Entry] = {}
    when: dict[str, tuple[Condition, ...]] = {}
    broken: dict[str, str] = {}
    for key, raw in written.items():
        name = str(key)
        if name in around.given:
            continue
        try:
            conditions = parse_conditions(raw["when"]) if _has(raw, "when") else ()
            entries[name] = parse_entry(name, raw, written, around.given)
        except ValueError as error:
            broken[name] = str(error)
            continue
        if conditions:
            when[name] = conditions
    order = _without_circles(entries, when, broken)
    if around.own is not None:
        _settle_given(order, entries, when, around)
        broken.update(_wrong_names(entries, when, broken, around.own))
    found += [f"{where}.{name}: {broken[name]}" for name in map(str, written) if broken.get(name)]
    sound = _sound(order, entries, when, broken)
    own = around.own or {}
    parts = {n: n.rpartition(".") for n in sound}
    return Space(
        sound,
        {n: when[n] for n in sound if n in when},
        own,
        {
            n: around.kept(section)
            for n, (section, _, last) in parts.items()
            if last == dotted.name_key(section) and n in own
        },
    )


def parse_entry(name: str, raw: Any, written: Mapping[Any, Any], given: Mapping[str, Any]) -> Entry:
    """Read the entry of one parameter.

    Args:
        name: its dotted name.
        raw: the entry.
        written: the whole section, for the list another one is paired with.
        given: parameters set by hand.

    Raises:
        ValueError: what was found and what is allowed.
    """
    if raw is None:
        raise ValueError("found nothing; to fix a parameter to null write {fixed: null}")
    if isinstance(raw, (str, int, float)):
        return Fixed(raw)
    kind = _kind(raw)
    for option, kinds in (("with", ("paired",)), ("step", RANGES)):
        if option in raw and kind not in kinds:
            raise ValueError(f"found {option}: {raw[option]!r}; it goes with {', '.join(kinds)}")
    if kind == "fixed":
        return Fixed(raw[kind])
    if kind == "tied":
        try:
            return Tied(Expression(raw[kind]))
        except ValueError as error:
            raise ValueError(f"tied: {error}") from None
    if kind == "paired":
        return _paired(raw, written, given)
    if kind == "stages":
        return parse_stages(name, raw[kind])
    return Dimension.parse({k: v for k, v in raw.items() if k != "when"})


def _has(raw: Any, key: str) -> bool:
    return isinstance(raw, Mapping) and key in raw


def _kind(raw: Any) -> str:
    """Return the kind of a mapping entry."""
    keys = [key for key in raw if key not in OPTIONS] if isinstance(raw, Mapping) else []
    kinds = [key for key in keys if key in KINDS]
    if len(kinds) == 1:
        for key in keys:
            if key != kinds[0]:
                raise ValueError(f"unknown key {key!r}{nearest(str(key), OPTIONS)}; known: when")
        return str(kinds[0])
    if len(keys) == 1:
        near = nearest(str(keys[0]), KINDS)
        raise ValueError(f"unknown kind {keys[0]!r}{near}; known: {', '.join(KINDS)}")
    raise ValueError(
        f"found {raw!r}; write one of {', '.join(KINDS)}, such as {{grid: [0.5, 1, 2]}}"
    )


def _paired(raw: Mapping[str, Any], written: Mapping[Any, Any], given: Mapping[str, Any]) -> Entry:
    """Read ``{paired: [...], with: other}``; if the other is set by hand, its partner is fixed."""
    values, leader = raw["paired"], str(raw.get("with"))
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"found paired: {values!r}; a list belongs there")
    if leader not in written:
        names = list(map(str, written))
        raise ValueError(
            f"found with: {leader!r}; name a parameter of this space that has a grid or choice"
            f"{nearest(leader, names)}"
        )
    partner = written[leader]
    kind = _kind(partner) if isinstance(partner, Mapping) else None
    if kind not in FINITE:
        raise ValueError(f"paired with {leader}, which is no grid or choice")
    places = Dimension.parse({kind: partner[kind]}).values
    if len(places) != len(values):
        raise ValueError(
            f"has {len(values)} values, and {leader}, it is paired with, {len(places)}"
        )
    entry = Paired(leader, places, tuple(values))
    return Fixed(entry.value("", {}, given.__getitem__)) if leader in given else entry


def _without_circles(
    entries: dict[str, Entry], when: Mapping[str, tuple[Condition, ...]], broken: dict[str, str]
) -> tuple[str, ...]:
    """Return the order of the entries; take out those in a circle, and name each circle."""
    while True:
        try:
            return ordered(entries, when)
        except CircleError as error:
            broken.update(dict.fromkeys(error.members, ""))
            broken[error.members[0]] = str(error)
            for name in set(error.members):
                del entries[name]


def _settle_given(
    order: tuple[str, ...],
    entries: dict[str, Entry],
    when: dict[str, tuple[Condition, ...]],
    around: Surroundings,
) -> None:
    """Drop the entries that can no longer count, and the conditions that always hold."""
    own, dropped = around.own or {}, set()
    for name in order:
        left = []
        for condition in when.pop(name, ()):
            if condition.name in dropped:
                break
            if condition.name not in around.given:
                left.append(condition)
            elif not condition.holds(own.get(condition.name)):
                break
        else:
            if left:
                when[name] = tuple(left)
            continue
        dropped.add(name)
        del entries[name]


def _wrong_names(
    entries: Mapping[str, Entry],
    when: Mapping[str, tuple[Condition, ...]],
    broken: Mapping[str, str],
    own: Mapping[str, Any],
) -> dict[str, str]:
    """Return which entries read unknown names, or wait for what cannot be."""
    wrong: dict[str, str] = {}
    known = [*entries, *own]

    def unknown(name: str) -> bool:
        return name not in entries and name not in broken and name not in own

    for name, entry in entries.items():
        texts = []
        for condition in when.get(name, ()):
            if unknown(condition.name):
                near = nearest(condition.name, known)
                texts.append(f"when {condition.name}: unknown parameter{near}")
            elif condition.name not in broken:
                texts.append(_impossible(condition, entries, own) or "")
        if isinstance(entry, Tied):
            texts += [
                f"tied to {n}: unknown parameter{nearest(n, known)}"
                for n in entry.reads
                if unknown(n)
            ]
        if any(texts):
            wrong[name] = "; ".join(filter(None, texts))
    return wrong


def _impossible(
    condition: Condition, entries: Mapping[str, Entry], own: Mapping[str, Any]
) -> str | None:
    """Return why a condition cannot hold, or None if it can."""
    name = condition.name
    entry = entries.get(name)
    if isinstance(entry, Dimension):
        return _never(condition, entry)
    if entry is None and name in own and not condition.holds(own[name]):
        return f"when {name}: found {condition.test!r}, but it is {own[name]!r} and not searched"
    if isinstance(entry, Fixed) and not condition.holds(entry.constant):
        return f"when {name}: found {condition.test!r}, but it is fixed at {entry.constant!r}"
    return None


def _never(condition: Condition, dimension: Dimension) -> str | None:
    """Return why no value of a dimension meets a condition, or None if one does."""
    if condition.operator == "==":
        if dimension.kind in ("uniform", "loguniform") and dimension.step is None:
            return f'when {condition.name}: a range never is one value; compare, such as "> 0.5"'
        strangers = [v for v in condition.wanted if v not in dimension]
        if strangers:
            near = nearest(str(strangers[0]), map(str, dimension.values))
            allowed = f"allowed: {dimension.describe()}{near}"
            return f"when {condition.name}: found {strangers[0]!r}; {allowed}"
    elif not any(map(condition.holds, dimension.values)) and (
        dimension.finite or condition.operator != "!="
    ):
        return f"when {condition.describe()}: never so in {dimension.describe()}"
    return None


def _sound(
    order: tuple[str, ...],
    entries: Mapping[str, Entry],
    when: Mapping[str, tuple[Condition, ...]],
    broken: Mapping[str, str],
) -> dict[str, Entry]:
    """Return the entries that are not broken and hang on none that is, in the file's order."""
    bad = set(broken)
    for name in order:
        if name in entries and bad.intersection(depends_on(name, entries, when)):
            bad.add(name)
    return {name: e for name, e in entries.items() if name not in bad}
