"""What values a search may try for one parameter, and all parameters together.

A file writes ``{grid: [0.5, 1, 2]}``, ``{choice: [...]}``, ``{uniform: [low, high]}``,
``{loguniform: [low, high]}``, ``{int: [low, high]}`` or ``{logint: [low, high]}``. Choices are
proposed to Optuna by their position: lists and mixed types then survive every sampler and storage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fltune.errors import nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FINITE = ("grid", "choice")
RANGES = ("uniform", "loguniform", "int", "logint")
EDGE_SHARE = 0.02
"""A winner this close to a range's end, as a share of its (logarithmic) length, is on the edge."""
NEAR = 1e-3
"""How far outside an edge the next number is looked for, as a share of the range."""


@dataclass(frozen=True)
class Dimension:
    """The values of one parameter.

    Attributes:
        kind: one of grid, choice, uniform, loguniform, int, logint.
        values: the candidates of grid and choice; (low, high), both included, of the ranges.
    """

    kind: str
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, raw: Any) -> Dimension:
        """Read one entry of a ``space`` section.

        Raises:
            ValueError: no mapping of one known kind, nothing to choose from, or bounds that do not
                make a range.
        """
        kinds = ", ".join((*FINITE, *RANGES))
        if not isinstance(raw, Mapping) or len(raw) != 1:
            raise ValueError(f"found {raw!r}; write one of {kinds}, such as {{grid: [0.5, 1, 2]}}")
        ((kind, values),) = raw.items()
        if kind not in (*FINITE, *RANGES):
            raise ValueError(
                f"unknown kind {kind!r}; known: {kinds}{nearest(str(kind), (*FINITE, *RANGES))}"
            )
        if not isinstance(values, list):
            raise ValueError(f"found {kind}: {values!r}; a list belongs there")
        if kind in FINITE:
            return cls(kind, _distinct(kind, values))
        return cls(kind, _bounds(kind, values))

    @property
    def finite(self) -> bool:
        """Whether the values can be counted off."""
        return self.kind in FINITE

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers with an edge at either end."""
        return all(
            isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values
        ) and (len(self.values) > 1)

    def distribution(self) -> BaseDistribution:
        """Return what Optuna draws from."""
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        if self.kind == "choice" or (self.kind == "grid" and not self.ordered):
            return CategoricalDistribution(range(len(self.values)))
        if self.kind == "grid":  # an ordered grid has neighbours; a choice has none
            return IntDistribution(0, len(self.values) - 1)
        low, high = self.values
        if self.kind in ("int", "logint"):
            return IntDistribution(low, high, log=self.kind == "logint")
        return FloatDistribution(low, high, log=self.kind == "loguniform")

    def decode(self, drawn: Any) -> Any:
        """Return the value behind what Optuna drew."""
        return self.values[drawn] if self.finite else drawn

    def edge(self, value: Any) -> str | None:
        """Return ``"lowest"`` or ``"highest"`` if a value lies on the border, else None."""
        if not self.ordered or value not in self:
            return None
        low, high = min(self.values), max(self.values)
        if self.finite:
            return "lowest" if value == low else "highest" if value == high else None
        scale = math.log if self.kind in ("loguniform", "logint") else float
        place = (scale(value) - scale(low)) / ((scale(high) - scale(low)) or 1.0)
        return "lowest" if place <= EDGE_SHARE else "highest" if place >= 1 - EDGE_SHARE else None

    def beyond(self, edge: str) -> tuple[float, int]:
        """Return what lies just outside an edge: the next number, and the next whole one.

        If the parameter allows neither, nothing lies beyond: a rate ends above 0, a count at 1.
        """
        low, high = min(self.values), max(self.values)
        if edge == "lowest":
            step = min(high - low, abs(low) or math.inf)
            return low - NEAR * step, math.ceil(low) - 1
        return high + NEAR * (high - low), math.floor(high) + 1

    def __contains__(self, value: Any) -> bool:
        if self.finite:
            return value in self.values
        return bool(self.values[0] <= value <= self.values[1])

    def describe(self) -> str:
        """Return the entry in short: ``grid 0.5, 1, 2`` or ``loguniform 0.1 .. 5``."""
        if self.finite:
            return f"{self.kind} " + ", ".join(map(str, self.values))
        return f"{self.kind} {self.values[0]:g} .. {self.values[1]:g}"


def _distinct(kind: str, values: list[Any]) -> tuple[Any, ...]:
    if not values:
        raise ValueError(f"{kind} is empty; give at least one value")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"{kind} holds {value!r} twice")
    return tuple(values)


def _bounds(kind: str, values: list[Any]) -> tuple[Any, Any]:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if len(values) != 2 or not numbers or not all(map(math.isfinite, values)):
        raise ValueError(f"found {kind}: {values!r}; two numbers belong there, [low, high]")
    low, high = values
    if low >= high:
        raise ValueError(f"found {kind}: {values!r}; low must be below high")
    if kind in ("loguniform", "logint") and low <= 0:
        raise ValueError(f"found {kind}: {values!r}; a logarithm needs low > 0")
    if kind in ("int", "logint"):
        if low != int(low) or high != int(high):
            raise ValueError(f"found {kind}: {values!r}; both bounds must be whole numbers")
        return int(low), int(high)
    return float(low), float(high)


@dataclass(frozen=True)
class Space:
    """All dimensions of a method, by dotted name."""

    dimensions: Mapping[str, Dimension]

    @property
    def cells(self) -> int | None:
        """The number of combinations; None where a dimension is continuous or an integer range."""
        if not all(d.finite for d in self.dimensions.values()):
            return None
        return math.prod(len(d.values) for d in self.dimensions.values())

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield every combination once, the last dimension fastest.

        Raises:
            ValueError: a dimension cannot be counted off.
        """
        open_ended = [k for k, d in self.dimensions.items() if not d.finite]
        if open_ended:
            raise ValueError(f"{open_ended[0]} is a range; an exact grid needs grid or choice")
        axes = [d.values for d in self.dimensions.values()]
        for combination in itertools.product(*axes):
            yield dict(zip(self.dimensions, combination, strict=True))

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return what Optuna draws from, by dotted name."""
        return {name: d.distribution() for name, d in self.dimensions.items()}

    def decode(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values behind what Optuna drew."""
        return {name: d.decode(drawn[name]) for name, d in self.dimensions.items()}

    def edges(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the parameters whose value lies on a border: name to lowest or highest."""
        found = {name: d.edge(values[name]) for name, d in self.dimensions.items()}
        return {name: edge for name, edge in found.items() if edge is not None}
