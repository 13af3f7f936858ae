"""Scenarios: axes of a comparison, and in which of their cells the rates are tuned.

    scenarios:
      pattern: {P1: {participation.kind: uniform}, P2: {participation.kind: bernoulli}}
      alpha: {mild: {data.partition.alpha: 1.0}, harsh: {data.partition.alpha: 0.1}}
    tune: per_scenario                       # every method in every cell; the default
    tune: {at: {pattern: P1}}                # in these cells; the others take over the values found
    tune: {method: FedAvg, share: [client.lr, server.lr]}   # one method finds them for all others

A file with scenarios says the same as a longer one without: every method stands there once per
cell, and an entry ``inherit: {from: OTHER, keys: [...]}`` takes over what another entry's search
found. That longer file is what a search freezes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fltune import dotted
from fltune.errors import nearest

OWN = ("space", "points")
"""Keys of a method's section in a file that are no part of its experiment."""
Cell = dict[str, str]
"""A label for each axis."""


@dataclass(frozen=True)
class Inherit:
    """Values that a method takes over from another one's winner.

    Attributes:
        source: the method whose search finds them.
        keys: the parameters; None takes all of the source's space.
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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def expand(raw: Mapping[str, Any], found: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the file without ``scenarios`` and ``tune``: every method once per cell.

    Args:
        raw: the file.
        found: what is wrong is added here.
        notes: what is allowed and seldom meant is added here.
    """
    rest = {k: v for k, v in raw.items() if k not in ("scenarios", "tune")}
    axes = _axes(raw.get("scenarios"), found)
    methods = raw.get("methods")
    if not isinstance(methods, Mapping):
        return rest
    cells: list[Cell] = [
        dict(zip(axes, labels, strict=True))
        for labels in itertools.product(*(axis for axis in axes.values()))
    ]
    rule = _Rule.parse(raw.get("tune"), methods, axes, found)
    if found or not (axes or rule.share):
        return rest
    notes += _contradictions(methods, axes)
    rest["methods"] = {
        _title(name, cell): _entry(name, entry, cell, axes, rule)
        for cell in cells
        for name, entry in methods.items()
        if isinstance(entry, Mapping)
    }
    return rest


def _title(method: str, cell: Cell) -> str:
    return f"{method} @ {', '.join(cell.values())}" if cell else method


def _axes(raw: Any, found: list[str]) -> dict[str, dict[str, Any]]:
    """Return nested settings by axis and label."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        found.append(f"scenarios: found {raw!r}; write AXIS: {{LABEL: {{dotted.key: value}}}}")
        return {}
    axes: dict[str, dict[str, Any]] = {}
    for axis, labels in raw.items():
        where = f"scenarios.{axis}"
        if axis == "method":
            found.append(f"{where}: the name of an axis; method is the methods' own, take another")
        if not isinstance(labels, Mapping) or not labels:
            found.append(f"{where}: found {labels!r}; write LABEL: {{dotted.key: value}}")
            continue
        axes[str(axis)] = {}
        for label, settings in labels.items():
            wrong = _wrong_label(str(label), settings, axes[str(axis)])
            if wrong:
                found.append(f"{where}.{label}: {wrong}")
            else:
                axes[str(axis)][str(label)] = _nested(settings or {})
    return axes


def _wrong_label(label: str, settings: Any, known: Mapping[str, Any]) -> str:
    if settings is not None and not isinstance(settings, Mapping):
        return f"found {settings!r}; a mapping belongs there, {{}} changes nothing"
    if label in known:
        return "a label is there twice"
    return "a label holds no comma and no @" if set(label) & {",", "@"} else ""


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for key, value in settings.items():
        one: dict[str, Any] = {}
        dotted.assign(one, str(key), value)
        raw = dotted.merge(raw, one)
    return raw


def _contradictions(
    methods: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    """Yield where a method's own value takes the place of what an axis sets."""
    for (name, entry), (axis, labels) in itertools.product(methods.items(), axes.items()):
        if not isinstance(entry, Mapping):
            continue
        own = dict(dotted.flatten({k: v for k, v in entry.items() if k not in OWN}))
        space = entry.get("space")
        own |= dict.fromkeys(space if isinstance(space, Mapping) else (), "searched")
        set_here = [item for settings in labels.values() for item in dotted.flatten(settings)]
        for key in sorted({k for k, v in set_here if k in own and own[k] != v}):
            yield (
                f"{name}: its own {key} ({own[key]}) takes the place of what the axis {axis!r} "
                "sets; its runs are the same there, whatever the label says"
            )


@dataclass(frozen=True)
class _Rule:
    """Where rates are tuned: in the cells ``at``, or by ``method`` for all others."""

    at: Cell | None = None
    method: str | None = None
    share: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls, raw: Any, methods: Mapping[str, Any], axes: Mapping[str, Any], found: list[str]
    ) -> _Rule:
        if raw is None or raw == "per_scenario":
            return cls()
        if isinstance(raw, Mapping) and set(raw) <= {"at", "then"} and "at" in raw:
            return cls._at(raw, axes, found)
        if isinstance(raw, Mapping) and set(raw) == {"method", "share"}:
            return cls._by_method(raw, methods, found)
        found.append(
            f"tune: found {raw!r}; write per_scenario, {{at: {{AXIS: LABEL}}}}, or "
            "{method: NAME, share: [client.lr, ...]}"
        )
        return cls()

    @classmethod
    def _at(cls, raw: Mapping[str, Any], axes: Mapping[str, Any], found: list[str]) -> _Rule:
        cell = raw["at"]
        if raw.get("then", "freeze") != "freeze":
            found.append(f"tune.then: found {raw['then']!r}; must be freeze")
        if not isinstance(cell, Mapping) or not cell:
            found.append(f"tune.at: found {cell!r}; write AXIS: LABEL")
            return cls()
        for axis, label in cell.items():
            if str(axis) not in axes:
                found.append(f"tune.at.{axis}: {_no_such('axis', axis, axes)}")
            elif str(label) not in axes[str(axis)]:
                found.append(f"tune.at.{axis}: {_no_such('label', label, axes[str(axis)])}")
        return cls(at={str(k): str(v) for k, v in cell.items()})

    @classmethod
    def _by_method(
        cls, raw: Mapping[str, Any], methods: Mapping[str, Any], found: list[str]
    ) -> _Rule:
        name, keys = raw["method"], raw["share"]
        if name not in methods:
            found.append(f"tune.method: {_no_such('method', name, methods)}")
        if not isinstance(keys, list) or not keys or not all(map(_is_text, keys)):
            found.append(f"tune.share: found {keys!r}; a list of dotted names belongs there")
            return cls()
        return cls(method=str(name), share=tuple(keys))


def _no_such(kind: str, name: Any, known: Iterable[Any]) -> str:
    names = list(map(str, known))
    return f"no {kind} {name!r}{nearest(str(name), names)}; known: {', '.join(names) or 'none'}"


def _entry(
    name: str,
    entry: Mapping[str, Any],
    cell: Cell,
    axes: Mapping[str, Mapping[str, Any]],
    rule: _Rule,
) -> dict[str, Any]:
    """Return the entry of one method in one cell."""
    own = {k: v for k, v in entry.items() if k not in OWN}
    settings: dict[str, Any] = {}
    for axis, label in cell.items():
        settings = dotted.merge(settings, axes[axis][label])
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
    if rule.at is not None:
        tuned = {**cell, **rule.at}
        return None if tuned == cell else Inherit(_title(name, tuned))
    if rule.method is not None and name != rule.method:
        return Inherit(_title(rule.method, cell), rule.share)
    return None
