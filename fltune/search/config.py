"""The file of a search: a base experiment, the methods to compare, the budget.

Everything wrong with a file is found here, before Ray or MLflow start: every method's config is
validated, and every candidate value and range end of every space is put through the same typed
model that ``fltune run`` uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fltune import dotted
from fltune.errors import ConfigError, nearest
from fltune.experiment import Experiment
from fltune.schema import problems, validate
from fltune.search.method import Method, build_method
from fltune.search.settings import Settings, Tracking

SECTIONS = ("experiment", "methods", "search", "tracking", "resources", "ray", "name")
SETTINGS = ("search", "tracking", "resources", "ray")


class SearchConfig:
    """A validated search file.

    Attributes:
        source: the file's name, for messages.
        base: the nested base experiment.
        methods: by name, in the file's order.
        settings: budget, tracking, resources.
    """

    def __init__(
        self, source: str, base: dict[str, Any], methods: dict[str, Method], settings: Settings
    ) -> None:
        self.source = source
        self.base = base
        self.methods = methods
        self.settings = settings

    @classmethod
    def read(
        cls, path: str | Path, settings: Iterable[str] = (), methods: Sequence[str] = ()
    ) -> SearchConfig:
        """Read and validate a search file.

        Args:
            path: the YAML file.
            settings: ``KEY=VALUE`` overrides with dotted keys.
            methods: names to keep; all if empty.

        Raises:
            ConfigError: all problems of the file at once.
        """
        raw = dotted.read_yaml(path)
        overrides: dict[str, Any] = {}
        for text in settings:
            key, value = dotted.parse_assignment(text)
            inside = key.split(".")[0] in SETTINGS
            if inside:
                dotted.assign(raw, key, value)
            else:
                overrides[key] = value
        return cls.parse(raw, str(path), overrides, methods)

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
        for key in raw:
            if key not in SECTIONS:
                found.append(
                    f"{key}: unknown section{nearest(str(key), SECTIONS)}; "
                    f"known: {', '.join(SECTIONS)}"
                )
        settings = _settings(raw, found)
        base = raw.get("experiment") or {}
        if not isinstance(base, Mapping):
            raise ConfigError(
                [*found, f"experiment: found {base!r}; a mapping belongs there"], source
            )
        base = dotted.merge(base, {})
        for key, value in (overrides or {}).items():
            if "." not in key or key.split(".")[0] in base:  # else its section is the methods' own
                dotted.assign(base, key, value)
        wrong_base = _experiment_problems(base)
        found += [f"experiment.{p}" for p in wrong_base]
        entries = _method_entries(raw.get("methods"), methods, found)
        built = {
            name: build_method(name, base, entry, overrides or {}, wrong_base, found)
            for name, entry in entries.items()
        }
        if settings.search.sampler == "grid":
            found += [p for m in built.values() if m is not None for p in m.without_grid()]
        if found:
            raise ConfigError(found, source)
        return cls(source, base, {k: m for k, m in built.items() if m is not None}, settings)

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

    def as_yaml(self) -> str:
        """Return the frozen config: what was searched, whole."""
        frozen = {
            "experiment": self.base,
            "methods": {
                name: {**_difference(m.raw, self.base), **m.to_yaml()}
                for name, m in self.methods.items()
            },
            **self.settings.model_dump(mode="json"),
        }
        return yaml.safe_dump(frozen, sort_keys=False, allow_unicode=True)


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


def _method_entries(
    raw: Any, wanted: Sequence[str], found: list[str]
) -> dict[str, Mapping[str, Any]]:
    if not isinstance(raw, Mapping) or not raw:
        found.append("methods: name at least one method to tune")
        return {}
    for name in wanted:
        if name not in raw:
            near = nearest(name, map(str, raw))
            found.append(
                f"methods: unknown method {name!r}{near}; known: {', '.join(map(str, raw))}"
            )
    entries: dict[str, Mapping[str, Any]] = {}
    for name, entry in raw.items():
        if wanted and name not in wanted:
            continue
        if not isinstance(entry, Mapping):
            found.append(f"methods.{name}: found {entry!r}; a mapping belongs there")
        else:
            entries[str(name)] = entry
    return entries


def _difference(raw: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in raw.items() if base.get(k) != v}
