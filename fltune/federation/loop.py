"""One client after another: the readable reference of the local solver.

Also the quicker strategy for convolutional networks on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses, Steps, rows
from fltune.randomness import seed_global, step_keys


def solve_loop(
    network: FlatNetwork,
    losses: Losses,
    data: Split,
    problem: LocalProblem,
    plan: BatchPlan,
    sgd: LocalSGD,
    lr: float,
    keys: Tensor,
) -> LocalResult:
    """Solve the cohort's local problems by a loop over clients and their steps."""
    counts = plan.count.tolist()
    steps = plan.steps.tolist()
    seeds = keys.tolist()
    step_key = step_keys(keys, torch.arange(len(plan.index), device=keys.device).unsqueeze(1))
    ends, sums, mean_losses = [], [], []
    for client, made in enumerate(steps):
        rule = Steps.of(problem, sgd, lr, client)
        start = rows(problem.start, client)
        w = start.clone()
        velocity = torch.zeros_like(w) if sgd.momentum else None
        total = torch.zeros_like(w) if problem.gradient_sum else None
        loss_sum = w.new_zeros(())
        # layers with randomness of their own (not nn.Dropout) draw from the global generator
        seed_global(seeds[client], w.device)
        for step in range(made):
            batch = plan.index[step, client, : counts[step][client]]
            point = start if problem.frozen else w
            loss, gradient = _gradient(
                network, losses, point, data.x[batch], data.y[batch], step_key[step, client]
            )
            plain = rule.plain(gradient, point)
            rule.apply(w, plain, velocity)
            if total is not None:
                total += plain
            loss_sum += loss
        ends.append(w)
        sums.append(total)
        mean_losses.append(loss_sum / max(made, 1))
    return LocalResult(
        end=torch.stack(ends),
        loss=torch.stack(mean_losses),
        steps=plan.steps,
        gradient_sum=torch.stack(sums) if problem.gradient_sum else None,  # type: ignore[arg-type]
    )


def _gradient(
    network: FlatNetwork, losses: Losses, w: Tensor, x: Tensor, y: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean loss of one batch at w [d] and its gradient [d]."""
    parts = [part.requires_grad_() for part in network.split(w.detach())]
    with torch.enable_grad():
        loss = losses(network.call(parts, x, key), y).mean()
        gradients = torch.autograd.grad(loss, parts)
    return loss.detach(), torch.cat([g.reshape(-1) for g in gradients])
