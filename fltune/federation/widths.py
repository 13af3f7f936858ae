"""Groups of clients whose batches are alike in width, so that little is padded.

A batched step pads every batch to the widest one. With full batches, or batches that few clients
can fill, that may be several times the samples there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fltune.federation.batches import BatchPlan

LEVELS = 12
"""Groups of a cohort, at most; a cut is looked for at as many places only."""


def alike(order: Tensor, plan: BatchPlan, group_cost: float) -> list[tuple[Tensor, int]]:
    """Cut a cohort into groups where that saves more padding than it costs.

    Args:
        order: int64 [C], the places of the clients in the cohort.
        plan: its batches.
        group_cost: what a further group costs in each step, in samples of padding.

    Returns:
        The groups' places, each group in the given order, and the width of their widest batch.
    """
    clients, most = plan.index.shape[1:]
    if not plan.steps.any():
        return [(order, most)]
    widest = plan.count.amax(0)[order]
    if clients * most - int(widest.sum()) <= group_cost:
        return [(order, most)]
    # who makes no step is put to the narrowest, not into a group of nothing to do
    widest = torch.where(widest > 0, widest, widest[widest > 0].min())
    by_width = widest.argsort(descending=True, stable=True)
    widths = widest[by_width].tolist()
    cuts = cheapest_cuts(widths, group_cost)
    return [
        (order[by_width[start:end].sort().values], widths[start]) for start, end in pairwise(cuts)
    ]


def cheapest_cuts(widths: Sequence[int], group_cost: float) -> list[int]:
    """Return where to cut clients so that padded samples and groups cost least; 0 and C included.

    Args:
        widths: [C], descending; those of a group are padded to its first.
        group_cost: of each group, in samples.
    """
    clients = len(widths)
    places = sorted({clients * level // LEVELS for level in range(LEVELS + 1)})
    cost, before = {0: 0.0}, {}
    for end in places[1:]:
        start = min(
            (s for s in places if s < end),
            key=lambda s: cost[s] + (end - s) * widths[s],
        )
        before[end], cost[end] = start, cost[start] + (end - start) * widths[start] + group_cost
    cuts = [clients]
    while cuts[-1]:
        cuts.append(before[cuts[-1]])
    return cuts[::-1]
