"""What there is: algorithms, server optimizers, data sets ... with their parameters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune import dotted
from fltune.algorithms import ALGORITHMS
from fltune.data import DATASETS, PARTITIONS
from fltune.errors import ConfigError, nearest
from fltune.models import MODELS
from fltune.parameters import describe
from fltune.participation import PARTICIPATION
from fltune.registry import Registry
from fltune.schema import declared
from fltune.server import SERVERS

REGISTRIES: dict[str, Registry] = {
    "algorithms": ALGORITHMS,
    "servers": SERVERS,
    "participation": PARTICIPATION,
    "partitions": PARTITIONS,
    "datasets": DATASETS,
    "models": MODELS,
}
KINDS = (*REGISTRIES, "spaces")


def listing(kind: str, spaces: Path = Path("search_spaces")) -> list[dict[str, Any]]:
    """Return one plain object per component of a kind.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind == "spaces":
        return [_space(path) for path in sorted(spaces.rglob("*.yaml"))]
    if kind not in REGISTRIES:
        raise ConfigError(f"unknown kind {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
    registry = REGISTRIES[kind]
    return [_component(name, registry.load(name)) for name in registry]


def _component(name: str, target: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "summary": (target.__doc__ or "").split("\n")[0]}
    for attribute in ("paper", "down", "up"):
        if getattr(target, attribute, None):
            entry[attribute] = getattr(target, attribute)
    if dataclasses.is_dataclass(target):
        entry["parameters"] = [
            {
                "name": key,
                "symbol": meta.symbol,
                "default": None if default is dataclasses.MISSING else default,
                "range": meta.range,
                "doc": meta.doc,
            }
            for key, default, meta in describe(target)  # type: ignore[arg-type]
        ]
    else:
        entry["parameters"] = [
            {"name": key, "symbol": "", "default": None if d is ... else d, "range": "", "doc": ""}
            for key, (_, d) in declared(target).items()
        ]
    return entry


def _space(path: Path) -> dict[str, Any]:
    raw = dotted.read_yaml(path)
    lines = [line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        "name": str(path),
        "summary": next((text for text in lines[1:] if text.strip()), ""),
        "methods": [str(method) for method in raw.get("methods") or {}],
    }


def print_listing(kind: str, entries: list[dict[str, Any]], console: Console) -> None:
    """Print a kind's components, a table row per parameter."""
    table = Table(title=kind, title_justify="left", show_lines=kind != "spaces")
    table.add_column("name", style="bold", overflow="fold")
    table.add_column("what it is", overflow="fold")
    if kind == "spaces":
        table.add_column("methods", overflow="fold")
        for entry in entries:
            row = (entry["name"], entry["summary"], ", ".join(entry["methods"]))
            table.add_row(*map(escape, row))
    else:
        table.add_column("parameters (symbol, range) = default", overflow="fold")
        for entry in entries:
            lines = [_parameter_line(p) for p in entry["parameters"]]
            what = "\n".join(filter(None, [entry["summary"], entry.get("paper")]))
            table.add_row(*map(escape, (entry["name"], what, "\n".join(lines))))
    console.print(table)


def _parameter_line(p: dict[str, Any]) -> str:
    extra = ", ".join(filter(None, [p["symbol"], p["range"]]))
    note = f": {p['doc']}" if p["doc"] else ""
    return f"{p['name']}{f' ({extra})' if extra else ''} = {p['default']}{note}"
