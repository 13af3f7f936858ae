"""Trials that no other one beats in every objective, and how much room they leave."""

from __future__ import annotations

from collections.abc import Sequence

Scores = Sequence[float]


def pareto_front(
    scores: Sequence[Scores],
    directions: Sequence[str],
    violations: Sequence[Scores] | None = None,
) -> list[int]:
    """Return the positions of the trials on the Pareto front, in order.

    A trial is on it if it breaks no constraint and no other such trial is at least as good in all
    objectives and better in one. Trials with equal scores are on it together.

    Args:
        scores: one row per trial, one finite number per objective.
        directions: ``maximize`` or ``minimize``, per objective.
        violations: per trial, > 0 for each broken constraint; None: no constraints.

    Raises:
        ValueError: a row of another length than ``directions``, or an unknown direction.
    """
    losses = _losses(scores, directions)
    broken = violations if violations is not None else [()] * len(losses)
    feasible = [i for i, own in enumerate(broken) if all(violation <= 0 for violation in own)]
    return [
        i for i in feasible if not any(_dominates(losses[other], losses[i]) for other in feasible)
    ]


def hypervolume(scores: Sequence[Scores], directions: Sequence[str], reference: Scores) -> float:
    """Return the area between two-objective scores and a reference point.

    It is that of the points which some trial beats in both objectives, and which beat the
    reference. Trials that do not beat the reference in both add nothing.

    Args:
        scores: one pair per trial.
        directions: ``maximize`` or ``minimize``, twice.
        reference: a pair that is bad in both objectives, such as the worst scores.

    Raises:
        ValueError: not two objectives.
    """
    if len(directions) != 2:
        raise ValueError(f"found {len(directions)} objectives; an area needs two")
    (limit,) = _losses([reference], directions)
    points = sorted(p for p in _losses(scores, directions) if _below(p, limit))
    area, floor = 0.0, limit[1]
    for first, second in points:  # from left to right: each adds a strip where it is lower
        if second < floor:
            area += (limit[0] - first) * (floor - second)
            floor = second
    return area


def _losses(scores: Sequence[Scores], directions: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the scores with signs such that smaller is better."""
    signs = {"maximize": -1.0, "minimize": 1.0}
    unknown = [d for d in directions if d not in signs]
    if unknown:
        raise ValueError(f"found direction {unknown[0]!r}; must be maximize or minimize")
    wrong = [list(own) for own in scores if len(own) != len(directions)]
    if wrong:
        raise ValueError(f"found scores {wrong[0]!r}; there are {len(directions)} objectives")
    return [
        tuple(signs[d] * score for d, score in zip(directions, own, strict=True)) for own in scores
    ]


def _dominates(one: Scores, other: Scores) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _below(point: Scores, limit: Scores) -> bool:
    return all(p < bound for p, bound in zip(point, limit, strict=True))
