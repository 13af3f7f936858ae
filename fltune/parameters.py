"""Hyperparameters as documented dataclass fields.

An algorithm, server optimizer, partition or participation pattern is a dataclass whose fields are
its hyperparameters. :func:`parameter` ties each field to the paper's symbol and to its range, once:
the constructor checks it, the config file is validated by it, and ``fltune list`` prints it.

    >>> @dataclass(frozen=True)
    ... class Prox(Checked):
    ...     mu: float = parameter(0.1, "proximal weight; 0 is FedAvg", symbol="mu", ge=0)
    >>> Prox(mu=-1)
    Traceback (most recent call last):
    ValueError: Prox: mu = -1 is not allowed; must be >= 0
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Meta:
    """What is known of one hyperparameter besides its type and default.

    Attributes:
        doc: one line; the unit where there is one, and what the limit values reduce to.
        symbol: the paper's letter, in ASCII.
        gt, ge, lt, le: bounds (exclusive, inclusive).
        choices: the allowed values of a name.
    """

    doc: str
    symbol: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    choices: tuple[Any, ...] | None = None

    @property
    def range(self) -> str:
        """The allowed values in words, such as ``in [0, 1)`` or ``> 0``; empty if all are."""
        if self.choices is not None:
            return "one of " + ", ".join(map(str, self.choices))
        low = self.ge if self.ge is not None else self.gt
        high = self.le if self.le is not None else self.lt
        if low is not None and high is not None:
            left, right = "(["[self.ge is not None], ")]"[self.le is not None]
            return f"in {left}{low:g}, {high:g}{right}"
        if low is not None:
            return f"{'>=' if self.ge is not None else '>'} {low:g}"
        if high is not None:
            return f"{'<=' if self.le is not None else '<'} {high:g}"
        return ""

    def allows(self, value: Any) -> bool:
        """Whether one number, or every number of a sequence, lies in the range."""
        if self.choices is not None:
            return value in self.choices
        if isinstance(value, (list, tuple)):
            return all(self.allows(v) for v in value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True  # tensors (packed trials) and names carry no checkable range
        bounds = (self.gt, self.ge, self.lt, self.le)
        if all(b is None for b in bounds):
            return True
        return not math.isnan(value) and (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )


def parameter(default: Any = MISSING, doc: str = "", *, symbol: str = "", **bounds: Any) -> Any:
    """Declare a hyperparameter of a dataclass; see :class:`Meta` for the bounds.

    A mutable default (a list) is copied for each instance. Without a default the field is required.
    """
    meta = Meta(doc=doc, symbol=symbol, **bounds)
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"meta": meta})
    return field(default=default, metadata={"meta": meta})


class Checked:
    """A dataclass base that checks every :func:`parameter` against its range.

    Raises:
        ValueError: naming the class, the field, the value given and the values allowed.
    """

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            meta = f.metadata.get("meta")
            value = getattr(self, f.name)
            if meta is not None and value is not None and not meta.allows(value):
                raise ValueError(
                    f"{type(self).__name__}: {f.name} = {value!r} is not allowed; "
                    f"must be {meta.range}"
                )


def check_at_most(name: str, count: int, num_clients: int) -> None:
    """Raise ValueError where a parameter asks for more clients than there are."""
    if count > num_clients:
        raise ValueError(f"{name} = {count} is more than the {num_clients} clients there are")


def check_one_each(
    name: str, values: Sequence[Any] | None, num_clients: int, what: str = "entries"
) -> None:
    """Raise ValueError where a list is given that has not one value for each client."""
    if values is not None and len(values) != num_clients:
        raise ValueError(f"{name} has {len(values)} {what} for {num_clients} clients")


def describe(cls: type) -> list[tuple[str, Any, Meta]]:
    """Return (name, default, meta) of each declared hyperparameter of a dataclass."""
    if not dataclasses.is_dataclass(cls):
        return []
    rows = []
    for f in dataclasses.fields(cls):
        if "meta" not in f.metadata:
            continue
        default = f.default
        if default is MISSING and f.default_factory is not MISSING:
            default = f.default_factory()
        rows.append((f.name, default, f.metadata["meta"]))
    return rows
