"""Nested mappings addressed by dotted names: the one notation of files, ``--set`` and MLflow."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML without libyaml: the same, at a fifth of the speed
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

from fltune.errors import ConfigError

KIND_SECTIONS = ("participation", "partition", "work", "delays", "clock")
"""Sections whose component is named by ``kind``; all others by ``name``."""


class _Loader(_SafeLoader):
    """PyYAML's safe loader that reads 1e-3 as a number and refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; a repeated key would hide what was written first."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        seen = set()
        for key, _ in pairs:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper that quotes the text 1e-3, which the loader reads as a number."""


for _reader in (_Loader, _Dumper):
    _reader.add_implicit_resolver(  # YAML 1.1 knows 1.0e-3 only, and would read 1e-3 as text
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def load_yaml(text: str) -> Any:
    """Return the plain values of a YAML text.

    >>> load_yaml("{loguniform: [1e-3, 1]}")
    {'loguniform': [0.001, 1]}
    """
    return yaml.load(text, _Loader)


def dump_yaml(plain: Any) -> str:
    """Return plain values as a YAML text: :func:`load_yaml` backwards.

    >>> print(dump_yaml({"name": "1e-3"}), end="")
    name: '1e-3'
    """
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises:
        ConfigError: the file is missing, not readable, not UTF-8, no YAML, or no mapping.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        raw = load_yaml(text)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 text (byte {error.start})", str(path)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise ConfigError(f"not valid YAML{where}: {problem}", str(path)) from error
    if not isinstance(raw, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(raw), f"a {type(raw).__name__}")
        raise ConfigError(f"found {kind} at the top; a mapping belongs there", str(path))
    return raw


def parse_assignment(text: str, start: str = "") -> tuple[str, Any]:
    """Split ``KEY=VALUE`` and read the value as YAML.

    Args:
        text: what is to be split.
        start: of the text and the key: a name in it that may hold an equals sign.

    >>> parse_assignment("server.lr=0.5")
    ('server.lr', 0.5)
    """
    key, equals, value = text.removeprefix(start).partition("=")
    key = start + key
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: write KEY=VALUE, such as --set server.lr=0.5")
    try:
        return key.strip(), load_yaml(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {text!r}: the value is not valid YAML") from error


def assign(raw: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in a nested mapping, in place.

    A section written as a bare name (``server: fedgm``) becomes a mapping first.

    Raises:
        ConfigError: the key passes through a value that is no section.
    """
    *parents, last = key.split(".")
    here = raw
    for depth, part in enumerate(parents):
        below = here.get(part)
        if isinstance(below, str):
            below = written_out(part, below)
        elif below is None:
            below = {}
        if not isinstance(below, dict):
            inside = ".".join(parents[: depth + 1])
            raise ConfigError(f"{key}: {inside} is {below!r}, not a section with keys of its own")
        here[part] = below
        here = below
    here[last] = value


def with_values(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a nested mapping with dotted keys set; see :func:`assign`."""
    made = copy.deepcopy(dict(raw))
    for key, value in values.items():
        assign(made, key, value)
    return made


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one nested mapping over another; returns a new one.

    A section that names another component replaces the old one whole: the momentum of ``fedgm``
    means nothing to ``fedadam``.
    """
    result = copy.deepcopy(dict(base))
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, dict):
            old = written_out(key, old)
        if isinstance(old, dict) and isinstance(value, dict) and _same_component(key, old, value):
            result[key] = merge(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def name_key(section: str) -> str:
    """Return the key that names a section's component.

    >>> name_key("data.partition"), name_key("server")
    ('kind', 'name')
    """
    return "kind" if section.rpartition(".")[2] in KIND_SECTIONS else "name"


def written_out(section: str, name: str) -> dict[str, Any]:
    """Return what a section that is a bare name says as a mapping."""
    return {name_key(section): name}


def _same_component(section: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    key = name_key(section)
    return key not in new or key not in old or old[key] == new[key]


def flatten(raw: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of every leaf; lists are leaves."""
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        else:
            yield name, value
