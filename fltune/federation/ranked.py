"""A cohort sorted by local steps, as the batched strategies go through it.

Sorted so, the clients still at work are a prefix at every step: nobody's update has to be masked. A
partial batch is padded, and its padding weighted by zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.federation.batches import BatchPlan
from fltune.randomness import step_keys


@dataclass(frozen=True)
class Ranked:
    """Clients in descending order of their steps; all tensors are in that order.

    Attributes:
        order, inverse: int64 [C], there and back again.
        steps: int64 [C].
        working: by step, how many clients make it.
        index: int64 [K, C, B], rows of the training set.
        weight: [K, C, B], 1 / count for the samples of a batch, 0 for its padding.
        key: int64 [K, C], the randomness of each step.
    """

    order: Tensor
    inverse: Tensor
    steps: Tensor
    working: list[int]
    index: Tensor
    weight: Tensor
    key: Tensor

    @classmethod
    def of(cls, plan: BatchPlan, keys: Tensor, dtype: torch.dtype) -> Ranked:
        """Sort a cohort with randomness ``keys`` [C]; the weights get the models' ``dtype``."""
        order = plan.steps.argsort(descending=True, stable=True)
        count = plan.count.index_select(1, order).unsqueeze(2)
        place = torch.arange(plan.index.shape[2], device=count.device)
        step = torch.arange(len(count), device=count.device).unsqueeze(1)
        return cls(
            order=order,
            inverse=order.argsort(),
            steps=plan.steps[order],
            working=(plan.count > 0).sum(1).tolist(),
            index=plan.index.index_select(1, order),
            weight=(place < count).to(dtype) / count.clamp(min=1),
            key=step_keys(keys[order], step),
        )
