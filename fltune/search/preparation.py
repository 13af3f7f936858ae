"""Before a search starts: its data is loaded once, its paths made absolute, its models tried."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.method import Method

PATHS = ("root", "path", "file")
"""Keys of the data, partition and participation sections that name a file or folder."""
MAYBE_PATHS = (("data", "tokenizer"), ("model", "pretrained"))
"""Keys that name a folder, or something on a hub."""


def check_data(config: SearchConfig) -> None:
    """Load every data set of the search once, in the driver, and make its paths absolute.

    Workers have working directories of their own, and a missing file, a population larger than the
    data set, or a model that does not fit data or loss must stop the search before it starts.

    Raises:
        DataError, ConfigError: as loading or building the model says.
    """
    from fltune.pieces import build_module, build_participation, load_data

    _check_modules(config)
    _check_devices(config)
    seen = set()
    for method in config.methods.values():
        make_absolute(method)
        trial = method.of_trials(config.settings.search)
        experiment = method.first_experiment(trial)
        settled = (
            *("data", "model", "loss", "batch_norm", "dtype", "precision", "strategy"),
            "participation",
        )
        key = tuple(repr(getattr(experiment, name)) for name in settled)
        if key in seen:
            continue
        seen.add(key)
        loaded = load_data(experiment.data, experiment.seed)
        with problems_of(method.name, config):
            build_module(experiment, loaded)
            build_participation(experiment, loaded)


@contextlib.contextmanager
def problems_of(name: str, config: SearchConfig) -> Iterator[None]:
    """Say of which method the problems are that come up inside."""
    try:
        yield
    except ConfigError as error:
        problems = [f"methods.{name}.{text}" for text in error.problems]
        raise ConfigError(problems, config.source) from error


def _check_modules(config: SearchConfig) -> None:
    """Refuse components of the script or notebook that is running: workers run another one."""
    found = {
        f"methods.{method.name}: workers cannot import `{name}`; put {_last(name)} in a file of "
        f"its own, for example my_methods.py, and write my_methods:{_last(name)}"
        for method in config.methods.values()
        for name in _strings((method.raw, method.space.to_yaml()))
        if name.startswith("__main__:")
    }
    if found:
        raise ConfigError(sorted(found), config.source)


def _last(name: str) -> str:
    return name.partition(":")[2]


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts in nested mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)


def _check_devices(config: SearchConfig) -> None:
    """Refuse trials that would take a GPU without counting it."""
    if config.settings.resources.gpus:
        return
    found = [
        f"methods.{method.name}.device: found 'cuda', and resources.gpus is 0: reserve a GPU, or "
        "take device: cpu"
        for method in config.methods.values()
        if method.first_experiment().device == "cuda"
    ]
    if found:
        raise ConfigError(found, config.source)


def make_absolute(method: Method) -> None:
    """Resolve the relative paths of a method's config, in place; also one that is a default."""
    data = method.first_experiment().data
    root = getattr(data, "root", None)
    if isinstance(root, str):
        named = method.raw.get("data")
        own = named if isinstance(named, dict) else {"name": data.component_name}
        method.raw["data"] = {"root": root, **own}
    for section, key in _named_paths(method):
        section[key] = str(Path(section[key]).expanduser().resolve())


def paths_of(method: Method) -> list[str]:
    """Return the files and folders that a method's config names."""
    return [section[key] for section, key in _named_paths(method)]


def _named_paths(method: Method) -> list[tuple[dict[str, Any], str]]:
    """Return where a method's config names a path: a section, and the key in it."""
    data = method.raw.get("data")
    partition = data.get("partition") if isinstance(data, dict) else None
    sections = (data, partition, method.raw.get("participation"))
    found = [(s, key) for s in sections if isinstance(s, dict) for key in PATHS]
    found = [(s, key) for s, key in found if isinstance(s.get(key), str)]
    for name, key in MAYBE_PATHS:
        named = method.raw.get(name)
        if isinstance(named, dict) and Path(str(named.get(key))).is_dir():
            found.append((named, key))
    return found
