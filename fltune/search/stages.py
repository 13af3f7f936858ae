"""Stage schedules of multistage FedGM as something to search: lengths, drops, momenta.

The number of stages, the first rate and a drop that is the same at every border are parameters like
any other (``server.stages``, ``server.lr``, ``server.drop``). The server's lists are not: how long
they are depends on the number of stages, and stage ends must increase to the run's last round. They
have the kind ``stages``:

    server.stages:     {choice: [2, 3, 4]}
    server.lr:         {loguniform: [0.5, 4]}
    server.stage_ends: {stages: free}                          # or equal, or w2
    server.betas:      {stages: {uniform: [0.5, 0.95]}}        # one per stage, or w1
    server.lrs:        {stages: {drop: {choice: [0.5, 0.25]}}} # one drop per border, from server.lr

``w1`` and ``w2`` leave the list to the server, which solves it from the constraints of Sun, Wu,
Huang, Zhang (AAAI 2024); see :mod:`fltune.server.multistage`.

Lists are bad values for a sampler (Optuna's choices warn and do not round-trip), so each number in
them is drawn alone, as ``server.stage_ends.1``, ``server.betas.2``. Free lengths are S - 1 numbers
in [0, 1], by breaking a stick: the k-th is the quantile of stage k's length among all lengths that
leave one round to each later stage. Independent uniform numbers then give every increasing list of
ends with the same probability, exactly and not only for long runs, and a larger number is always a
longer stage. (Normalised exponentials are uniform too, but take S numbers for S - 1 lengths, and
each moves all stages.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fltune.errors import nearest
from fltune.search.condition import is_number
from fltune.search.dimension import Dimension
from fltune.search.entries import Look, OpenError, Undrawn

SHARE = Dimension("uniform", (0.0, 1.0))
LENGTHS = ("free", "equal", "w2")
FORMS = (
    "free, equal or w2 (stage_ends); w1 (betas); {drop: dimension} (lrs); "
    "a dimension such as {uniform: [0.5, 0.95]} (betas, nus)"
)


def free_ends(shares: Sequence[float], rounds: int) -> list[int]:
    """Return the round after each stage, from the shares of all stages but the last.

    Args:
        shares: S - 1 numbers in [0, 1].
        rounds: the run's rounds T, at least S.

    Raises:
        ValueError: fewer rounds than stages, or a share outside [0, 1].

    >>> free_ends([0.5, 0.5], 100)
    [29, 64, 100]
    """
    _enough(rounds, len(shares) + 1)
    ends, start = [], 0
    for later, share in zip(range(len(shares), 0, -1), shares, strict=True):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"found {share!r}; a share lies in [0, 1]")
        low, high = 1, rounds - start - later
        while low < high:  # the shortest length that is exceeded with probability <= 1 - share
            middle = (low + high) // 2
            if _longer(middle, rounds - start, later) <= 1.0 - share:
                high = middle
            else:
                low = middle + 1
        start += low
        ends.append(start)
    return [*ends, rounds]


def shares_of(ends: Sequence[int], rounds: int) -> list[float]:
    """Return shares that give some ends: :func:`free_ends` backwards, mid-way between borders."""
    shares, start = [], 0
    for later, end in zip(range(len(ends) - 1, 0, -1), ends, strict=False):
        left = rounds - start
        more = _longer(end - start - 1, left, later), _longer(end - start, left, later)
        shares.append(1.0 - sum(more) / 2.0)
        start = end
    return shares


def equal_ends(stages: int, rounds: int) -> list[int]:
    """Return the ends of stages of the same length, rounded half up.

    Raises:
        ValueError: fewer rounds than stages.
    """
    _enough(rounds, stages)
    return [math.floor(rounds * s / stages + 0.5) for s in range(1, stages + 1)]


def _longer(length: int, left: int, later: int) -> float:
    """Return P(first stage > length) when left rounds are split among it and ``later`` others."""
    return math.comb(left - length - 1, later) / math.comb(left - 1, later)


def _enough(rounds: int, stages: int) -> None:
    if rounds < stages:
        raise ValueError(f"{stages} stages need as many rounds; there are {rounds}")


@dataclass(frozen=True)
class _OfStages:
    """What all entries of kind ``stages`` share: they read how many stages there are.

    Attributes:
        section: dotted name of the server's section.
    """

    section: str
    draws_vary = True

    @property
    def reads(self) -> tuple[str, ...]:
        """Where the number of stages is found."""
        return f"{self.section}.stages", f"{self.section}.lrs"

    def count(self, look: Look) -> int:
        """Return the number of stages S: as many as there are rates, where rates are listed.

        Raises:
            ValueError: the server has no stages.
        """
        try:
            rates = look(f"{self.section}.lrs")
        except OpenError:
            rates = None
        if isinstance(rates, (list, tuple)):
            return len(rates)
        try:
            stages = look(f"{self.section}.stages")
        except OpenError:
            raise ValueError(
                f"{self.section}.stages is not known here; the kind stages goes with a server "
                "that has them, {name: multistage}"
            ) from None
        if not is_number(stages) or stages != int(stages) or stages < 1:
            raise ValueError(f"{self.section}.stages is {stages!r}; a whole number belongs there")
        return int(stages)


@dataclass(frozen=True)
class Lengths(_OfStages):
    """``stage_ends``: free, equal, or w2.

    Attributes:
        rule: which of them.
    """

    rule: str

    @property
    def countable(self) -> bool:
        """Whether there is one list only."""
        return self.rule != "free"

    @property
    def reads(self) -> tuple[str, ...]:
        """Stages and rounds."""
        return *super().reads, "rounds"

    def draws(self, name: str, look: Look) -> dict[str, Dimension]:
        """Return S - 1 shares if the lengths are free, else nothing."""
        if self.rule != "free":
            return {}
        return {f"{name}.{s}": SHARE for s in range(1, self.count(look))}

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> list[int] | None:
        """Return the ends; None where the server solves them."""
        if self.rule == "w2":
            return None
        if self.rule == "equal":
            return equal_ends(self.count(look), look("rounds"))
        return free_ends(list(drawn.values()), look("rounds"))

    def split(self, name: str, value: Sequence[Any], look: Look) -> dict[str, Any]:
        """Return what would have to be drawn for some ends.

        Raises:
            ValueError: they do not increase to the last round, or are too few or many.
        """
        rounds, ends = look("rounds"), list(value)
        whole = all(is_number(e) and e == int(e) for e in ends)
        if not whole or len(ends) != self.count(look) or sorted({0, *ends}) != [0, *ends]:
            raise ValueError(
                f"found {value!r}; {self.count(look)} rounds that increase belong there"
            )
        if ends[-1] != rounds:
            raise ValueError(f"found {value!r}; the last stage ends with the run, at {rounds}")
        shares = shares_of(ends, rounds)
        return {f"{name}.{s}": share for s, share in enumerate(shares, 1)}

    def describe(self) -> str:
        """Return ``stages free``."""
        return f"stages {self.rule}"

    def to_yaml(self) -> Any:
        """Return ``{stages: free}``."""
        return {"stages": self.rule}


@dataclass(frozen=True)
class SolvedBetas(Undrawn):
    """``betas: {stages: w1}``: the server solves them."""

    reads = ()

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> None:
        """Return None."""

    def describe(self) -> str:
        """Return ``stages w1``."""
        return "stages w1"

    def to_yaml(self) -> Any:
        """Return ``{stages: w1}``."""
        return {"stages": "w1"}


@dataclass(frozen=True)
class PerStage(_OfStages):
    """One number per stage, each drawn alone.

    Attributes:
        dimension: the values of each of them.
    """

    dimension: Dimension

    @property
    def countable(self) -> bool:
        """Whether the dimension is a list."""
        return self.dimension.finite

    def draws(self, name: str, look: Look) -> dict[str, Dimension]:
        """Return the dimension S times."""
        return {f"{name}.{s}": self.dimension for s in range(1, self.count(look) + 1)}

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> list[Any]:
        """Return the numbers, first stage first."""
        return list(drawn.values())

    def split(self, name: str, value: Sequence[Any], look: Look) -> dict[str, Any]:
        """Return what would have to be drawn for a list.

        Raises:
            ValueError: a list of another length.
        """
        if len(value) != self.count(look):
            raise ValueError(f"found {value!r}; {self.count(look)} values belong there")
        return {f"{name}.{s}": v for s, v in enumerate(value, 1)}

    def describe(self) -> str:
        """Return ``per stage uniform 0.5 .. 0.95``."""
        return f"per stage {self.dimension.describe()}"

    def to_yaml(self) -> Any:
        """Return ``{stages: {uniform: [0.5, 0.95]}}``."""
        return {"stages": self.dimension.to_yaml()}


@dataclass(frozen=True)
class Drops(_OfStages):
    """``lrs``: the first is ``lr``, each next one the one before times a drop drawn alone.

    Attributes:
        dimension: the values of a drop, in (0, 1].
    """

    dimension: Dimension

    @property
    def countable(self) -> bool:
        """Whether the dimension is a list."""
        return self.dimension.finite

    @property
    def reads(self) -> tuple[str, ...]:
        """Number of stages (not the rates, which these are), and the first rate."""
        return f"{self.section}.stages", f"{self.section}.lr"

    def draws(self, name: str, look: Look) -> dict[str, Dimension]:
        """Return the dimension S - 1 times."""
        return {f"{name}.{s}": self.dimension for s in range(1, self._borders(look) + 1)}

    def value(self, name: str, drawn: Mapping[str, Any], look: Look) -> list[float]:
        """Return the rates, first stage first."""
        return list(
            accumulate(drawn.values(), lambda rate, drop: rate * drop, initial=self._first(look))
        )

    def _borders(self, look: Look) -> int:
        return self.count(lambda name: None if name.endswith(".lrs") else look(name)) - 1

    def _first(self, look: Look) -> Any:
        first = look(f"{self.section}.lr")
        if not is_number(first):
            raise ValueError(f"{self.section}.lr is {first!r}, not a number")
        return first

    def describe(self) -> str:
        """Return ``drops choice 0.5, 0.25``."""
        return f"drops {self.dimension.describe()}"

    def to_yaml(self) -> Any:
        """Return ``{stages: {drop: {choice: [0.5, 0.25]}}}``."""
        return {"stages": {"drop": self.dimension.to_yaml()}}


StagesEntry = Lengths | SolvedBetas | PerStage | Drops


def parse_stages(name: str, raw: Any) -> StagesEntry:
    """Read the value of ``stages`` in the entry of a parameter.

    Raises:
        ValueError: a form that does not belong to that parameter.
    """
    section, _, last = name.rpartition(".")
    if not section:
        raise ValueError(f"found stages: {raw!r}; it belongs to a list of the server's stages")
    if isinstance(raw, str):
        return _named(section, last, raw)
    if isinstance(raw, Mapping) and "drop" in raw and len(raw) == 1:
        if last != "lrs":
            raise ValueError(f"found stages: {raw!r}; drops belong to {section}.lrs")
        dimension = Dimension.parse(raw["drop"])
        ends = dimension.values
        if not all(is_number(v) and 0 < v <= 1 for v in ends):
            raise ValueError(f"found drop: {raw['drop']!r}; drops lie in (0, 1]")
        return Drops(section, dimension)
    if last in ("stage_ends", "lrs"):
        raise ValueError(f"found stages: {raw!r}; write {FORMS}")
    return PerStage(section, Dimension.parse(raw))


def _named(section: str, last: str, rule: str) -> StagesEntry:
    if rule in LENGTHS and last == "stage_ends":
        return Lengths(section, rule)
    if rule == "w1" and last == "betas":
        return SolvedBetas()
    home = {"w1": "betas"}.get(rule, "stage_ends" if rule in LENGTHS else None)
    if home is not None:
        raise ValueError(f"found stages: {rule}; that belongs to {section}.{home}")
    raise ValueError(f"found stages: {rule!r}; write {FORMS}{nearest(rule, (*LENGTHS, 'w1'))}")
