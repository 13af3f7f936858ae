"""Scenarios: axes of a comparison, and in which of their cells the rates are tuned.

    scenarios:
      pattern: {P1: {participation.kind: uniform}, P2: {participation.kind: bernoulli}}
      alpha: {mild: {data.partition.alpha: 1.0}, harsh: {data.partition.alpha: 0.1}}
    tune: per_scenario                       # every method in every cell; the default
    tune: {at: {pattern: P1}}                # in these cells; the others take over the values found
    tune: {method: FedAvg, share: [client.lr, server.lr]}   # one method finds them for all others
    tune: {method: FedAvg, share: [client.lr], at: {pattern: P1}}   # once, for all cells too

Besides the experiment's keys a label may hold ``space``: entries that take the place of those of
the methods' spaces there; and ``methods``: what one method alone is there.

    alpha: {harsh: {data.partition.alpha: 0.1, space: {client.lr: {grid: [0.01, 0.03]}}}}

A file with scenarios says the same as a longer one without: every method stands there once per
cell, and an entry ``inherit: {from: OTHER, keys: [...]}`` takes over what another entry's search
found. That longer file is what a search freezes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fltune import dotted
from fltune.errors import ConfigError, nearest
from fltune.search.extends import with_whole_dimensions

OWN = ("space", "points")
"""Keys of a method's section in a file that are no part of its experiment."""
Cell = dict[str, str]
"""A label for each axis."""


@dataclass(frozen=True)
class Inherit:
    """Values that a method takes over from another one's winner.

    Attributes:
        source: the method whose search finds them.
        keys: the parameters; None takes all that the source draws and the method searches too.
    """

    source: str
    keys: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, raw: Any) -> Inherit:
        """Read ``{from: NAME, keys: [...]}``.

        Raises:
            ValueError: it is not written so.
        """
        if isinstance(raw, str):
            return cls(raw)
        wanted = isinstance(raw, Mapping) and set(raw) <= {"from", "keys"}
        if not wanted or not isinstance(raw.get("from"), str):
            raise ValueError(f"found {raw!r}; write {{from: METHOD, keys: [client.lr, ...]}}")
        keys = raw.get("keys")
        named = isinstance(keys, list) and bool(keys) and all(map(_is_text, keys))
        if keys is not None and not named:
            raise ValueError(f"keys: found {keys!r}; a list of dotted names belongs there")
        return cls(raw["from"], None if keys is None else tuple(keys))

    def without(self, names: Iterable[str]) -> Inherit | None:
        """Return what is left to take over when some parameters are set otherwise."""
        if self.keys is None:
            return self
        left = tuple(key for key in self.keys if key not in set(names))
        return Inherit(self.source, left) if left else None

    def as_yaml(self) -> dict[str, Any]:
        """Return what :meth:`parse` reads."""
        return {"from": self.source, **({"keys": list(self.keys)} if self.keys else {})}


@dataclass(frozen=True)
class _Label:
    """What a label of an axis sets.

    Attributes:
        settings: of the experiment, nested.
        space: entries that replace those of every method that has them.
        methods: what is laid over a method's section, by the method's name.
    """

    settings: Mapping[str, Any]
    space: Mapping[str, Any]
    methods: Mapping[str, Any]

    @classmethod
    def parse(cls, raw: Mapping[str, Any], methods: Mapping[str, Any]) -> _Label:
        """Read a label's mapping.

        Raises:
            ValueError: it names a method or an entry that there is not.
        """
        space, own = raw.get("space") or {}, raw.get("methods") or {}
        for key, value in (("space", space), ("methods", own)):
            if not isinstance(value, Mapping):
                raise ValueError(f"{key}: found {value!r}; a mapping belongs there")
        known = [str(k) for e in methods.values() for k in _space_of(e)]
        for name in space:
            if str(name) not in known:
                raise ValueError(f"space: {_no_such('entry', name, dict.fromkeys(known))}")
        own = {str(name): entry for name, entry in own.items()}  # a name may look like a number
        for name, entry in own.items():
            if name not in map(str, methods):
                raise ValueError(f"methods: {_no_such('method', name, methods)}")
            if not isinstance(entry, Mapping):
                raise ValueError(f"methods.{name}: found {entry!r}; a mapping belongs there")
        return cls(
            _nested({k: v for k, v in raw.items() if k not in ("space", "methods")}), space, own
        )

    def over(self, name: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a method's section says in a cell of this label."""
        written = _space_of(entry)
        replaced = {k: v for k, v in self.space.items() if k in written}
        if replaced:
            entry = {**entry, "space": {**written, **replaced}}
        more = self.methods.get(name)
        if more is None:
            return entry
        return with_whole_dimensions(entry, more, dotted.merge(entry, more))


Axes = Mapping[str, Mapping[str, _Label]]
"""What is set, by axis and label."""


def _space_of(entry: Any) -> Mapping[str, Any]:
    space = entry.get("space") if isinstance(entry, Mapping) else None
    return space if isinstance(space, Mapping) else {}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def choose(raw: dict[str, Any], axis: str, wanted: Any) -> None:
    """Keep some labels of an axis of a file, in place; the other cells are left out.

    Args:
        raw: the file.
        axis: its name.
        wanted: a label, or a list of them.

    Raises:
        ConfigError: there is no such axis or label.
    """
    axes = raw.get("scenarios")
    labels = axes.get(axis) if isinstance(axes, Mapping) else None
    if not isinstance(axes, dict) or not isinstance(labels, Mapping):
        known = axes if isinstance(axes, Mapping) else {}
        raise ConfigError(f"scenarios.{axis}: {_no_such('axis', axis, known)}")
    kept = list(map(str, wanted if isinstance(wanted, list) else [wanted]))
    there = {str(label): label for label in labels}
    lost = [label for label in kept if label not in there]
    if lost or not kept:
        text = _no_such("label", lost[0], there) if lost else "name a label, or a list of them"
        raise ConfigError(f"scenarios.{axis}: {text}")
    axes[axis] = {label: labels[label] for name, label in there.items() if name in kept}


def expand(raw: Mapping[str, Any], found: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the file without ``scenarios`` and ``tune``: every method once per cell.

    Args:
        raw: the file.
        found: what is wrong is added here.
        notes: what is allowed and seldom meant is added here.
    """
    rest = {k: v for k, v in raw.items() if k not in ("scenarios", "tune")}
    methods = raw.get("methods")
    if not isinstance(methods, Mapping):
        return rest
    axes = _axes(raw.get("scenarios"), methods, found)
    cells: list[Cell] = [
        dict(zip(axes, labels, strict=True))
        for labels in itertools.product(*(axis for axis in axes.values()))
    ]
    rule = _Rule.parse(raw.get("tune"), methods, axes, found)
    if found or not (axes or rule.share):
        return rest
    notes += _contradictions(methods, axes)
    rest["methods"] = {
        _title(name, cell): _entry(str(name), entry, cell, axes, rule)
        for cell in cells
        for name, entry in methods.items()
        if isinstance(entry, Mapping)
    }
    return rest


def _title(method: str, cell: Cell) -> str:
    return f"{method} @ {', '.join(cell.values())}" if cell else method


def _axes(raw: Any, methods: Mapping[str, Any], found: list[str]) -> dict[str, dict[str, _Label]]:
    """Return what is set by axis and label."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        found.append(f"scenarios: found {raw!r}; write AXIS: {{LABEL: {{dotted.key: value}}}}")
        return {}
    axes: dict[str, dict[str, _Label]] = {}
    for axis, labels in raw.items():
        where = f"scenarios.{axis}"
        if axis == "method":
            found.append(f"{where}: the name of an axis; method is the methods' own, take another")
        if not isinstance(labels, Mapping) or not labels:
            found.append(f"{where}: found {labels!r}; write LABEL: {{dotted.key: value}}")
            continue
        axes[str(axis)] = {}
        for label, settings in labels.items():
            try:
                _check_label(str(label), settings, axes[str(axis)])
                axes[str(axis)][str(label)] = _Label.parse(settings or {}, methods)
            except ValueError as error:
                found.append(f"{where}.{label}: {error}")
    return axes


def _check_label(label: str, settings: Any, known: Mapping[str, Any]) -> None:
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"found {settings!r}; a mapping belongs there, {{}} changes nothing")
    if label in known:
        raise ValueError("a label is there twice")
    if set(label) & {",", "@"}:
        raise ValueError("a label holds no comma and no @")


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for key, value in settings.items():
        one: dict[str, Any] = {}
        dotted.assign(one, str(key), value)
        raw = dotted.merge(raw, one)
    return raw


def _contradictions(methods: Mapping[str, Any], axes: Axes) -> Iterable[str]:
    """Yield where a method's own value takes the place of what an axis sets."""
    for (name, entry), (axis, labels) in itertools.product(methods.items(), axes.items()):
        if not isinstance(entry, Mapping):
            continue
        own = dict(dotted.flatten({k: v for k, v in entry.items() if k not in OWN}))
        own |= dict.fromkeys(_space_of(entry), "searched")
        set_here = [item for label in labels.values() for item in dotted.flatten(label.settings)]
        lost = {k for k, v in set_here if k in own and own[k] != v}
        lost |= {section for k, _ in set_here if (section := k.partition(".")[0]) in own}
        for key in sorted(lost):  # a section that is a bare name replaces all of it
            yield (
                f"{name}: its own {key} ({own[key]}) takes the place of what the axis {axis!r} "
                "sets; its runs are the same there, whatever the label says"
            )


@dataclass(frozen=True)
class _Rule:
    """Where rates are tuned: in the cells ``at``, by ``method`` for all others, or both."""

    at: Cell = field(default_factory=dict)
    method: str | None = None
    share: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls, raw: Any, methods: Mapping[str, Any], axes: Mapping[str, Any], found: list[str]
    ) -> _Rule:
        if raw is None or raw == "per_scenario":
            return cls()
        keys = set(raw) if isinstance(raw, Mapping) else set()
        by_method = {"method", "share"} <= keys
        if keys and keys <= {"at", "then", "method", "share"} and (by_method or "at" in keys):
            at = cls._at(raw, axes, found) if "at" in keys else {}
            if by_method:
                return cls._by_method(raw, methods, at, found)
            if not keys & {"method", "share"}:
                return cls(at)
        found.append(
            f"tune: found {raw!r}; write per_scenario, {{at: {{AXIS: LABEL}}}}, "
            "{method: NAME, share: [client.lr, ...]}, or the last two in one"
        )
        return cls()

    @classmethod
    def _at(cls, raw: Mapping[str, Any], axes: Mapping[str, Any], found: list[str]) -> Cell:
        cell = raw["at"]
        if raw.get("then", "freeze") != "freeze":
            found.append(f"tune.then: found {raw['then']!r}; must be freeze")
        if not isinstance(cell, Mapping) or not cell:
            found.append(f"tune.at: found {cell!r}; write AXIS: LABEL")
            return {}
        for axis, label in cell.items():
            if str(axis) not in axes:
                found.append(f"tune.at.{axis}: {_no_such('axis', axis, axes)}")
            elif str(label) not in axes[str(axis)]:
                found.append(f"tune.at.{axis}: {_no_such('label', label, axes[str(axis)])}")
        return {str(k): str(v) for k, v in cell.items()}

    @classmethod
    def _by_method(
        cls, raw: Mapping[str, Any], methods: Mapping[str, Any], at: Cell, found: list[str]
    ) -> _Rule:
        name, keys = raw["method"], raw["share"]
        if str(name) not in map(str, methods):
            found.append(f"tune.method: {_no_such('method', name, methods)}")
        if not isinstance(keys, list) or not keys or not all(map(_is_text, keys)):
            found.append(f"tune.share: found {keys!r}; a list of dotted names belongs there")
            return cls()
        return cls(at, str(name), tuple(keys))


def _no_such(kind: str, name: Any, known: Iterable[Any]) -> str:
    names = list(map(str, known))
    return f"no {kind} {name!r}{nearest(str(name), names)}; known: {', '.join(names) or 'none'}"


def _entry(
    name: str,
    entry: Mapping[str, Any],
    cell: Cell,
    axes: Axes,
    rule: _Rule,
) -> dict[str, Any]:
    """Return the entry of one method in one cell."""
    settings: dict[str, Any] = {}
    for axis, label in cell.items():
        settings = dotted.merge(settings, axes[axis][label].settings)
        entry = axes[axis][label].over(name, entry)
    own = {k: v for k, v in entry.items() if k not in OWN}
    # The cell lies over the base and the method over the cell: what a method is, it stays.
    made = dotted.merge(settings, own)
    made |= {k: entry[k] for k in OWN if k in entry}
    if cell:
        made["scenario"] = {"method": name, **cell}
    source = _source(name, cell, rule)
    if source is not None:
        made["inherit"] = source.as_yaml()
    return made


def _source(name: str, cell: Cell, rule: _Rule) -> Inherit | None:
    finder, tuned = rule.method or name, {**cell, **rule.at}
    if (finder, tuned) == (name, cell):
        return None
    return Inherit(_title(finder, tuned), rule.share or None)
