"""How much room a Pareto front of two objectives leaves: one number to compare searches by."""

SIGNS = {"maximize": -1.0, "minimize": 1.0}


def hypervolume(scores, directions, reference):
    """Return the area between scores and a reference point that is bad in both objectives.

    It is that of the points which some trial beats in both objectives, and which beat the
    reference. Trials that do not beat the reference in both add nothing.
    """
    losses = [_losses(own, directions) for own in scores]
    limit = _losses(reference, directions)
    points = sorted(p for p in losses if p[0] < limit[0] and p[1] < limit[1])
    area, floor = 0.0, limit[1]
    for first, second in points:  # from left to right: each adds a strip where it is lower
        if second < floor:
            area += (limit[0] - first) * (floor - second)
            floor = second
    return area


def _losses(scores, directions):
    """Return two scores with signs such that smaller is better."""
    first, second = (SIGNS[d] * score for d, score in zip(directions, scores, strict=True))
    return first, second
