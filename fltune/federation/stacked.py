"""All clients of a cohort as one batched computation: ``vmap(grad)`` over their models.

The quick strategy for small dense networks. Clients are sorted by their number of steps, so that
the ones still working are a prefix and nobody's update has to be masked; a partial batch is padded
and its padding weighted by zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan, take, take_inputs
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses, Steps, rows
from fltune.randomness import seed_global, step_keys


def solve_stacked(
    network: FlatNetwork,
    losses: Losses,
    data: Split,
    problem: LocalProblem,
    plan: BatchPlan,
    sgd: LocalSGD,
    lr: float,
    keys: Tensor,
) -> LocalResult:
    """Solve the cohort's local problems side by side, one batched step at a time."""
    order = plan.steps.argsort(descending=True, stable=True)
    inverse = order.argsort()
    steps = plan.steps[order]
    working = (plan.count > 0).sum(1).tolist()
    weight = _weights(plan, order, problem.start.dtype)
    samples = plan.index[:, order]
    keys = keys[order]
    step_key = step_keys(keys, torch.arange(len(working), device=keys.device).unsqueeze(1))

    start = rows(problem.start, order).expand(len(order), -1)
    w = start.clone()
    velocity = torch.zeros_like(w) if sgd.momentum else None
    total = torch.zeros_like(w) if problem.gradient_sum else None
    loss_sum = w.new_zeros(len(order))
    gradient = _batched_gradient(network, losses)
    seed_global(int(keys[0]), w.device)
    rule, rule_size = Steps.of(problem, sgd, lr, order), len(order)
    for step, active in enumerate(working):
        if active < rule_size:
            rule, rule_size = Steps.of(problem, sgd, lr, order[:active]), active
        batch = samples[step, :active]
        point = (start if problem.frozen else w)[:active]
        g, loss = gradient(
            point,
            take_inputs(data, batch, step_key[step, :active]),
            take(data.y, batch),
            weight[step, :active],
            step_key[step, :active],
        )
        plain = rule.plain(g, point)
        rule.apply(w[:active], plain, None if velocity is None else velocity[:active])
        if total is not None:
            total[:active] += plain
        loss_sum[:active] += loss
    return LocalResult(
        end=w[inverse],
        loss=(loss_sum / steps.clamp(min=1))[inverse],
        steps=plan.steps,
        gradient_sum=None if total is None else total[inverse],
    )


def _weights(plan: BatchPlan, order: Tensor, dtype: torch.dtype) -> Tensor:
    """Return [K, C, B]: 1 / count for the samples of a batch, 0 for its padding."""
    count = plan.count[:, order].unsqueeze(2)
    place = torch.arange(plan.index.shape[2], device=count.device)
    return (place < count).to(dtype) / count.clamp(min=1)


def _batched_gradient(network: FlatNetwork, losses: Losses) -> Callable[..., tuple[Tensor, Tensor]]:
    def loss(w: Tensor, x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> Tensor:
        return (losses(network.call(network.split(w), x, key), y) * weight).sum()

    return vmap(grad_and_value(loss), randomness="different")
