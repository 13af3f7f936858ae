"""Bundles: the clients that are solved together, and the shares that processes take of a cohort.

A batched product over ten clients may differ in its last digits from the same product over five. So
the bundles of a cohort follow from the model and the batches alone; processes take whole bundles,
and a run has the same digits with any number of them. In the strategy ``loop`` every client is on
its own.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses, rows
from fltune.federation.strategies import STRATEGIES, step_work
from fltune.federation.widths import alike

BUNDLE_WORK = {"dense": 40e6, "stacked": 200e6, "compiled": 200e6}
"""Floating-point operations of a bundle in one local step, at least.

From there on bundles cost little (784-64-10, 10 clients: two take 1.05 of the time of one) or even
gain (784-200-200-10, 10 clients: four take 0.84, because a bundle's weights stay in a cache).
"""
GROUP_WORK = {"dense": 10e6, "stacked": 100e6, "compiled": 100e6}
"""Floating-point operations that a further group of batches alike in width costs in one step.

With full batches of 5 to 500 samples softmax regression of 100 clients takes 0.7 of the time that
it takes in one group, 784-64-10 of 50 clients (5 to 100 samples) 0.75 to 0.85.
"""
MOST_BUNDLES = 16
STEP_COST = 8
"""What a step costs besides its samples, in samples."""


class Work(NamedTuple):
    """All arguments of a strategy: the local work of a cohort of C clients."""

    network: FlatNetwork
    losses: Losses
    data: Split
    problem: LocalProblem
    plan: BatchPlan
    sgd: LocalSGD
    lr: float
    keys: Tensor

    def bundles(self, strategy: str) -> list[Tensor]:
        """Return the bundles of the cohort."""
        return bundles(strategy, self.network, self.data, self.plan)

    def part(self, clients: Tensor) -> Work:
        """Return the work of some clients, given their places in the cohort, int64."""
        problem = {f.name: getattr(self.problem, f.name) for f in fields(self.problem)}
        own = replace(self.problem, **{k: rows(v, clients) for k, v in problem.items()})
        steps = self.plan.steps[clients]
        longest = int(steps.max())
        count = self.plan.count[:longest, clients]
        widest = int(count.max()) if longest else 1
        plan = BatchPlan(self.plan.index[:longest, clients, :widest], count, steps)
        return self._replace(problem=own, plan=plan, keys=self.keys[clients])

    def room(self, strategy: str) -> LocalResult:
        """Return an answer without values, for :func:`put`."""
        start, clients = self.problem.start, len(self.keys)
        size = (clients, start.shape[-1])
        statistics = self.network.read_statistics() if strategy == "loop" else start[:0]
        moved = statistics.new_empty(clients, len(statistics)) if len(statistics) else None
        return LocalResult(
            end=start.new_empty(size),
            loss=start.new_empty(clients),
            steps=self.plan.steps.to(start.device),
            gradient_sum=start.new_empty(size) if self.problem.gradient_sum else None,
            statistics=moved,
        )


ROWS = ("end", "loss", "gradient_sum", "statistics")
"""What of a :class:`LocalResult` has a row for each client."""


def put(whole: LocalResult, clients: Tensor, result: LocalResult) -> None:
    """Write the rows of some clients into an answer for all, in place."""
    for name in ROWS:
        value = getattr(result, name)
        if value is not None:
            getattr(whole, name)[clients] = value


def bundles(strategy: str, network: FlatNetwork, data: Split, plan: BatchPlan) -> list[Tensor]:
    """Return the bundles of a cohort: the places of their clients, int64.

    Those of a bundle are alike in the width of their batches, and all bundles of one width in the
    steps of their clients.
    """
    order = plan.steps.argsort(descending=True, stable=True)
    if strategy == "loop":
        return list(order.split(1))
    if plan.index.device.type != "cpu":  # an accelerator wants all at once
        return [order]
    sample = step_work(network.flops(data.x), 1)
    found = []
    for group, width in alike(order, plan, GROUP_WORK[strategy] / max(sample, 1.0)):
        number = 1
        most = min(
            len(group) * width * sample / BUNDLE_WORK[strategy], len(group) / 2, MOST_BUNDLES
        )
        while 2 * number <= most:  # powers of two: shares of equal size for two and four processes
            number *= 2
        found += [group[i::number] for i in range(number)]
    return found


def solve_bundles(strategy: str, work: Work) -> LocalResult:
    """Solve the local problems of a cohort in this process."""
    if strategy == "loop":
        return STRATEGIES[strategy](*work)
    parts = work.bundles(strategy)
    if len(parts) == 1:
        return STRATEGIES[strategy](*work)
    whole = work.room(strategy)
    for clients in parts:
        put(whole, clients, STRATEGIES[strategy](*work.part(clients)))
    return whole


def share_out(strategy: str, work: Work, processes: int) -> list[list[Tensor]]:
    """Return the bundles that each process takes, about the same work for all.

    The lightest share is the first: its process also hands out the others and gathers the answers.
    Where there are fewer bundles than processes, the last shares are empty.
    """
    parts = work.bundles(strategy)
    # 1 for a client without a step: at no cost it would never be the next share's turn
    client = 1 + work.plan.count.sum(0) + STEP_COST * work.plan.steps
    cost = [int(client[clients].sum()) for clients in parts]
    shares: list[list[Tensor]] = [[] for _ in range(min(processes, len(parts)))]
    spent = [0] * len(shares)
    for i in sorted(range(len(parts)), key=lambda i: -cost[i]):
        lightest = min(range(len(shares)), key=spent.__getitem__)
        shares[lightest].append(parts[i])
        spent[lightest] += cost[i]
    if strategy == "loop":
        shares = [[torch.cat(share).sort().values] for share in shares]
    shares = [shares[i] for i in sorted(range(len(shares)), key=spent.__getitem__)]
    return shares + [[] for _ in range(processes - len(shares))]
