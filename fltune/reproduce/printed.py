"""The numbers that the papers print, to stand beside ours.

``printed.json`` holds the tables of the FedCDR paper, which alone prints results, and the few
numbers that the others name in their text. A censored number, ``>400`` rounds, stays text.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from fltune.errors import nearest
from fltune.reproduce.claims import Claim


@functools.cache
def tables() -> dict[str, dict[str, Any]]:
    """Return the printed tables: rows of columns, and which rows are percentages, by number."""
    text = files("fltune.reproduce").joinpath("printed.json").read_text(encoding="utf-8")
    return json.loads(text)["tables"]


def problems(key: str, table: str, rows: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return which printed numbers are not there, with dotted keys."""
    if table not in tables():
        near = nearest(table, tables())
        return [f"{key}.table: {table!r} is not printed{near}; there: {', '.join(tables())}"]
    there, asked = tables()[table]["rows"], list(rows)
    wrong = [f"{key}.rows: no row {r!r}{nearest(r, there)}" for r in asked if r not in there]
    wrong += [
        f"{key}.columns: row {row!r} has no column {column!r}{nearest(column, there[row])}"
        for row, column in itertools.product(asked, columns)
        if row in there and column not in there[row]
    ]
    return wrong


def text(table: str, row: str, column: str) -> str:
    """Return a printed number, with its standard deviation where there is one; percent as fraction.

    Raises:
        KeyError: it is not printed.
    """
    scale = _scale(table, row)
    cell = tables()[table]["rows"][row][column]
    if isinstance(cell, list):
        return " ± ".join(f"{part * scale:.4f}" for part in cell)
    return cell if isinstance(cell, str) else f"{cell * scale:.4g}"


def _scale(table: str, row: str) -> float:
    percent = tables()[table]["percent"]
    return 0.01 if percent is True or (percent and row in percent) else 1.0


def theirs(claim: Claim) -> str:
    """Return a claim's statistic of the printed numbers; the numbers themselves where one is text.

    Percentages are given as fractions, as ours are.
    """
    assert claim.theirs is not None
    table = tables()[claim.theirs.table]
    places = [(r, c) for c in claim.theirs.columns for r in claim.theirs.rows]
    cells = [table["rows"][row][column] for row, column in places]
    scales = [_scale(claim.theirs.table, row) for row, _ in places]
    values = [cell[0] if isinstance(cell, list) else cell for cell in cells]
    scaled = [v * s for v, s in zip(values, scales, strict=True) if not isinstance(v, str)]
    if len(scaled) < len(values):
        pairs = zip(values, scales, strict=True)
        return ", ".join(v if isinstance(v, str) else f"{v * s:.4g}" for v, s in pairs)
    plain = [f"{v:.4g}" for v in scaled]
    statistic = _statistic(claim.statistic, scaled)
    return ", ".join(plain) if statistic is None else f"{statistic:.4g}"


def _statistic(name: str, v: list[float]) -> float | None:
    """Return the statistic of the numbers: of, than; at the first column, then at the last."""
    if name == "difference" and len(v) == 2:
        return v[0] - v[1]
    if name == "ratio" and len(v) == 2:
        return v[0] / v[1]
    if name == "growth" and len(v) == 4:
        return (v[2] - v[3]) - (v[0] - v[1])
    if name == "ratio_growth" and len(v) == 4:
        return (v[2] / v[0]) / (v[3] / v[1])
    steps = [b - a for a, b in itertools.pairwise(v)]
    if name in ("smallest_step", "largest_step") and steps:
        return min(steps) if name == "smallest_step" else max(steps)
    if name == "spread" and v:
        return max(v) - min(v)
    return v[0] if len(v) == 1 else None
