"""What values a search may try for one parameter.

A file writes ``{grid: [0.5, 1, 2]}``, ``{choice: [...]}``, ``{uniform: [low, high]}``,
``{loguniform: [low, high]}``, ``{int: [low, high]}`` or ``{logint: [low, high]}``; ``uniform`` and
``int`` may have a ``step``. Choices are proposed to Optuna by their position: lists and mixed types
then survive every sampler and storage. So are the values of a stepped range of floats, which are
then 0.3 and not 0.30000000000000004.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fltune.errors import nearest
from fltune.search.condition import is_number, same

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FINITE = ("grid", "choice")
RANGES = ("uniform", "loguniform", "int", "logint")
STEPPED = ("uniform", "int")
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
        step: distance of two values of a range that is no continuum; it divides the range.
    """

    kind: str
    values: tuple[Any, ...]
    step: float | None = None

    reads = ()
    draws_vary = False

    @classmethod
    def parse(cls, raw: Any) -> Dimension:
        """Read one entry of a ``space`` section.

        Raises:
            ValueError: no mapping of one known kind, nothing to choose from, or bounds that do not
                make a range.
        """
        kinds = ", ".join((*FINITE, *RANGES))
        written = dict(raw) if isinstance(raw, Mapping) else {}
        step = written.pop("step", None)
        if len(written) != 1:
            raise ValueError(f"found {raw!r}; write one of {kinds}, such as {{grid: [0.5, 1, 2]}}")
        ((kind, values),) = written.items()
        if kind not in (*FINITE, *RANGES):
            raise ValueError(
                f"unknown kind {kind!r}{nearest(str(kind), (*FINITE, *RANGES))}; known: {kinds}"
            )
        if not isinstance(values, (list, tuple)):
            raise ValueError(f"found {kind}: {values!r}; a list belongs there")
        values = list(values)
        if step is not None and kind not in STEPPED:
            raise ValueError(f"found step: {step!r} with {kind}; a step goes with uniform or int")
        if kind in FINITE:
            return cls(kind, _distinct(kind, values))
        low, high = _bounds(kind, values)
        return cls(kind, (low, high), None if step is None else _step(kind, low, high, step))

    @property
    def finite(self) -> bool:
        """Whether the values are counted off in the file."""
        return self.kind in FINITE

    @property
    def countable(self) -> bool:
        """The same, as every entry of a space says it; see :class:`fltune.search.entries.Entry`."""
        return self.finite

    def draws(self, name: str, look: Callable[[str], Any]) -> dict[str, Dimension]:
        """Return itself: the parameter is drawn under its own name."""
        return {name: self}

    def value(self, name: str, drawn: Mapping[str, Any], look: Callable[[str], Any]) -> Any:
        """Return what was drawn."""
        return drawn[name]

    @property
    def logarithmic(self) -> bool:
        """Whether the values of a range are spread evenly by their logarithm."""
        return self.kind in ("loguniform", "logint")

    @property
    def whole(self) -> bool:
        """Whether the values of a range are whole numbers."""
        return self.kind in ("int", "logint")

    def scale(self, value: float) -> float:
        """Return a value of a range, or its logarithm: what is spread evenly."""
        return math.log(value) if self.logarithmic else float(value)

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers with an edge at either end."""
        return all(map(is_number, self.values)) and len(self.values) > 1

    @property
    def by_position(self) -> bool:
        """Whether Optuna is given positions, not values."""
        return self.finite or (self.kind == "uniform" and self.step is not None)

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
        if self.by_position:
            return IntDistribution(0, self.encode(high))
        if self.whole:
            return IntDistribution(low, high, log=self.logarithmic, step=int(self.step or 1))
        return FloatDistribution(low, high, log=self.logarithmic)

    def decode(self, drawn: Any) -> Any:
        """Return the value behind what Optuna drew."""
        if self.finite:
            return self.values[drawn]
        if self.by_position:
            return float(_decimal(self.values[0]) + drawn * _decimal(self.step))
        return drawn

    def encode(self, value: Any) -> Any:
        """Return what Optuna stores for a value: :meth:`decode` backwards.

        Raises:
            ValueError: the value is none of the dimension's.
        """
        if value not in self:
            raise ValueError(f"found {value!r}; allowed: {self.describe()}")
        if self.finite:
            return next(i for i, known in enumerate(self.values) if same(known, value))
        if self.by_position:
            return round((value - self.values[0]) / (self.step or 1.0))
        return int(value) if self.whole else float(value)

    def at(self, share: float) -> Any:
        """Return the value at a share of the way, in [0, 1): all are equally likely at random.

        Those of a range by logarithm: equally likely in a ratio.
        """
        low, high = self.values[0], self.values[-1]
        if self.by_position:
            count = len(self.values) if self.finite else self.encode(high) + 1
            return self.decode(int(share * count))
        if self.kind == "loguniform":
            return min(low * (high / low) ** share, high)
        if self.kind == "logint":
            return int(low * ((high + 1) / low) ** share)
        if self.kind == "int":
            step = int(self.step or 1)
            return low + step * int(share * ((high - low) // step + 1))
        return low + share * (high - low)

    def edge(self, value: Any) -> str | None:
        """Return ``"lowest"`` or ``"highest"`` if a value lies on the border, else None."""
        if not self.ordered or value not in self:
            return None
        low, high = min(self.values), max(self.values)
        if self.finite:
            return "lowest" if value == low else "highest" if value == high else None
        start, end = self.scale(low), self.scale(high)
        place = (self.scale(value) - start) / ((end - start) or 1.0)
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
            return any(same(known, value) for known in self.values)
        if not is_number(value) or not self.values[0] <= value <= self.values[1]:
            return False
        if self.whole and value != int(value):
            return False
        return self.step is None or _divides(self.step, value - self.values[0])

    def describe(self) -> str:
        """Return the entry in short: ``grid 0.5, 1, 2`` or ``loguniform 0.1 .. 5``."""
        if self.finite:
            return f"{self.kind} " + ", ".join(map(str, self.values))
        step = "" if self.step is None else f" step {self.step:g}"
        return f"{self.kind} {self.values[0]:g} .. {self.values[1]:g}{step}"

    def to_yaml(self) -> dict[str, Any]:
        """Return what a file says: :meth:`parse` backwards."""
        step = {} if self.step is None else {"step": self.step}
        return {self.kind: list(self.values), **step}


def _distinct(kind: str, values: list[Any]) -> tuple[Any, ...]:
    if not values:
        raise ValueError(f"{kind} is empty; give at least one value")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"{kind} holds {value!r} twice")
    return tuple(values)


def _bounds(kind: str, values: list[Any]) -> tuple[Any, Any]:
    numbers = all(map(is_number, values)) and all(map(math.isfinite, values))
    if len(values) != 2 or not numbers:
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


def _step(kind: str, low: float, high: float, step: Any) -> float:
    if not is_number(step) or not math.isfinite(step) or step <= 0:
        raise ValueError(f"found step: {step!r}; a number above 0 belongs there")
    if kind == "int" and step != int(step):
        raise ValueError(f"found step: {step!r} with int; a whole number belongs there")
    if not _divides(step, high - low):
        raise ValueError(f"found step: {step!r}; it does not divide the range {low:g} .. {high:g}")
    return int(step) if kind == "int" else float(step)


def _divides(step: float, length: float) -> bool:
    return abs(length / step - round(length / step)) < 1e-6


def _decimal(number: float | None) -> Decimal:
    return Decimal(repr(number))
