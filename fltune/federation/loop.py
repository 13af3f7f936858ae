"""One client after another: the readable reference of the local solver.

Also the quicker strategy for convolutional networks on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan, take, take_inputs
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
    step_numbers = torch.arange(len(plan.index)).unsqueeze(1)
    step_key = step_keys(keys, step_numbers).to(plan.index.device)
    arranged = network.layout(data.x)
    ends, sums, mean_losses, statistics = [], [], [], []
    for client, made in enumerate(steps):
        rule = Steps.of(problem, sgd, lr, client)
        start = rows(problem.start, client)
        w = start.clone()
        velocity = torch.zeros_like(w) if problem.remembers(sgd) else None
        total = torch.zeros_like(w) if problem.gradient_sum else None
        loss_sum = w.new_zeros(())
        # what is random but no nn.Dropout module draws from the global generator
        seed_global(seeds[client], w.device)
        point = start if problem.frozen else w
        own = network.split(w)
        direct = rule.bare and velocity is None and total is None  # one vector would be a detour
        with network.at(point) as parameters:
            batches, draws = plan.index[:, client].unbind(), step_key[:, client].unbind()
            for step in range(made):
                batch, key = batches[step][: counts[step][client]], draws[step]
                network.set_key(key)
                x = take_inputs(data, batch, key)
                with torch.enable_grad():
                    output = network(arranged(x))
                    loss = losses(output, take(data.y, batch)).mean()
                    parts = torch.autograd.grad(loss, parameters)
                if direct:
                    torch._foreach_add_(own, parts, alpha=-rule.lr)  # type: ignore[arg-type]
                else:
                    plain = rule.plain(torch.cat([g.reshape(-1) for g in parts]), point)
                    rule.apply(w, plain, velocity)
                    if total is not None:
                        total += plain
                loss_sum += loss.detach()
            statistics.append(network.read_statistics())
        ends.append(w)
        sums.append(total)
        mean_losses.append(loss_sum / max(made, 1))
    moved = torch.stack(statistics)
    return LocalResult(
        end=torch.stack(ends),
        loss=torch.stack(mean_losses),
        steps=plan.steps.to(plan.index.device),
        gradient_sum=torch.stack(sums) if problem.gradient_sum else None,  # type: ignore[arg-type]
        statistics=moved if moved.numel() else None,
    )
