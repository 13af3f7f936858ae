"""A round's cohort: Lightning's batch of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan, Holdings, plan_batches


@dataclass(frozen=True)
class Cohort:
    """One round's batch. Tensors [C] lie on the host, whatever trains.

    Attributes:
        round: 0-based t.
        clients: int64 [C], ascending; empty in an empty round.
        sizes: int64 [C], samples of each client.
        keys: int64 [C], randomness of each client in this round.
        data: the training samples.
        plan: the local batches; None in an empty round.
        held: which samples the clients hold; None in an empty round.
        delays: int64 [C], how many rounds old the model is that each client starts from.
        nominal_steps: K, the same in all rounds; see :meth:`FederatedDataModule.nominal_steps`.
        shares: float64 [2, C], of each client in the aggregation, where all draws count alike and
            where they count by the client's samples; see :func:`shares`.
        dropped: selected clients that were not in time; None where the experiment drops none.
        discarded: updates that arrived too old; None where they come in rounds.
        seconds: simulated time of this round; None where the clock says how long it lasts.
    """

    round: int
    clients: Tensor
    sizes: Tensor
    keys: Tensor
    data: Split
    plan: BatchPlan | None
    held: Holdings | None
    delays: Tensor
    nominal_steps: float
    shares: Tensor
    dropped: int | None = None
    discarded: int | None = None
    seconds: float | None = None
    _weights: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def there(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, steps (samples in an empty round) and delays where the samples lie."""
        device = self.data.y.device
        steps = self.sizes if self.plan is None else self.plan.steps
        return self.clients.to(device), steps.to(device), self.delays.to(device)

    def weights(self, by_samples: bool, dtype: torch.dtype) -> Tensor:
        """Return aggregation weights [C] that sum to 1, where the samples lie.

        Made once for all members of a pack, as :attr:`there` is.

        Args:
            by_samples: whether a client counts by its samples; else all count alike.
            dtype: of the weights.
        """
        if dtype not in self._weights:
            self._weights[dtype] = self.shares.to(self.data.y.device, dtype)
        return self._weights[dtype][int(by_samples)]

    def full_batch(self) -> BatchPlan | None:
        """Return one batch of all samples for each client; None in an empty round."""
        if self.held is None:
            return None
        once = torch.ones_like(self.held.size)
        return plan_batches(self.held, self.keys, once, "steps", None, device=self.data.y.device)


def shares(times: Tensor, size: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the shares of clients in the aggregations of some cohorts, float64 [2, C].

    Args:
        times: int64 [C], how often each counts, one cohort after the other.
        size: int64 [C], samples of each.
        counts: clients of each cohort; their sum is C.
    """
    raw = times.numpy() * np.stack([np.ones(len(size), np.int64), size.numpy()])
    ends = np.cumsum(counts)
    sums = np.pad(raw.cumsum(axis=1), ((0, 0), (1, 0)))
    totals = sums[:, ends] - sums[:, ends - counts]
    return torch.from_numpy(raw / totals.repeat(counts, axis=1))
