"""When a parameter counts: ``when: {server.name: fedadam}``.

A condition names another parameter and a value, a list of values, or a comparison with a number
(``"> 0"``). Several conditions must all hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fltune import dotted

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}
_COMPARISON = re.compile(r"\s*(<=|>=|!=|<|>)(.*)", re.DOTALL)


def is_number(value: Any) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    """Whether two values of a file are the same: 1 is 1.0, and neither is true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@dataclass(frozen=True)
class Condition:
    """What one parameter must be for another one to count.

    Attributes:
        name: dotted name of the parameter that decides.
        test: as written: a value, a list of values, or ``"> 0"``, ``"!= fedavg"``.

    Raises:
        ValueError: an empty list, or a comparison without a number.
    """

    name: str
    test: Any

    def __post_init__(self) -> None:
        if self.test == [] or isinstance(self.test, Mapping):
            raise ValueError(
                f"when {self.name}: found {self.test!r}; write a value, a list of values, or a "
                'comparison such as "> 0"'
            )
        if self.operator in COMPARISONS and not is_number(self.operand):
            raise ValueError(f"when {self.name}: found {self.test!r}; compare with a number")

    @property
    def operator(self) -> str:
        """One of ``<= >= < > !=``; ``==`` for a plain value or a list."""
        match = _COMPARISON.fullmatch(self.test) if isinstance(self.test, str) else None
        return match.group(1) if match else "=="

    @property
    def operand(self) -> Any:
        """The value behind a comparison."""
        match = _COMPARISON.fullmatch(self.test)
        return dotted.load_yaml(match.group(2)) if match else self.test

    @property
    def wanted(self) -> list[Any]:
        """The values that are asked for; of a comparison, the one it compares with."""
        if self.operator != "==":
            return [self.operand]
        return self.test if isinstance(self.test, list) else [self.test]

    def holds(self, value: Any) -> bool:
        """Whether the condition is met."""
        if self.operator in COMPARISONS:
            return is_number(value) and COMPARISONS[self.operator](value, self.operand)
        met = any(same(value, wanted) for wanted in self.wanted)
        return not met if self.operator == "!=" else met

    def describe(self) -> str:
        """Return it in short: ``server.name = fedadam`` or ``server.nu > 0``."""
        sign = "=" if self.operator == "==" else self.operator
        return f"{self.name} {sign} {' or '.join(map(str, self.wanted))}"


def parse_conditions(raw: Any) -> tuple[Condition, ...]:
    """Read a ``when``.

    Raises:
        ValueError: no mapping of names to conditions, or one that cannot be read.
    """
    if not isinstance(raw, Mapping) or not raw:
        raise ValueError(
            f"found when: {raw!r}; write {{other.parameter: value}}, such as "
            "{server.name: fedadam}"
        )
    return tuple(Condition(str(name), test) for name, test in raw.items())
