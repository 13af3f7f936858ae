"""Exact proximal points, where a closed form exists: least squares with a linear model.

The proofs of Douglas-Rachford methods assume an exact prox; on quadratics it can be had.
"""

from __future__ import annotations

import torch

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses, chosen
from fltune.federation.losses import squared_error
from fltune.models.linear import Linear


def has_exact_prox(network: FlatNetwork, losses: Losses) -> bool:
    """Whether argmin f_i(z) + mu/2 |z - anchor|^2 has a closed form."""
    return isinstance(network.network, Linear) and losses is squared_error


def check_exact_prox(network: FlatNetwork, losses: Losses) -> None:
    """Refuse a model or loss whose prox has no closed form.

    Raises:
        ValueError: with what to do instead.
    """
    if not has_exact_prox(network, losses):
        raise ValueError(
            f"an exact prox of {type(network.network).__name__} with this loss has no closed form; "
            "use local steps (prox: inexact, exact: false)"
        )


def solve_exact(
    network: FlatNetwork,
    losses: Losses,
    data: Split,
    problem: LocalProblem,
    full: BatchPlan,
    sgd: LocalSGD,
) -> LocalResult:
    """Return argmin_z f_i(z) + mu/2 |z - anchor_i|^2 for every client, by its normal equations.

    With samples X_s [k, d] and targets y_s [k], f_i(z) = mean_s 0.5 |X_s z - y_s|^2 and z solves
    (mean X_s^T X_s + mu I) z = mean X_s^T y_s + mu anchor. Counts as one local step.

    Raises:
        ValueError: the model or loss has no closed form.
    """
    check_exact_prox(network, losses)
    index = full.index[0]
    count = full.count[0].to(index.device)
    x, y = data.x[index], data.y[index]  # [C, B, (k,) d] and [C, B, (k)]
    if x.dim() == 3:  # plain regression rows
        x, y = x.unsqueeze(2), y.reshape(*y.shape[:2], 1)
    place = torch.arange(index.shape[1], device=index.device)
    weight = (place < count.unsqueeze(1)).to(x) / count.unsqueeze(1)
    hessian = torch.einsum("cb,cbki,cbkj->cij", weight, x, x)
    linear = torch.einsum("cb,cbki,cbk->ci", weight, x, y)
    identity = torch.eye(network.dimension, dtype=x.dtype, device=x.device)
    mu = torch.as_tensor(problem.mu, dtype=x.dtype, device=x.device)
    decay = chosen(problem.weight_decay, sgd.weight_decay)
    decay = torch.as_tensor(decay, dtype=x.dtype, device=x.device)
    ridge = (mu.reshape(-1, 1, 1) + decay.reshape(-1, 1, 1)) * identity
    target = linear if problem.anchor is None else linear + mu * problem.anchor
    end = torch.linalg.solve(hessian + ridge, target.unsqueeze(2)).squeeze(2)
    residual = torch.einsum("cbki,ci->cbk", x, end) - y
    loss = 0.5 * torch.einsum("cb,cbk->c", weight, residual.square())
    return LocalResult(end=end, loss=loss, steps=torch.ones_like(count))
