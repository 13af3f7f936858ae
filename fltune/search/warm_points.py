"""Points a search starts from: ``points`` beside a method's ``space``.

points:
  - {server.lr: 1.0, server.beta: 0.9, score: 0.93}    # known: told to the sampler, not run
  - {server.lr: 2.0, server.beta: 0.7}                 # run first
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fltune.search.condition import is_number, same
from fltune.search.space import Space
from fltune.search.stages import Lengths, PerStage
from fltune.search.walk import Walk

SCORE = "score"


@dataclass(frozen=True)
class WarmPoint:
    """A point to start from.

    Attributes:
        point: its values, by dotted name.
        score: the known objective; None if it is to be run.
    """

    point: dict[str, Any]
    score: float | None = None

    def to_yaml(self) -> dict[str, Any]:
        """Return what a file says."""
        return {**self.point, **({} if self.score is None else {SCORE: self.score})}


def parse_points(
    raw: Any, space: Space, where: str, given: Mapping[str, Any], found: list[str]
) -> tuple[WarmPoint, ...]:
    """Read a method's ``points``, and add what is wrong with them to ``found``.

    Stage lists may be written whole (``server.stage_ends: [30, 100]``).

    Args:
        raw: the section.
        space: what the points must lie in.
        where: dotted key of the section, for messages.
        given: parameters set by hand (``--set``): a point that has another value for one of them
            is no point of this search, and is left out.
        found: problems, a sentence each.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        found.append(f"{where}: found {raw!r}; a list of points belongs there")
        return ()
    kept: dict[int, WarmPoint] = {}
    for number, written in enumerate(raw):
        here = f"{where}.{number}"
        if not isinstance(written, Mapping):
            found.append(f"{here}: found {written!r}; write {{parameter: value}}")
            continue
        if any(name in given and not same(given[name], v) for name, v in written.items()):
            continue
        point = {str(k): v for k, v in written.items() if k != SCORE and k not in given}
        wrong = _expand_lists(point, space) or space.faults(point)
        score = written.get(SCORE)
        if score is not None and not (is_number(score) and math.isfinite(score)):
            wrong[SCORE] = f"found {score!r}; a finite number belongs there"
        found += [f"{here}.{name}: {text}" for name, text in wrong.items()]
        if wrong:
            continue
        warm = WarmPoint(space.decode(space.encode(point)), None if score is None else float(score))
        twin = next((n for n, other in kept.items() if other.point == warm.point), None)
        if twin is not None:
            found.append(f"{here}: the same point as {where}.{twin}")
        kept[number] = warm
    return tuple(kept.values())


def score_problems(raw: Any, where: str, goals: int) -> list[str]:
    """Return which points have a score that says too little where there are several objectives.

    Args:
        raw: the section.
        where: dotted key of the section, for messages.
        goals: objectives of the search.
    """
    if goals == 1 or not isinstance(raw, Sequence):
        return []
    return [
        f"{where}.{number}.{SCORE}: found {point[SCORE]!r}; one number says too little of {goals} "
        "objectives: leave it out, and the point is run first"
        for number, point in enumerate(raw)
        if isinstance(point, Mapping) and point.get(SCORE) is not None
    ]


def _expand_lists(point: dict[str, Any], space: Space) -> dict[str, str]:
    """Replace whole stage lists by what is drawn for them; return what is wrong with them."""
    wrong: dict[str, str] = {}
    walk = Walk(space)
    for name in space.order:
        entry = space.entries[name]
        drawn = walk.enter(name)
        if drawn and name in point and isinstance(entry, (Lengths, PerStage)):
            whole = point.pop(name)
            try:
                if not isinstance(whole, (list, tuple)):
                    raise ValueError(f"found {whole!r}; a list, one entry per stage, belongs there")
                point.update(entry.split(name, whole, walk.look))
            except ValueError as error:
                wrong[name] = str(error)
        walk.settle(name, point)
    return wrong
