"""Where a winner sits on the border of its space: how the score still moves there, and what to do.

A best value at the end of a range says little about the best value there is. It is named, with the
scores along that parameter, and with a wider entry that can be searched next.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fltune.errors import ConfigError
from fltune.search.candidate import Candidate
from fltune.search.dimension import Dimension
from fltune.search.entries import Paired
from fltune.search.method import Method
from fltune.search.settings import SearchSettings

SLICES = 4
"""Parts of a range whose best scores are compared."""
WIDER = 0.5
"""By how much of its (logarithmic) length a range is widened, and by how many values a list."""
HALVINGS = 12
"""Steps in which the last allowed value beyond an edge is closed in on."""


@dataclass(frozen=True)
class Edge:
    """A winning value on the border of its space.

    Attributes:
        parameter: dotted name.
        side: lowest or highest.
        value: the winning value.
        trend: the best score by value up to the edge, in order: of a list at each of its values, of
            a range in each quarter of it, with the value that had it.
        still_rising: whether the score is better at the edge than one step inside it.
        wider: the entry of the space, widened to that side; as a file says it. Empty where none
            can be written: beyond a list with a paired one lie no partners, and a number in a list
            of stages has no entry of its own.
        trials: how many more the wider space needs to be searched; 0 where all new cells of a list
            run by themselves.
    """

    parameter: str
    side: str
    value: Any
    trend: list[tuple[float, float]]
    still_rising: bool
    wider: dict[str, Any]
    trials: int = 0

    def setting(self, method: str) -> str:
        """Return the ``--set`` argument that widens the space."""
        return f"methods.{method}.space.{self.parameter}={json.dumps(self.wider)}"

    def option(self, method: str) -> str:
        """Return the same with ``--set``, quoted for a shell."""
        return f"--set {shlex.quote(self.setting(method))}"

    def extension(self, method: str) -> str:
        """Return the options with which ``extend`` searches the wider space."""
        more = f"--trials {self.trials} " if self.trials else ""
        return f"{more}{self.option(method)}"

    def with_trials(self, method: Method, search: SearchSettings) -> Edge:
        """Return the edge with as many more trials as its method has had, where it needs any.

        A range that is widened when all trials are spent would be searched by none.
        """
        if not self.wider or method.widened({self.parameter: self.wider}).exact(search):
            return self
        return replace(self, trials=search.trials)


def find_edges(
    method: Method, candidates: Sequence[Candidate], winner: Candidate, maximize: bool
) -> list[Edge]:
    """Return the borders that the winner sits on, beyond which there are allowed values.

    How the score moves there is told by configs that could have won: where the winner keeps the
    constraints, by those that do.
    """
    found = []
    candidates = [c for c in candidates if c.feasible or not winner.feasible]
    active = method.space.active(winner.values)
    for name, side in method.extendable_edges(winner.values).items():
        trend = _trend(active[name], name, candidates, side, maximize)
        inner, outer = ([s for _, s in trend][-2:] * 2)[:2]
        rising = len(trend) > 1 and (outer > inner if maximize else outer < inner)
        wider = widened(method, winner.values, name, side)
        found.append(Edge(name, side, winner.values[name], trend, rising, wider))
    return found


def wider_entries(method: Method, edges: Sequence[Edge]) -> dict[str, dict[str, Any]]:
    """Return the widened entries of a space, by parameter, that the config allows all together."""
    entries: dict[str, dict[str, Any]] = {}
    for edge in edges:
        more = {**entries, edge.parameter: edge.wider}
        if edge.wider and _is_sound(method, more):
            entries = more
    return entries


def _is_sound(method: Method, entries: dict[str, dict[str, Any]]) -> bool:
    try:
        method.widened(entries)
    except ConfigError:
        return False
    return True


def _trend(
    dimension: Dimension, name: str, candidates: Sequence[Candidate], side: str, maximize: bool
) -> list[tuple[float, float]]:
    """Return (value, best score there), the edge last; each value is one that was tried."""
    best: dict[float, tuple[float, float]] = {}
    for candidate in candidates:
        if candidate.status == "complete" and name in candidate.values:
            value, score = candidate.values[name], candidate.scores[0]
            place = _place(dimension, value)
            known = best[place][1] if place in best else None
            if known is None or (score > known if maximize else score < known):
                best[place] = value, score
    return sorted(best.values(), reverse=side == "lowest")


def _place(dimension: Dimension, value: float) -> float:
    """Return what configs are compared by: a list's value itself, a range's slice."""
    if dimension.finite:
        return value
    low, high = map(dimension.scale, dimension.values)
    part = (dimension.scale(value) - low) / (high - low) * SLICES
    return min(math.floor(part), SLICES - 1)


def widened(method: Method, point: dict[str, Any], name: str, side: str) -> dict[str, Any]:
    """Return a dimension's entry, widened beyond one side as far as the config allows.

    A list goes on in its own steps, by half as many values as it has; a range grows by half its
    length. What the parameter cannot be is left out, or closed in on. Empty if nothing is left, and
    for a draw that is no entry of its own: a number in the list of a server's stages.
    """
    own = method.space.entries
    if name not in own or any(isinstance(e, Paired) and e.leader == name for e in own.values()):
        return {}
    dimension = method.space.active(point)[name]
    make = _longer_list if dimension.finite else _longer_range
    entry = make(method, point, name, side)
    if entry:
        conditions = method.space.to_yaml()[name].get("when")
        entry |= {"when": conditions} if conditions else {}
    # What is allowed beside the winner's other values need not be beside all others.
    return entry if entry and _is_sound(method, {name: entry}) else {}


def _longer_list(method: Method, point: dict[str, Any], name: str, side: str) -> dict[str, Any]:
    dimension = method.space.active(point)[name]
    values = sorted(dimension.values, reverse=side == "lowest")
    further = [v for v in _continued(values) if method.allows(point, name, v)]
    if not further:
        following = _continued(values)[:1] or values[-1:]
        whole = all(isinstance(v, int) for v in values)
        further = _closest(method, point, name, (values[-1], following[0]), whole)
    return {dimension.kind: sorted([*values, *further])} if further else {}


def _longer_range(method: Method, point: dict[str, Any], name: str, side: str) -> dict[str, Any]:
    dimension = method.space.active(point)[name]
    low, high = map(dimension.scale, dimension.values)
    inside, outside = (high, high + WIDER * (high - low))
    if side == "lowest":
        inside, outside = (low, low - WIDER * (high - low))
    end = dimension.values[0 if side == "lowest" else 1]
    reach = outside
    for _ in range(HALVINGS):
        number = _end(dimension, end, math.exp(reach) if dimension.logarithmic else reach)
        further = number < end if side == "lowest" else number > end
        if further and method.allows(point, name, number):
            ends = [number, dimension.values[1]]
            if side == "highest":
                ends = [dimension.values[0], number]
            return {**dimension.to_yaml(), dimension.kind: ends}
        reach = (inside + reach) / 2
    return {}


def _end(dimension: Dimension, end: float, place: float) -> float:
    """Return a short number near a place: whole, or a number of steps from an end, where due."""
    step = dimension.step
    if step is not None:
        place = end + round((place - end) / step) * step
    if dimension.whole:
        return round(place)
    return float(f"{place:.3g}" if step is None else f"{place:.12g}")


def _closest(
    method: Method, point: dict[str, Any], name: str, between: tuple[float, float], whole: bool
) -> list[float]:
    """Return one allowed value between the last of a list and one that is not; or none."""
    last, beyond = between
    for _ in range(HALVINGS):
        beyond = (last + beyond) / 2
        value = round(beyond) if whole else float(f"{beyond:.3g}")
        if value != last and method.allows(point, name, value):
            return [value]
    return []


def _continued(values: Sequence[float]) -> list[float]:
    """Return the next values of a list in its own steps: a constant factor, or a constant step."""
    count = max(1, round(WIDER * len(values)))
    inner, last = values[-2], values[-1]
    steps_by_factor = min(map(abs, values)) > 0 and _spread_by_factor(values)
    made = []
    for _ in range(count):
        following = last * last / inner if steps_by_factor else last + (last - inner)
        following = float(f"{following:.3g}")
        whole = all(isinstance(v, int) for v in values)
        inner, last = last, (round(following) if whole else following)
        if last in values or last in made:
            break
        made.append(last)
    return made


def _spread_by_factor(values: Sequence[float]) -> bool:
    """Whether the factors between neighbours vary less than the differences do."""
    pairs = list(pairwise(values))
    if any(a * b <= 0 for a, b in pairs):
        return False
    factors = [abs(math.log(b / a)) for a, b in pairs]
    steps = [abs(b - a) for a, b in pairs]
    return max(factors) / min(factors) <= max(steps) / min(steps)
