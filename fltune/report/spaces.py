"""The search files of a folder: whose experiment each is, its cost, whether its data is here."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fltune.data.dataset import Dataset
from fltune.data.images import TorchvisionImages
from fltune.errors import ConfigError
from fltune.experiment import Experiment

if TYPE_CHECKING:
    from fltune.search.config import SearchConfig


def space_files(folder: Path) -> list[Path]:
    """Return the search files below a folder; one whose name starts with _ is only extended."""
    return [path for path in sorted(folder.rglob("*.yaml")) if not path.name.startswith("_")]


def space_entry(path: Path) -> dict[str, Any]:
    """Return one plain object for a search file; a wrong file is listed with its ``problem``.

    ``trials`` are those of the search, the values that are taken over left out, none where nothing
    is tuned; ``confirmations`` are the runs on fresh seeds, at most; ``cells`` those of its
    scenarios; ``data_present`` is whether all data sets that it names are here. A file that trains
    nothing says what it ``computes`` instead.

    Raises:
        ConfigError: the file is no YAML mapping, or extends one that is missing.
    """
    from fltune.search.config import SearchConfig
    from fltune.search.extends import read_extended

    raw = read_extended(path)
    named = raw.get("about")
    about = named if isinstance(named, dict) else {}
    entry = {
        "name": str(path),
        "paper": about.get("paper"),
        "experiment": about.get("experiment"),
        "mini_of": list(about.get("mini_of") or []),
        "summary": about.get("shows") or _comment(path),
        "methods": [str(method) for method in raw.get("methods") or {}],
    }
    if "computes" in raw:
        entry["computes"] = str(raw.pop("computes"))
        if "scenarios" not in raw:  # a formula, of no data
            return {**entry, "data": [], "data_present": True}
    try:
        config = SearchConfig.parse(raw, str(path))
    except ConfigError as error:
        return {**entry, "problem": error.problems[0]}
    return {**entry, **_cost(config)}


def cost_line(entry: dict[str, Any]) -> str:
    """Return what a search costs and needs, in words; for a wrong file what is wrong."""
    if "problem" in entry:
        return f"not valid: {entry['problem']}"
    there = "" if entry["data_present"] else " (not here)"
    data = ", ".join(entry["data"]) + there
    if "computes" in entry:
        return f"no training\n{data}".rstrip()
    cells = f", {entry['cells']} cells" if entry["cells"] > 1 else ""
    runs = f"{entry['trials']} trials" if entry["trials"] else f"{entry['confirmations']} runs"
    return f"{runs} x {entry['rounds']} rounds{cells}\n{data}"


def _cost(config: SearchConfig) -> dict[str, Any]:
    from fltune.search.bequest import without_inherited

    search, methods = config.settings.search, config.methods.values()
    cells = {tuple((k, v) for k, v in m.scenario.items() if k != "method") for m in methods}
    experiments = _experiments(m.raw_with(m.first_values()) for m in methods)
    trials = [without_inherited(m, config.methods).trials(search) for m in methods]
    winners = [min(search.confirm_top, max(1, count)) for count in trials]
    return {
        "cells": len(cells),
        "trials": sum(trials),
        "rounds": min(max(e.rounds for e in experiments), search.rounds or sys.maxsize),
        "confirm_seeds": search.confirm_seeds,
        "confirmations": search.confirm_seeds * sum(winners),
        "data": list(dict.fromkeys(e.data.component_name for e in experiments)),
        "data_present": not _missing(experiments),
    }


def missing_data(worlds: SearchConfig | Iterable[Experiment]) -> list[str]:
    """Return the names of the data sets whose files are not where they are looked for."""
    if not isinstance(worlds, Iterable):
        methods = worlds.methods.values()
        worlds = _experiments(m.raw_with(m.first_values()) for m in methods)
    return _missing(worlds)


def _missing(experiments: Iterable[Experiment]) -> list[str]:
    built = [(e.data.component_name, e.data.build(num_clients=e.data.clients)) for e in experiments]
    return list(dict.fromkeys(name for name, dataset in built if not _is_here(dataset)))


def _experiments(raws: Iterable[dict[str, Any]]) -> list[Experiment]:
    """Return experiments of the data and rounds alone, each once: most methods share them."""
    shared = ("data", "rounds")
    parts: list[dict[str, Any]] = [{k: raw[k] for k in shared if k in raw} for raw in raws]
    return [Experiment.parse(part) for part in {repr(part): part for part in parts}.values()]


def _is_here(dataset: Dataset) -> bool:
    """Whether the files of a data set are where it looks for them; one without files is here."""
    if isinstance(dataset, TorchvisionImages):
        return all(dataset.find(name) is not None for name in dataset.files)
    names = ("folder", "path", "root")
    where = next((getattr(dataset, name) for name in names if hasattr(dataset, name)), None)
    return where is None or Path(where).expanduser().exists()


def _comment(path: Path) -> str:
    """Return the first sentence of a file's comment below the line that runs it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    top = itertools.takewhile(lambda line: line.startswith("#"), lines)
    words = " ".join(line.lstrip("# ") for line in itertools.islice(top, 1, None))
    return re.split(r"(?<=\.) ", words.strip(), maxsplit=1)[0].rstrip(".")
