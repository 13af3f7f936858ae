"""All clients of a cohort side by side, with forward and backward written by hand.

The quick strategy for chains of dense layers: batched matrix products instead of ``vmap(grad)``,
no autograd, and the product that is a weight's gradient goes straight into the weight where nobody
asks for the gradient itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan, take, take_inputs
from fltune.federation.chain import Layer, read_chain
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import (
    LocalProblem,
    LocalResult,
    LocalSGD,
    Losses,
    Steps,
    shrinkage,
)
from fltune.federation.losses import cross_entropy, squared_error
from fltune.federation.precision import BF16, FULL
from fltune.federation.ranked import Ranked

Gradient = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(output [C, B, ...], target [C, B, ...], weight [C, B]) -> loss [C], gradient for the output."""


def _cross_entropy(output: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    # not log_softmax, which takes three times as long for ten classes
    place, weight = target.unsqueeze(2), weight.unsqueeze(2)
    shifted = output - output.amax(2, keepdim=True)
    delta = shifted.exp()
    total = delta.sum(2, keepdim=True)
    loss = (total.log() - shifted.gather(2, place)) * weight
    delta.mul_(weight / total)  # softmax minus one at the target, weighted
    return loss.sum((1, 2)), delta.scatter_add_(2, place, -weight)


def _squared_error(output: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rest = output - target
    delta = rest * weight.view(*weight.shape, *[1] * (rest.dim() - 2))
    return 0.5 * (rest * delta).flatten(1).sum(1), delta.sum_to_size(output.shape)


GRADIENTS: dict[Losses, Gradient] = {cross_entropy: _cross_entropy, squared_error: _squared_error}


def can_be_dense(network: nn.Module, losses: Losses, precision: str = FULL) -> bool:
    """Whether the strategy ``dense`` knows all layers of a network, its precision and the loss."""
    return precision != BF16 and losses in GRADIENTS and read_chain(network) is not None


def check_dense(network: nn.Module, losses: Losses, precision: str = FULL) -> None:
    """Refuse the strategy ``dense`` where it is not written.

    Raises:
        ValueError: a precision, a loss or a layer that it does not know.
    """
    if precision == BF16:
        raise ValueError(
            "strategy = 'dense' adds its products to the parameters as they come, and has no "
            "precision bf16; use strategy auto, stacked or loop"
        )
    if losses not in GRADIENTS:
        name = getattr(losses, "__name__", str(losses))
        known = " and ".join(f.__name__ for f in GRADIENTS)
        raise ValueError(
            f"strategy = 'dense' knows the losses {known}, not {name}; use strategy auto or stacked"
        )
    if read_chain(network) is None:
        raise ValueError(
            "strategy = 'dense' is for chains of Linear, ReLU, Tanh, Sigmoid, Dropout, Flatten and "
            f"Identity, all of them trained; {type(network).__name__} is none, use strategy auto"
        )


@dataclass
class Part:
    """One parameter of the clients still at work, and the rule that moves it.

    Attributes:
        point: [C, *shape], where gradients are taken.
        w: [C, size], contiguous; ``matrix`` is a view of it, [C, out, in].
        rule: of this parameter's slice of x.
        velocity, total: [C, size], momentum and sum of gradients, where there are such.
        fused: whether a product may go straight into w: nothing else needs the gradient.
        waiting: the gradient [C, size] of a step that is clipped: by the norm of all parameters'.
    """

    point: Tensor
    w: Tensor
    matrix: Tensor
    rule: Steps
    velocity: Tensor | None
    total: Tensor | None
    fused: bool
    waiting: Tensor | None = None

    def move(self, gradient: Tensor) -> None:
        """Make a step with a gradient [C, size], or keep it for :meth:`Stack.clip`."""
        plain = self.rule.plain(gradient, self.point.flatten(1))
        if self.rule.clip_norm is None:
            self.rule.apply(self.w, plain, self.velocity)
        else:
            self.waiting = self.rule.whole(plain, self.w)
        if self.total is not None:
            self.total += plain

    def move_by_product(self, delta: Tensor, x: Tensor) -> None:
        """Make a step with the gradient delta^T x, [C, R, out] and [C, R, in]."""
        if not self.fused:
            self.move(torch.bmm(delta.mT, x).flatten(1))
            return
        lr, decay = self.rule.lr, self.rule.weight_decay
        drift = self.rule.drift(self.w)
        if isinstance(lr, Tensor) or isinstance(decay, Tensor):
            lr = torch.as_tensor(lr, dtype=self.w.dtype, device=self.w.device)
            if isinstance(decay, Tensor) or decay:
                self.w.mul_(1 - lr * decay)
            self.matrix.baddbmm_((delta * -lr.view(-1, 1, 1)).mT, x)
            if drift is not None:
                self.w.sub_(lr * drift)
            return
        self.matrix.baddbmm_(delta.mT, x, beta=1 - lr * decay, alpha=-lr)
        if drift is not None:
            self.w.sub_(drift, alpha=lr)


class Stack:
    """The models of a cohort, sorted, one tensor [C, size] for each parameter.

    A product can be added in place, quickly, only to memory without gaps: a slice of [C, d] is not.
    """

    def __init__(
        self, network: FlatNetwork, problem: LocalProblem, sgd: LocalSGD, lr: float, order: Tensor
    ) -> None:
        self.shapes, self.sizes = network.shapes, network.sizes
        self.problem, self.sgd, self.lr, self.order = problem, sgd, lr, order
        self.w = self._sorted(problem.start)
        self.point = self._sorted(problem.start) if problem.frozen else self.w
        self.velocity = [torch.zeros_like(w) for w in self.w] if problem.remembers(sgd) else None
        self.total = [torch.zeros_like(w) for w in self.w] if problem.gradient_sum else None
        self.parts: list[Part] = []

    def _sorted(self, values: Tensor) -> list[Tensor]:
        """Return copies of the parameters of rows [C, d], or of C times a vector [d]."""
        if values.dim() == 1:
            count = len(self.order)
            return [part.repeat(count, 1) for part in self._cut(values)]
        return [part.index_select(0, self.order) for part in self._cut(values)]

    def sorted_back(self, parts: list[Tensor], inverse: Tensor) -> Tensor:
        """Return rows [C, d] of their parameters, in the order of the cohort."""
        rows = parts[0].new_empty(len(inverse), sum(self.sizes))
        for part, place in zip(parts, self._cut(rows), strict=True):
            torch.index_select(part, 0, inverse, out=place)
        return rows

    def _cut(self, values: Tensor) -> list[Tensor]:
        return list(values.split(self.sizes, dim=-1))

    def keep(self, active: int) -> None:
        """Go on with the first clients only."""
        rule = Steps.of(self.problem, self.sgd, self.lr, self.order[:active])
        kept = self.velocity is not None or self.total is not None
        fused = not (self.problem.frozen or kept or rule.clip_norm is not None)
        self.parts = []
        for i, (shape, own) in enumerate(zip(self.shapes, self._rules(rule), strict=True)):
            w = self.w[i][:active]
            self.parts.append(
                Part(
                    point=self.point[i][:active].view(active, *shape),
                    w=w,
                    matrix=w.view(active, math.prod(shape[:-1]), shape[-1]),
                    rule=own,
                    velocity=None if self.velocity is None else self.velocity[i][:active],
                    total=None if self.total is None else self.total[i][:active],
                    fused=fused,
                )
            )

    def _rules(self, rule: Steps) -> list[Steps]:
        """Return the rule of each parameter."""
        if rule.correction is None and rule.anchor is None:
            return [rule] * len(self.w)
        none = [None] * len(self.w)
        correction = none if rule.correction is None else self._cut(rule.correction)
        anchor = none if rule.anchor is None else self._cut(rule.anchor)
        pairs = zip(correction, anchor, strict=True)
        return [replace(rule, correction=c, anchor=a) for c, a in pairs]

    def value(self, place: int) -> Tensor:
        """Return a parameter [C, *shape] of the clients at work."""
        return self.parts[place].point

    def move(self, place: int, gradient: Tensor) -> None:
        """Make a step of one parameter."""
        self.parts[place].move(gradient)

    def move_by_product(self, place: int, delta: Tensor, x: Tensor) -> None:
        """Make a step of one parameter with the gradient delta^T x."""
        self.parts[place].move_by_product(delta, x)

    def clip(self) -> None:
        """Make the steps that wait for the norm of the clients' whole gradients."""
        waiting = [(part, part.waiting) for part in self.parts if part.waiting is not None]
        if not waiting:
            return
        most = waiting[0][0].rule.clip_norm
        assert most is not None
        squares = torch.stack([g.square().sum(1, keepdim=True) for _, g in waiting])
        factor = shrinkage(squares.sum(0).sqrt(), most)
        for part, g in waiting:
            part.rule.advance(part.w, g * factor, part.velocity)
            part.waiting = None


def solve_dense(
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
    chain = network.chain
    assert chain is not None, "check_dense was not asked"
    ranked = Ranked.of(plan, keys, problem.start.dtype)
    stack = Stack(network, problem, sgd, lr, ranked.order)
    loss_sum = problem.start.new_zeros(len(keys))
    before = None
    steps = zip(ranked.working, ranked.index, ranked.weight, ranked.key, strict=True)
    for active, index, weight, key in steps:
        if active == 0:
            break
        if active != before:
            stack.keep(active)
            before = active
        index, weight, key = index[:active], weight[:active], key[:active]
        x, y = take_inputs(data, index, key), take(data.y, index)
        loss = _step(chain, GRADIENTS[losses], stack, x, y, weight, key)
        loss_sum[:active].add_(loss)

    total = stack.total
    return LocalResult(
        end=stack.sorted_back(stack.w, ranked.inverse),
        loss=(loss_sum / ranked.steps.clamp(min=1))[ranked.inverse],
        steps=plan.steps.to(loss_sum.device),
        gradient_sum=None if total is None else stack.sorted_back(total, ranked.inverse),
    )


def _step(
    chain: list[Layer],
    gradient: Gradient,
    stack: Stack,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    key: Tensor,
) -> Tensor:
    """Make one step of the clients at work; return their losses [C] before it."""
    kept = []
    for layer in chain:
        x, remembered = layer.forward(x, stack, key)
        kept.append(remembered)
    delta: Tensor | None
    loss, delta = gradient(x, y, weight)
    for layer, remembered in zip(reversed(chain), reversed(kept), strict=True):
        delta = layer.backward(delta, remembered, stack)
        if delta is None:
            break
    stack.clip()
    return loss
