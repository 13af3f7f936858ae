"""What there is: algorithms, server optimizers, data sets ... with their parameters.

An algorithm is listed with what it sends and keeps too: d is the number of the model's parameters,
N that of all clients.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.algorithms import ALGORITHMS
from fltune.algorithms.base import Algorithm
from fltune.data import DATASETS, PARTITIONS
from fltune.errors import ConfigError, nearest
from fltune.federation.clock import CLOCKS
from fltune.federation.compression import BITS_PER_FLOAT, COMPRESSORS, Compressor
from fltune.federation.delays import DELAYS
from fltune.federation.schedules import SCHEDULES
from fltune.federation.work import WORK
from fltune.models import MODELS
from fltune.parameters import Meta, describe
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
    "compressors": COMPRESSORS,
    "schedules": SCHEDULES,
    "work": WORK,
    "delays": DELAYS,
    "clocks": CLOCKS,
}
KINDS = (*REGISTRIES, "spaces")
REQUIRED = (dataclasses.MISSING, ...)
"""What stands for the default of a parameter that has none: in a dataclass, in a section."""


def listing(kind: str, spaces: Path = Path("search_spaces")) -> list[dict[str, Any]]:
    """Return one plain object per component of a kind.

    Raises:
        ConfigError: there is no such kind, or no folder of search files.
    """
    if kind == "spaces":
        if not spaces.is_dir():
            raise ConfigError(
                f"there is no folder {spaces} here; start in fltune's checkout, which has one"
            )
        from fltune.report.spaces import space_entry, space_files  # the typed config: seconds

        return [space_entry(path) for path in space_files(spaces)]
    if kind not in REGISTRIES:
        raise ConfigError(f"unknown kind {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
    registry = REGISTRIES[kind]
    return [_component(name, registry.load(name)) for name in registry]


def _component(name: str, target: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "summary": (target.__doc__ or "").split("\n")[0]}
    if getattr(target, "paper", ""):
        entry["paper"] = target.paper
    if isinstance(target, type) and issubclass(target, Algorithm):
        entry |= _costs(target)
    if dataclasses.is_dataclass(target):
        known = describe(target)  # type: ignore[arg-type]
    else:
        known = [(key, default, Meta("")) for key, (_, default) in declared(target).items()]
    entry["parameters"] = [
        {
            "name": key,
            "symbol": meta.symbol,
            "default": None if default in REQUIRED else default,
            "required": default in REQUIRED,
            "range": meta.range,
            "doc": meta.doc,
        }
        for key, default, meta in known
    ]
    return entry


def _costs(target: type[Algorithm]) -> dict[str, Any]:
    """Return floats down and up per active client with the defaults, uncompressed, and memory.

    ``down`` and ``up`` are multiples of d; ``communication`` has the single numbers too.
    """
    entry: dict[str, Any] = {}
    plain, words = Compressor(), []
    algorithm = target()
    for way, bits in (("down", algorithm.bits_down), ("up", algorithm.bits_up)):
        one, two = (bits(d, plain) / BITS_PER_FLOAT for d in (1, 2))  # affine in d
        entry[way] = two - one
        times, rest = f"{two - one:g}d".removeprefix("1d") or "d", 2 * one - two
        words.append(f"{times}{f' + {rest:g}' if rest else ''} {way}")
    return {**entry, "communication": ", ".join(words), "memory": target.memory}


def print_listing(kind: str, entries: list[dict[str, Any]], console: Console) -> None:
    """Print a kind's components, a table row per parameter; search files folder by folder."""
    table = Table(title=kind, title_justify="left", show_lines=kind != "spaces")
    if kind == "spaces":
        _add_spaces(table, entries)
    else:
        _add_components(table, entries)
    console.print(table)


def _add_components(table: Table, entries: list[dict[str, Any]]) -> None:
    table.add_column("name", style="bold", overflow="fold")
    table.add_column("what it is", overflow="fold")
    table.add_column("parameters (symbol, range) = default", overflow="fold")
    for entry in entries:
        lines = [_parameter_line(p) for p in entry["parameters"]]
        what = [entry["summary"], entry.get("paper")]
        if "communication" in entry:
            what += [f"sends {entry['communication']}", f"keeps {entry['memory']}"]
        what_it_is = "\n".join(filter(None, what))
        table.add_row(*map(escape, (entry["name"], what_it_is, "\n".join(lines))))


def _add_spaces(table: Table, entries: list[dict[str, Any]]) -> None:
    from fltune.report.spaces import cost_line

    table.add_column("file", style="bold", no_wrap=True)
    for head in ("what it is", "methods", "cost and data"):
        table.add_column(head, overflow="fold")
    folder = None
    for entry in entries:
        path = Path(entry["name"])
        if path.parent != folder:
            folder = path.parent
            table.add_section()
            table.add_row(f"[dim]{escape(str(folder))}/[/dim]")
        named = entry.get("experiment")
        whose = filter(None, (entry.get("paper"), None if named == path.stem else named))
        shown = "\n".join(filter(None, (", ".join(whose), entry["summary"])))
        row = (path.name, shown, ", ".join(entry["methods"]), cost_line(entry))
        table.add_row(*map(escape, row))


def _parameter_line(p: dict[str, Any]) -> str:
    extra = ", ".join(filter(None, [p["symbol"], p["range"]]))
    note = f": {p['doc']}" if p["doc"] else ""
    value = "required" if p["required"] else f"= {_as_in_a_file(p['default'])}"
    return f"{p['name']}{f' ({extra})' if extra else ''} {value}{note}"


def _as_in_a_file(default: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    plain = default is None or isinstance(default, bool)
    return words[default] if plain else str(default)
