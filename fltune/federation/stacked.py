"""All clients of a cohort as one batched computation: ``vmap(grad)`` over their models.

The quick strategy for small networks that are no chain of dense layers
(:mod:`fltune.federation.dense`). Clients are sorted (:mod:`fltune.federation.ranked`).
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
from fltune.federation.losses import cross_entropy
from fltune.federation.ranked import Ranked
from fltune.randomness import seed_global

Gradient = Callable[..., tuple[Tensor, Tensor]]


def solve_stacked(
    network: FlatNetwork,
    losses: Losses,
    data: Split,
    problem: LocalProblem,
    plan: BatchPlan,
    sgd: LocalSGD,
    lr: float,
    keys: Tensor,
    gradient: Gradient | None = None,
) -> LocalResult:
    """Solve the cohort's local problems side by side, one batched step at a time.

    ``gradient`` is :func:`batched_gradient` unless given.
    """
    ranked = Ranked.of(plan, keys, problem.start.dtype)
    order = ranked.order
    start = rows(problem.start, order).expand(len(order), -1)
    w = start.clone()
    velocity = torch.zeros_like(w) if problem.remembers(sgd) else None
    total = torch.zeros_like(w) if problem.gradient_sum else None
    loss_sum = w.new_zeros(len(order))
    gradient = gradient or batched_gradient(network, losses)
    seed_global(ranked.seed, w.device)
    rule, rule_size = Steps.of(problem, sgd, lr, order), len(order)
    for step, active in enumerate(ranked.working):
        if active < rule_size:
            rule, rule_size = Steps.of(problem, sgd, lr, order[:active]), active
        batch, key = ranked.index[step, :active], ranked.key[step, :active]
        point = (start if problem.frozen else w)[:active]
        x, y = take_inputs(data, batch, key), take(data.y, batch)
        g, loss = gradient(point, x, y, ranked.weight[step, :active], key)
        plain = rule.plain(g, point)
        rule.apply(w[:active], plain, None if velocity is None else velocity[:active])
        if total is not None:
            total[:active] += plain
        loss_sum[:active] += loss
    return LocalResult(
        end=w.index_select(0, ranked.inverse),
        loss=(loss_sum / ranked.steps.clamp(min=1))[ranked.inverse],
        steps=plan.steps.to(w.device),
        gradient_sum=None if total is None else total.index_select(0, ranked.inverse),
    )


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    # the fused one has no batching rule as quick as those of its parts: a tenth of a round
    return -output.log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1)


def batched_gradient(network: FlatNetwork, losses: Losses) -> Gradient:
    """Return what gives gradients [C, d] and losses [C] of the clients' weighted sums of losses.

    Its arguments are models [C, d], samples [C, B, ...] and [C, B], weights [C, B] and keys [C].
    """
    each = _cross_entropy if losses is cross_entropy else losses

    def loss(w: Tensor, x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> Tensor:
        return (each(network.call(network.split(w), x, key), y) * weight).sum()

    return vmap(grad_and_value(loss), randomness="different")
