"""Local problems of several runs as one problem, whose rows are all runs' clients.

The P members of a pack have the same cohort of C clients and the same batches; what differs is
where their clients start and what they are told. So P problems are one of P * C clients, member
after member. What all members agree on stays a number, so that a pack of one computes what its
member would compute alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fltune.federation.batches import BatchPlan
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, chosen


@dataclass(frozen=True)
class Request:
    """What one member wants solved in a round.

    Attributes:
        sgd: the optimizer of its clients.
        lr: its client learning rate in this round.
    """

    problem: LocalProblem
    sgd: LocalSGD
    lr: float

    @property
    def shape(self) -> tuple[float | None, ...]:
        """What the solver is to do and to return; requests of one shape can be merged."""
        asked = self.problem
        wanted = (asked.frozen, asked.gradient_sum, asked.start_gradient, asked.exact)
        return *wanted, self.sgd.clip_norm


def merge(requests: Sequence[Request], clients: int) -> tuple[LocalProblem, float]:
    """Return one problem for the clients of all members, and its client learning rate.

    Args:
        requests: P of one shape.
        clients: C.
    """
    problems = [r.problem for r in requests]
    first = problems[0]
    rows = _Rows(clients, first.start)
    lrs, scales = [r.lr for r in requests], [p.lr_scale for p in problems]
    lr = lrs[0]
    if len(set(lrs)) > 1:  # each member's rate is then a factor of its own on a rate of 1
        lr, scales = 1.0, [rate * scale for rate, scale in zip(lrs, scales, strict=True)]
    decays = [chosen(r.problem.weight_decay, r.sgd.weight_decay) for r in requests]
    start = rows.vectors([p.start for p in problems])
    assert start is not None
    merged = LocalProblem(
        start=start,
        correction=rows.vectors([p.correction for p in problems]),
        mu=rows.numbers([p.mu for p in problems]),
        anchor=rows.vectors([p.anchor for p in problems]),
        lr_scale=rows.numbers(scales),
        momentum=rows.numbers([chosen(r.problem.momentum, r.sgd.momentum) for r in requests]),
        weight_decay=rows.numbers(decays),
        frozen=first.frozen,
        gradient_sum=first.gradient_sum,
        start_gradient=first.start_gradient,
        exact=first.exact,
    )
    return merged, lr


@dataclass(frozen=True)
class _Rows:
    """Lays out members' values as rows of C clients each, like a tensor of the model's type."""

    clients: int
    like: Tensor

    def numbers(self, values: Sequence[float | Tensor]) -> float | Tensor:
        """Return the number that all members agree on, or a column [P * C, 1]."""
        plain = [v for v in values if not isinstance(v, Tensor)]
        if len(plain) == len(values) and len(set(plain)) == 1:
            return plain[0]
        if len(plain) == len(values):
            return self.like.new_tensor(plain).repeat_interleave(self.clients).unsqueeze(1)
        columns = [torch.as_tensor(v, dtype=self.like.dtype).to(self.like.device) for v in values]
        return torch.cat([column.expand(self.clients, 1) for column in columns])

    def vectors(self, values: Sequence[Tensor | None]) -> Tensor | None:
        """Return rows [P * C, d] of vectors [d] and [C, d]; None if all are None, else zeros."""
        if all(v is None for v in values):
            return None
        if len(values) == 1:
            return values[0]
        zeros = self.like.new_zeros(self.like.shape[-1])
        return torch.cat([(zeros if v is None else v).expand(self.clients, -1) for v in values])


def repeat_plan(plan: BatchPlan, times: int) -> BatchPlan:
    """Return the batches of a cohort for each of so many members."""
    index, count, steps = plan.index, plan.count, plan.steps
    return BatchPlan(index.repeat(1, times, 1), count.repeat(1, times), steps.repeat(times))


def split(result: LocalResult, times: int) -> list[LocalResult]:
    """Return each member's own part of a merged result; views of it."""

    def parts(value: Tensor | None) -> Sequence[Tensor | None]:
        return [None] * times if value is None else value.chunk(times)

    own = zip(
        result.end.chunk(times),
        result.loss.chunk(times),
        result.steps.chunk(times),
        parts(result.gradient_sum),
        parts(result.start_gradient),
        strict=True,
    )
    return [LocalResult(*values) for values in own]
