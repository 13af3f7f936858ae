"""The axes of the page's pictures: which are logarithmic, and where their ticks stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fltune.search.condition import is_number
from fltune.search.dimension import Dimension

WIDE = 20.0
"""Largest over smallest value from which a list of positive numbers is drawn on a log axis."""
WIDE_SCORES = 50.0
"""The same for losses and costs: beyond it a linear axis shows the worst of them alone."""
FINE_DECADES = 2.0
"""Up to so many decades there are ticks at 2 and 5 times the powers of ten too."""
FEW = 10
"""Counts below which every one is a tick."""


@dataclass(frozen=True)
class Scale:
    """Where scores stand between the lowest and the highest.

    Attributes:
        low, high: the ends.
        log: whether the axis is logarithmic; both ends are positive then.
    """

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], rising: bool) -> Scale:
        """Return the scale of some finite values.

        Args:
            values: at least one.
            rising: whether more is better, as of accuracies, which are never logarithmic.
        """
        low, high = min(values), max(values)
        return cls(low, high, not rising and low > 0 and high / low >= WIDE_SCORES)

    @property
    def kind(self) -> str:
        """Return plotly's type of the axis."""
        return "log" if self.log else "linear"

    def share(self, value: float) -> float:
        """Return a value's place, from 0 to 1 between the ends."""
        scale = math.log if self.log else float
        low, high = scale(self.low), scale(self.high)
        return (scale(value) - low) / ((high - low) or 1.0)

    def at(self, share: float) -> float:
        """Return the value at a place."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)


def counted(last: float, first: float = 0.0) -> dict[str, Any]:
    """Return the ticks of an axis of whole numbers: there is no half trial, and no half round."""
    return {"dtick": 1} if last - first < FEW else {}


def numeric(dimension: Dimension) -> bool:
    """Whether all values of a parameter are numbers."""
    return all(map(is_number, dimension.values))


def kind(dimension: Dimension) -> str:
    """Return plotly's type of an axis for a parameter."""
    if not numeric(dimension):
        return "category"
    if dimension.logarithmic:
        return "log"
    low, high = min(dimension.values), max(dimension.values)
    return "log" if dimension.finite and low > 0 and high / low >= WIDE else "linear"


def ticks(dimension: Dimension) -> list[Any] | None:
    """Return the values of an axis's ticks: a list's own, and round ones in a log range."""
    if dimension.finite:
        return list(dimension.values)
    if kind(dimension) != "log":
        return None
    low, high = (math.log10(end) for end in dimension.values)
    digits = (1, 2, 5) if high - low <= FINE_DECADES else (1,)
    powers = range(math.floor(low), math.floor(high) + 1)
    return [digit * 10.0**power for power in powers for digit in digits]


def whole(dimension: Dimension, values: Sequence[float]) -> list[float]:
    """Return plotly's range of an axis that shows all of a space, and values outside of it."""
    log = kind(dimension) == "log"
    ends = [end for end in (*dimension.values, *values) if has_place(dimension, end)]
    low, high = (math.log10(end) if log else end for end in (min(ends), max(ends)))
    room = 0.05 * (high - low) or 0.5
    return [low - room, high + room]


def has_place(dimension: Dimension, value: Any) -> bool:
    """Whether a value can stand on its axis; an extension may have narrowed or changed a space."""
    if numeric(dimension):
        return is_number(value) and (value > 0 or kind(dimension) != "log")
    return value in dimension.values


def share(dimension: Dimension, value: Any) -> float:
    """Return where a value lies on its axis, from 0 to 1."""
    if dimension.finite and not numeric(dimension):
        return dimension.values.index(value) / max(1, len(dimension.values) - 1)
    ends = min(dimension.values), max(dimension.values)
    return Scale(*ends, kind(dimension) == "log").share(value)


def labels(dimension: Dimension) -> list[Any]:
    """Return what is written along an axis: a list, or the ends and the powers of ten between."""
    if dimension.finite:
        return list(dimension.values)
    low, high = dimension.values
    if kind(dimension) != "log":
        return [low, high]
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    inside = [10.0**p for p in powers if 0.06 < share(dimension, 10.0**p) < 0.94]
    return [low, *inside, high]
