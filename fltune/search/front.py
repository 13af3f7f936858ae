"""Trials that no other one beats in every objective."""

from __future__ import annotations

from collections.abc import Sequence

Scores = Sequence[float]


def pareto_front(scores: Sequence[Scores], directions: Sequence[str]) -> list[int]:
    """Return the positions of the trials on the Pareto front, in order.

    A trial is on it if no other one is at least as good in all objectives and better in one. Trials
    with equal scores are on it together.

    Args:
        scores: one row per trial, one finite number per objective.
        directions: ``maximize`` or ``minimize``, per objective.

    Raises:
        ValueError: a row of another length than ``directions``, or an unknown direction.
    """
    losses = _losses(scores, directions)
    return [
        i for i, own in enumerate(losses) if not any(_dominates(other, own) for other in losses)
    ]


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
