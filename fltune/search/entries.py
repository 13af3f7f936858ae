"""The entries of a ``space`` section besides plain dimensions: fixed, tied and paired values.

    client.lr:     {loguniform: [0.001, 0.1]}                      # drawn; see dimension.py
    client.steps:  10                                              # fixed
    model.hidden:  {fixed: [64, 30]}                               # fixed, a list
    server.lr:     {tied: "0.01 / client.lr"}                      # follows from others
    client.epochs: {paired: [1, 2, 5], with: client.batch_size}    # walks along another's list

An entry says which parameters it reads, what is drawn for it, and what its value is then. Stage
schedules, which draw several numbers for one value, have a file of their own (stages.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fltune.search.condition import same
from fltune.search.dimension import Dimension
from fltune.search.expression import Expression

Look = Callable[[str], Any]
"""Gives the value of a parameter: of the point, fixed, or the experiment's own."""


class OpenError(LookupError):
    """A parameter that a partial point leaves open, and whose own value is not known either."""


class Entry(Protocol):
    """What the space says of one parameter."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The parameters whose values it needs."""

    @property
    def countable(self) -> bool:
        """Whether its values can be counted off."""

    @property
    def draws_vary(self) -> bool:
        """Whether what it reads decides how much is drawn for it."""

    def draws(self, name: str, look: Look) -> dict[str, Dimension]:
        """Return what is drawn for the parameter ``name``, by the name Optuna is told.

        Raises:
            ValueError: a parameter it reads has a value with which that is not defined.
        """

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> Any:
        """Return the parameter's value, JSON-able.

        Raises:
            ValueError: there is none; the message says at which values of what it reads.
        """

    def describe(self) -> str:
        """Return the entry in short."""

    def to_yaml(self) -> Any:
        """Return what a file says."""


class Undrawn:
    """An entry for which nothing is drawn."""

    countable = True
    draws_vary = False

    def draws(self, name: str, look: Look) -> dict[str, Dimension]:
        """Return nothing."""
        return {}


@dataclass(frozen=True)
class Fixed(Undrawn):
    """A value that is set and not searched."""

    constant: Any
    reads = ()

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> Any:
        """Return the value."""
        return self.constant

    def describe(self) -> str:
        """Return ``fixed 3``."""
        return f"fixed {self.constant}"

    def to_yaml(self) -> Any:
        """Return ``{fixed: 3}``."""
        return {"fixed": self.constant}


@dataclass(frozen=True)
class Tied(Undrawn):
    """A value computed from those of other parameters.

    Attributes:
        expression: the formula.
    """

    expression: Expression

    @property
    def reads(self) -> tuple[str, ...]:
        """The names in the formula."""
        return self.expression.names

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> Any:
        """Return the formula's value."""
        return self.expression.evaluate(look)

    def describe(self) -> str:
        """Return ``tied 0.01 / client.lr``."""
        return f"tied {self.expression.text}"

    def to_yaml(self) -> Any:
        """Return ``{tied: 0.01 / client.lr}``."""
        return {"tied": self.expression.text}


@dataclass(frozen=True)
class Paired(Undrawn):
    """A list that is walked together with the list of another parameter.

    Attributes:
        leader: dotted name of the other one.
        places: the other's values.
        values: what belongs to each of them.
    """

    leader: str
    places: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The other parameter."""
        return (self.leader,)

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> Any:
        """Return the partner of the other's value."""
        place = look(self.leader)
        for here, partner in zip(self.places, self.values, strict=True):
            if same(here, place):
                return partner
        raise ValueError(f"{self.leader} = {place!r} has no partner")

    def describe(self) -> str:
        """Return ``paired with client.lr: 1, 2``."""
        return f"paired with {self.leader}: " + ", ".join(map(str, self.values))

    def to_yaml(self) -> Any:
        """Return ``{paired: [1, 2], with: client.lr}``."""
        return {"paired": list(self.values), "with": self.leader}
