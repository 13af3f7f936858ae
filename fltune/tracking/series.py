"""What of a curve goes into the tracking store: finite numbers, and no more than a chart shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

ROUND = "round"
Point = tuple[int, float]


def split_curves(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[str, list[Point]], bool]:
    """Return each metric's points by round, and whether a value was infinite.

    Infinite values are left out: MLflow stores them as 1.8e308, which flattens every chart they
    are in. NaN stays, MLflow draws it as a gap. What is no number (``None`` where a round was not
    evaluated, text, flags) is left out too.
    """
    curves: dict[str, list[Point]] = {}
    infinite = False
    for row in rows:
        step = int(row[ROUND])
        for name, value in row.items():
            if name == ROUND or isinstance(value, bool) or not isinstance(value, Real):
                continue
            number = float(value)
            if math.isinf(number):
                infinite = True
            else:
                curves.setdefault(name, []).append((step, number))
    return curves, infinite


def thin(points: list[Point], max_points: int) -> list[Point]:
    """Return at most ``max_points`` evenly spread points, the first and the last among them."""
    if max_points < 2:
        raise ValueError(f"max_points: found {max_points}, allowed 2 or more")
    if len(points) <= max_points:
        return points
    stride = (len(points) - 1) / (max_points - 1)
    return [points[round(index * stride)] for index in range(max_points)]


def with_final(rows: Iterable[Mapping[str, Any]], final: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``rows`` with the final metrics in the last row, where a chart and a table read them.

    A name that the last row has already takes the final value: logged twice at one step, MLflow
    would keep both and show either.
    """
    merged = [dict(row) for row in rows] or [{ROUND: 0}]
    merged[-1] |= {name: value for name, value in final.items() if name != ROUND}
    return merged
