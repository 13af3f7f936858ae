"""Several runs as one: the rounds of a pack, as a Lightning module.

Members share data, the model's shape, cohorts, batches and the clients' random numbers; all else is
their own. In a round every member's algorithm states its local problem, the problems are merged
(:mod:`fltune.federation.pack_problem`) and solved by one computation, and every algorithm, server
optimizer and history goes on with its own part of the result, as it would alone. The step of a
small model takes the time of a few kernel calls, whatever is in them: a pack pays it once, and so
it pays Lightning's loop and the drawing of cohorts.

A member that diverges, is stopped or raises leaves the pack; the others go on, with the numbers
that they would have had without it. Packs write no checkpoints: an interrupted one starts anew.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from fltune.federation.cohort import Cohort
from fltune.federation.local import LocalResult
from fltune.federation.pack_members import Member
from fltune.federation.pack_problem import Request, merge, repeat_plan, split

MERGED = ("dense", "stacked", "compiled")
"""Strategies that gain by more rows; a loop over clients is as long, whoever they belong to."""

Group = list[tuple[Member, Request]]


class Pack(L.LightningModule):
    """Makes the rounds of all members together.

    Args:
        members: runs of one data set, model shape, pattern, amount of local work and rounds
            between evaluations.
        on_leave: called with each member that comes to its end, after its last row.
        on_round: called after every round when all members have written their rows, before any
            leaves.

    Attributes:
        working: the members that have not left.
    """

    def __init__(
        self,
        members: Sequence[Member],
        on_leave: Callable[[Member], None],
        on_round: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.members = list(members)
        self.working = list(members)
        self.on_leave = on_leave
        self.on_round = on_round
        self._since = 0.0
        self._apart: dict[Any, int] = {}
        self._chunks: list[tuple[Tensor, Tensor]] = []

    @property
    def network(self) -> nn.Module:
        """A model of the members' shape."""
        return self.members[0].module.network

    def configure_optimizers(self) -> None:
        """Members bring their own; Lightning has none to step."""

    def each(self, act: Callable[[Member], Any]) -> None:
        """Let all members act; one that raises leaves the pack."""
        for member in list(self.working):
            self._guarded(member, act, member)

    def _guarded(self, member: Member, act: Callable[..., Any], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:
            member.error = error
            self._dismiss(member)

    def _dismiss(self, member: Member) -> None:
        self.working.remove(member)
        self.trainer.should_stop = not self.working

    def on_fit_start(self) -> None:
        """Make all members ready; a method's initial visit is made by each for itself."""
        self._since = time.perf_counter()
        source = self.trainer.datamodule  # type: ignore[attr-defined]
        self.each(lambda member: member.start(source, self.device))

    def on_train_epoch_start(self) -> None:
        """Let the histories say whether Lightning validates after this round, all the same."""
        self.each(lambda member: member.hook("on_train_epoch_start"))
        if self.working:
            self.trainer.check_val_every_n_epoch = self.working[0].check_val_every_n_epoch

    @torch.no_grad()
    def training_step(self, cohort: Cohort, batch_idx: int) -> None:
        """Run one communication round of all members up to their pseudo-gradients."""
        groups: dict[Any, Group] = {}

        def ask(member: Member) -> None:
            module = member.module
            problem = module.ask(cohort)
            if problem is None:
                return
            lr = module.sgd.rate(cohort.round, module.rounds)
            request = Request(problem, module.sgd, lr)
            strategy = module.solver.strategy
            key = (strategy, request.shape) if strategy in MERGED else member
            groups.setdefault(key, []).append((member, request))

        self.each(ask)
        for key, group in groups.items():
            results, error = self._solved(cohort, key, group)
            for (member, request), result in zip(group, results, strict=True):
                self._guarded(member, _answer, member, request, result)
            if error is not None and all(member in self.working for member, _ in group):
                self._apart[key] = len(group)  # it was none of the members
                warnings.warn(
                    f"{len(group)} runs of a pack go on one by one: {error}", stacklevel=1
                )

    def _solved(
        self, cohort: Cohort, key: Any, group: Group
    ) -> tuple[Sequence[LocalResult | None], Exception | None]:
        """Return each member's result of one computation, None where each is to solve for itself.

        With them what went wrong: one by one, it shows whose problem cannot be solved. If it is
        nobody's, as for want of memory, only a smaller group tries again.
        """
        alone = [None] * len(group)
        if len(group) == 1 or len(group) >= self._apart.get(key, math.inf):
            return alone, None
        try:
            return _solve(cohort, group), None
        except Exception as error:
            return alone, error

    @torch.no_grad()
    def on_train_batch_end(self, outputs: Any, batch: Cohort, batch_idx: int) -> None:
        """Let every server move its model."""
        self.each(lambda member: member.move(batch))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Collect the samples: views of them all."""
        self._chunks.append(batch)

    def on_validation_epoch_end(self) -> None:
        """Evaluate one member after the other."""
        chunks, self._chunks = self._chunks, []
        self.each(lambda member: member.validate(chunks))

    def on_train_epoch_end(self) -> None:
        """Let the members write their rows; part with those that have come to their end."""
        self.each(lambda member: member.end_round())
        if self.on_round is not None:
            self.on_round()
        now = time.perf_counter()
        for member in self.working:
            member.seconds += (now - self._since) / len(self.working)
        self._since = now
        for member in [m for m in self.working if m.ended]:
            self._guarded(member, self.on_leave, member)
            if member in self.working:
                self._dismiss(member)


def _solve(cohort: Cohort, group: Group) -> Sequence[LocalResult]:
    """Return each member's result of one computation."""
    times, solver = len(group), group[0][0].module.solver
    assert cohort.plan is not None
    problem, lr = merge([request for _, request in group], len(cohort.clients))
    full = cohort.full_batch() if problem.exact or problem.start_gradient else None
    result = solver.solve(
        problem,
        cohort.data,
        repeat_plan(cohort.plan, times),
        lr,
        cohort.keys.repeat(times),
        None if full is None else repeat_plan(full, times),
    )
    return split(result, times)


def _answer(member: Member, request: Request, result: LocalResult | None) -> None:
    module = member.module
    module.answer(module.solve(request.problem) if result is None else result)
