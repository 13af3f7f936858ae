"""Arithmetic on parameters, as a file may write it: ``0.01 / client.lr``.

The text is parsed, never executed: numbers, dotted names, ``+ - * / **``, parentheses and a few
functions are all there is. Powers are taken in floating point, so that no line of a file can ask
for a number that does not fit the memory.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fltune.errors import nearest
from fltune.search.condition import is_number

LONGEST = 300
"""Characters of an expression; what is longer belongs into code of one's own."""

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: math.pow(a, b),
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "sqrt": (math.sqrt, 1, 1),
    "log": (math.log, 1, 1),
    "exp": (math.exp, 1, 1),
    "abs": (abs, 1, 1),
    "int": (int, 1, 1),
    "round": (round, 1, 2),
    "min": (min, 2, 99),
    "max": (max, 2, 99),
}
"""Name to function, fewest and most arguments."""
ALLOWED = f"numbers, dotted names, + - * / **, parentheses, {', '.join(FUNCTIONS)}"


@dataclass(frozen=True)
class Expression:
    """One formula over dotted names.

    Args:
        text: what the file says.

    Raises:
        ValueError: something that is not allowed, with its position (from 1) and what is.

    >>> Expression("0.01 / client.lr").evaluate({"client.lr": 0.005}.__getitem__)
    2.0
    """

    text: str

    def __post_init__(self) -> None:
        _check(self.tree)

    @cached_property
    def tree(self) -> ast.expr:
        """The parsed formula."""
        if not isinstance(self.text, str) or not self.text.strip():
            raise ValueError(f"found {self.text!r}; a formula belongs there: 0.01 / client.lr")
        if len(self.text) > LONGEST:
            raise ValueError(f"longer than {LONGEST} characters: {self.text[:20]!r}...")
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except SyntaxError as error:
            raise _wrong(error.offset or 1, f"cannot be read ({error.msg})") from None
        except ValueError:  # a NUL character, on some versions of Python
            raise _wrong(1, "cannot be read") from None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The dotted names it reads, each once, in order."""
        found: dict[str, None] = {}
        _collect(self.tree, found)
        return tuple(found)

    def evaluate(self, look: Callable[[str], Any]) -> float:
        """Return the number.

        Args:
            look: gives the value of a dotted name.

        Raises:
            ValueError: a name that holds no number, or no finite result; with the values it read.
        """
        values = {name: look(name) for name in self.names}
        for name, value in values.items():
            if not is_number(value):
                raise ValueError(f"{self.text}: {name} is {value!r}, not a number")
        try:
            result = _value(self.tree, values)
        except (ArithmeticError, ValueError, TypeError) as error:
            reason = str(error)
        else:
            if math.isfinite(result):
                return result
            reason = f"the result is {result}"
        where = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise ValueError(f"{self.text}: {reason}" + (f" (at {where})" if where else ""))


def _wrong(position: int, what: str) -> ValueError:
    return ValueError(f"at position {position}: {what}; allowed: {ALLOWED}")


def _name(node: ast.expr) -> str | None:
    """Return the dotted name a node spells, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _check(node: ast.expr) -> None:
    position = node.col_offset + 1
    if isinstance(node, ast.Constant):
        value = node.value
        if not is_number(value):
            raise _wrong(position, f"{value!r} is no number")
    elif isinstance(node, ast.BinOp):
        if type(node.op) not in OPERATORS:
            raise _wrong(position, "an operator that is not allowed")
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        _check(node.operand)
    elif isinstance(node, ast.Call):
        _check_call(node)
    elif _name(node) is None:
        raise _wrong(position, "not allowed")


def _check_call(node: ast.Call) -> None:
    position, name = node.col_offset + 1, _name(node.func)
    if name not in FUNCTIONS:
        raise _wrong(position, f"unknown function {name or '?'}{nearest(name or '', FUNCTIONS)}")
    _, fewest, most = FUNCTIONS[name]
    if node.keywords or not fewest <= len(node.args) <= most:
        wanted = f"{fewest}" if fewest == most else f"{fewest} or {'more' if most > 2 else most}"
        raise _wrong(position, f"{name} takes {wanted} numbers, by place")
    for argument in node.args:
        _check(argument)


def _collect(node: ast.expr, found: dict[str, None]) -> None:
    name = _name(node)
    if name is not None:
        found[name] = None
    elif isinstance(node, ast.BinOp):
        _collect(node.left, found)
        _collect(node.right, found)
    elif isinstance(node, ast.UnaryOp):
        _collect(node.operand, found)
    elif isinstance(node, ast.Call):
        for argument in node.args:
            _collect(argument, found)


def _value(node: ast.expr, values: dict[str, Any]) -> Any:
    name = _name(node)
    if name is not None:
        return values[name]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, values)
        return -operand if isinstance(node.op, ast.USub) else operand
    assert isinstance(node, ast.Call)  # _check let nothing else pass
    arguments = [_value(argument, values) for argument in node.args]
    return FUNCTIONS[_name(node.func) or ""][0](*arguments)
