"""The file of a search: a base experiment, the methods to compare, the budget.

Everything wrong with a file is found here, before Ray or MLflow start: every method's config is
validated, and every candidate value and range end of every space is put through the same typed
model that ``fltune run`` uses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fltune import dotted
from fltune.errors import ConfigError, nearest
from fltune.experiment import Experiment
from fltune.schema import problems, validate
from fltune.search.bequest import bequest_problems
from fltune.search.by_hand import assign_to_method, set_in_base
from fltune.search.extends import read_extended
from fltune.search.method import Method, build_method
from fltune.search.panels import panel_problems
from fltune.search.scenarios import choose, expand
from fltune.search.settings import SearchSettings, Settings, Tracking
from fltune.search.warm_points import score_problems

SECTIONS = (
    "about",
    "experiment",
    "methods",
    "scenarios",
    "tune",
    "search",
    "tracking",
    "resources",
    "ray",
    "name",
    "claims",
    "figure",
    "numbers",
)
SETTINGS = ("about", "search", "tracking", "resources", "ray")


class SearchConfig:
    """A validated search file.

    Attributes:
        source: the file's name, for messages.
        base: the nested base experiment.
        methods: by name, in the file's order.
        settings: budget, tracking, resources.
        notes: what is allowed and seldom meant, a sentence each.
    """

    def __init__(
        self,
        source: str,
        base: dict[str, Any],
        methods: dict[str, Method],
        settings: Settings,
        notes: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.base = base
        self.methods = methods
        self.settings = settings
        self.notes = tuple(notes)

    @classmethod
    def read(
        cls, path: str | Path, settings: Iterable[str] = (), methods: Sequence[str] = ()
    ) -> SearchConfig:
        """Read and validate a search file.

        Args:
            path: the YAML file.
            settings: ``KEY=VALUE`` overrides with dotted keys, those of the experiment with or
                without ``experiment.``; ``scenarios.AXIS=LABEL`` (or a list of labels) leaves out
                the other cells.
            methods: names to keep; all if empty.

        Raises:
            ConfigError: all problems of the file at once.
        """
        return cls.of(read_extended(path), str(path), settings, methods)

    @classmethod
    def of(
        cls,
        raw: Mapping[str, Any],
        source: str = "config",
        settings: Iterable[str] = (),
        methods: Sequence[str] = (),
    ) -> SearchConfig:
        """Validate what a file holds, with overrides; see :meth:`read`.

        Args:
            raw: the nested mapping; it is left as it is.
            source: its name, for messages.
            settings, methods: as of :meth:`read`.
        """
        raw = dotted.merge(raw, {})
        overrides: dict[str, Any] = {}
        for text in settings:
            start = _method_in(text, raw)
            key, value = dotted.parse_assignment(text, start)
            inside = key.split(".")[0]
            if inside in (*SETTINGS, "tune"):
                dotted.assign(raw, key, value)
            elif inside == "scenarios":
                choose(raw, key.removeprefix("scenarios").removeprefix("."), value)
            elif inside == "methods":
                assign_to_method(raw, start, key, value)
            else:
                overrides[key.removeprefix("experiment.")] = value
        return cls.parse(raw, source, overrides, methods)

    @classmethod
    def parse(
        cls,
        raw: Mapping[str, Any],
        source: str = "config",
        overrides: Mapping[str, Any] | None = None,
        methods: Sequence[str] = (),
    ) -> SearchConfig:
        """Validate a nested mapping; see :meth:`read`."""
        found: list[str] = []
        if "computes" in raw:
            command = f"python -m fltune reproduce {shlex.quote(Path(source).stem)}"
            raise ConfigError(f"computes: this file trains nothing; run {command}", source)
        for key in raw:
            if key not in SECTIONS:
                found.append(
                    f"{key}: unknown section{nearest(str(key), SECTIONS)}; "
                    f"known: {', '.join(SECTIONS)}"
                )
        settings = _settings(raw, found)
        notes: list[str] = []
        raw = expand(raw, found, notes)
        base = raw.get("experiment") or {}
        if not isinstance(base, Mapping):
            raise ConfigError(
                [*found, f"experiment: found {base!r}; a mapping belongs there"], source
            )
        base = dotted.merge(base, {})
        entries = _method_entries(raw.get("methods"), methods, found)
        set_in_base(base, entries, overrides or {})
        wrong_base = _experiment_problems(base)
        found[:0] = [f"experiment.{p}" for p in wrong_base]
        built = {
            name: build_method(name, base, entry, overrides or {}, wrong_base, found)
            for name, entry in entries.items()
        }
        found += _wrong_sources(built, filtered=bool(methods))
        goals = len(settings.search.goals)
        for name, entry in entries.items():
            found += score_problems(entry.get("points"), f"methods.{name}.points", goals)
        if settings.search.sampler == "grid":
            found += [p for m in built.values() if m is not None for p in m.without_grid()]
        if not found:
            sound = [m for m in built.values() if m is not None]
            search = settings.search
            found += [p for m in sound for p in m.too_short(search) or panel_problems(m, search)]
            found += [p for m in sound for p in _wrong_values(m, built, search)]
        if found:
            raise ConfigError(found, source)
        kept = {k: m for k, m in built.items() if m is not None}
        return cls(source, base, kept, settings, notes)

    @staticmethod
    def tracking_of(settings: Iterable[str]) -> Tracking:
        """Return the ``tracking`` section that some overrides give; for commands without a file.

        Raises:
            ConfigError: a key that is not of the tracking section, or a wrong value.
        """
        raw: dict[str, Any] = {}
        for text in settings:
            dotted.assign(raw, *dotted.parse_assignment(text))
        found: list[str] = []
        chosen = _settings(raw, found)
        found += [f"{key}: only tracking.* can be set here" for key in raw if key != "tracking"]
        if found:
            raise ConfigError(found)
        return chosen.tracking

    def method(self, name: str) -> Method:
        """Return a method by name.

        Raises:
            ConfigError: there is none of that name.
        """
        if name not in self.methods:
            known = ", ".join(self.methods) or "none"
            raise ConfigError(
                f"unknown method {name!r}{nearest(name, self.methods)}; known: {known}", self.source
            )
        return self.methods[name]

    def check_sources(self) -> None:
        """Refuse a search without a method that another one takes values over from.

        Raises:
            ConfigError: naming the methods that are missing.
        """
        lost = {m.inherit.source: name for name, m in self.methods.items() if m.inherit}
        found = [
            f"methods.{name}.inherit.from: {source!r} finds the values that {name!r} takes over, "
            f"and is not among the chosen methods; add --method {source!r}"
            for source, name in lost.items()
            if source not in self.methods
        ]
        if found:
            raise ConfigError(found, self.source)

    def as_yaml(self, experiment: str | None = None, uri: str | None = None) -> str:
        """Return the frozen config: what was searched, whole.

        Args:
            experiment: the MLflow experiment, for a file that leaves it to its name.
            uri: the store, for a file that names it from the folder in which it was read.
        """
        settings = self.settings.model_dump(mode="json")
        known = {"experiment": experiment, "uri": uri}
        settings["tracking"] |= {key: value for key, value in known.items() if value}
        frozen = {
            "experiment": self.base,
            "methods": {
                name: {**_difference(m.raw, self.base), **m.to_yaml()}
                for name, m in self.methods.items()
            },
            **settings,
        }
        return dotted.dump_yaml(frozen)


def load(path: str | Path, method: str, settings: Iterable[str] = ()) -> Experiment:
    """Return the experiment of one method of a search file.

    Values of the method's space that ``settings`` leaves open keep the method's own value, or the
    parameter's default.

    Args:
        path: the search file.
        method: a name under ``methods``.
        settings: ``KEY=VALUE`` overrides with dotted keys.

    Raises:
        ConfigError: the file, the method or a value is wrong.
    """
    config = SearchConfig.read(path, settings, methods=[method])
    return config.method(method).experiment({})


def _method_in(text: str, raw: Mapping[str, Any]) -> str:
    """Return the ``methods.NAME.`` that a text begins with; the name may hold dots and ``=``."""
    entries = raw.get("methods")
    starts = [f"methods.{name}." for name in entries] if isinstance(entries, Mapping) else []
    return max((s for s in starts if text.startswith(s)), key=len, default="")


def _wrong_sources(built: Mapping[str, Method | None], filtered: bool) -> list[str]:
    """Return what is wrong with the methods that values are taken over from."""
    found = []
    for name, method in built.items():
        source = method.inherit.source if method is not None and method.inherit else None
        if source is None:
            continue
        where = f"methods.{name}.inherit.from"
        other = built.get(source)
        if source not in built and filtered:  # one run of the method needs no source
            continue
        if source not in built:
            known = ", ".join(built)
            near = nearest(source, built)
            found.append(f"{where}: unknown method {source!r}{near}; known: {known}")
        elif other is not None and other.inherit is not None:
            found.append(f"{where}: {source!r} takes its own values over from another method")
        elif method is not None and other is not None:
            found += _wrong_keys(method, other)
    return found


def _wrong_keys(method: Method, source: Method) -> list[str]:
    """Return which keys cannot be taken over: not searched there, or no parameters here."""
    keys = (method.inherit.keys or ()) if method.inherit else ()
    where = f"methods.{method.name}.inherit.keys"
    own = dict(dotted.flatten(method.raw)) | dict(method.space.own)
    found = []
    for key in keys:
        if key not in source.space.entries:
            there = ", ".join(source.space.entries) or "nothing"
            near = nearest(key, source.space.entries)
            text = f"{key!r} is not in the space of {source.name!r}{near}; there: {there}"
            found.append(f"{where}: {text}")
        elif key not in own and key not in method.space.entries:
            found.append(f"{where}: {method.name!r} has no parameter {key!r}{nearest(key, own)}")
    return found


def _wrong_values(
    method: Method, built: Mapping[str, Method | None], search: SearchSettings
) -> list[str]:
    """Return which values a method cannot take over; a source that was not chosen has none."""
    source = built.get(method.inherit.source) if method.inherit else None
    return bequest_problems(method, source, search) if source is not None else []


def _settings(raw: Mapping[str, Any], found: list[str]) -> Settings:
    try:
        return validate(
            Settings, {k: raw[k] for k in (*SETTINGS, "name") if raw.get(k) is not None}
        )
    except ValidationError as error:
        found += problems(error)
        return Settings()


def _experiment_problems(raw: Mapping[str, Any]) -> list[str]:
    try:
        Experiment.parse(raw)
    except ConfigError as error:
        return error.problems
    return []


def _method_entries(raw: Any, wanted: Sequence[str], found: list[str]) -> dict[str, dict[str, Any]]:
    if not isinstance(raw, Mapping) or not raw:
        found.append("methods: name at least one method to tune")
        return {}
    known_names = {*map(str, raw), *map(_plain_name, raw.values())}
    for name in wanted:
        if name not in known_names:
            near = nearest(name, map(str, raw))
            found.append(
                f"methods: unknown method {name!r}{near}; known: {', '.join(map(str, raw))}"
            )
    entries: dict[str, dict[str, Any]] = {}
    for name, entry in raw.items():
        if wanted and not {str(name), _plain_name(entry)} & set(wanted):
            continue
        if not isinstance(entry, Mapping):
            found.append(f"methods.{name}: found {entry!r}; a mapping belongs there")
        else:
            entries[str(name)] = dotted.merge(entry, {})
    return entries


def _plain_name(entry: Any) -> str:
    """Return the method's own name, where scenarios have given it a longer one."""
    scenario = entry.get("scenario") if isinstance(entry, Mapping) else None
    return str(scenario.get("method", "")) if isinstance(scenario, Mapping) else ""


def _difference(raw: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in raw.items() if base.get(k) != v}
