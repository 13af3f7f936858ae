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
    """Clients in descending order of their steps; all tensors are in that order, where models lie.

    Attributes:
        order, inverse: int64 [C], there and back again.
        seed: the randomness of the first client, for what draws from a global generator.
        steps: int64 [C].
        working: by step, how many clients make it.
        index: int64 [K, C, B], rows of the training set.
        weight: [K, C, B], 1 / count for the samples of a batch, 0 for its padding.
        key: int64 [K, C], the randomness of each step.
    """

    order: Tensor
    inverse: Tensor
    seed: int
    steps: Tensor
    working: list[int]
    index: Tensor
    weight: Tensor
    key: Tensor

    @classmethod
    def of(cls, plan: BatchPlan, keys: Tensor, dtype: torch.dtype) -> Ranked:
        """Sort a cohort with randomness ``keys`` [C]; the weights get the models' ``dtype``.

        All that others decide is worked out on the host, so that nobody waits for an accelerator.
        """
        order = plan.steps.argsort(descending=True, stable=True)
        device, keys = plan.index.device, keys[order]
        step = torch.arange(len(plan.count)).unsqueeze(1)
        there = order.to(device)
        count = plan.count.index_select(1, order).to(device).unsqueeze(2)
        place = torch.arange(plan.index.shape[2], device=device)
        return cls(
            order=there,
            inverse=order.argsort().to(device),
            seed=int(keys[0]),
            steps=plan.steps[order].to(device),
            working=(plan.count > 0).sum(1).tolist(),
            index=plan.index.index_select(1, there),
            weight=(place < count).to(dtype) / count.clamp(min=1),
            key=step_keys(keys, step).to(device),
        )
