"""Cohorts as batches: one batch per epoch, because an epoch is a round.

All samples sit on the device once; a cohort carries index tensors, never copies of its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from fltune.data.federated import FederatedData, Split
from fltune.federation.batches import (
    BatchPlan,
    Holdings,
    batches_per_pass,
    plan_batches,
    plan_cohorts,
    take,
)
from fltune.federation.chunks import Chunks, GrowingChunks, MixedChunks, samples_at_once
from fltune.federation.delays import Delays
from fltune.federation.local import LocalSGD
from fltune.federation.work import LocalWork
from fltune.models.batch_norm import normalises_by_batch
from fltune.participation.base import Arrivals, Participation
from fltune.randomness import client_keys, derive_seed, visit_keys

PLACES = 2**16
"""Of batches: plans with no more than these are made together, while they fit a core's cache."""
TOGETHER = 8
"""Rounds that are planned at once, at most."""


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
        multiplicity: int64 [C], factor of each client's aggregation weight: how often it was drawn,
            where the pattern merges repeats, and 1 otherwise.
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
    multiplicity: Tensor
    dropped: int | None = None
    discarded: int | None = None
    seconds: float | None = None
    _weights: dict[Any, Tensor] = field(default_factory=dict, repr=False, compare=False)

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
        known = self._weights.get((by_samples, dtype))
        if known is None:
            raw = self.multiplicity * self.sizes if by_samples else self.multiplicity
            raw = raw.to(dtype)
            known = (raw / raw.sum()).to(self.data.y.device)
            self._weights[by_samples, dtype] = known
        return known

    def full_batch(self) -> BatchPlan | None:
        """Return one batch of all samples for each client; None in an empty round."""
        if self.held is None:
            return None
        once = torch.ones_like(self.held.size)
        return plan_batches(self.held, self.keys, once, "steps", None, device=self.data.y.device)


@dataclass(frozen=True)
class _Visits:
    """The clients that work in a round; tensors [C] on the host.

    Attributes:
        times: how often each was drawn, where the pattern merges repeats.
        dropped: as in :class:`Cohort`.
    """

    round: int
    clients: Tensor
    keys: Tensor
    amount: Tensor
    delays: Tensor
    held: Holdings
    times: Counter[int] | None
    dropped: int | None


class FederatedDataModule(L.LightningDataModule):
    """Draws cohorts and lays out their local batches.

    Args:
        data: who holds what.
        participation: the sampler of cohorts, bound to the population of ``data``.
        sgd: the clients' optimizer; says batch size and nominal local work.
        seed: the run's seed.
        dtype: of floating-point samples.
        work: local epochs or steps by round and client; nominal if left out.
        delays: age of the model that a client starts from; 0 if left out.

    Raises:
        ValueError: work that does not fit the nominal amount or the clients.
    """

    def __init__(
        self,
        data: FederatedData,
        participation: Participation,
        sgd: LocalSGD,
        seed: int,
        dtype: torch.dtype = torch.float32,
        work: LocalWork | None = None,
        delays: Delays | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.participation = participation
        self.sgd = sgd
        self.seed = seed
        self.dtype = dtype
        self.work = (work or LocalWork()).bind(sgd.amount, seed)
        self.work.check(sgd.amount, data.num_clients, participation.asynchronous)
        self.delays = (delays or Delays()).bind(seed)

    def setup(self, stage: str) -> None:
        """Put the samples on the trainer's device, once."""
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        self.data = self.data.to(device, self.dtype)

    def train_dataloader(self) -> RoundLoader:
        """Return the loader of cohorts."""
        return RoundLoader(self)

    def val_dataloader(self) -> Chunks | GrowingChunks:
        """Return the validation samples in chunks; of a growing panel those of the round.

        Those of clients stay in their order, by which scores are told apart.
        """
        chunks = self._chunks(self.data.val, self.data.val_owner is None)
        if not self.data.val_stages:
            return chunks
        return GrowingChunks(
            self.data.val, chunks.size, lambda: self.data.judging(self._rounds_made())
        )

    def _rounds_made(self) -> int:
        """Return the rounds that a model has made when it is validated."""
        if self.trainer is None:
            return 0
        in_progress = self.trainer.state.fn == TrainerFn.FITTING
        return self.trainer.current_epoch + in_progress

    def test_dataloader(self) -> Chunks:
        """Return the test samples in chunks."""
        return self._chunks(self.data.test)

    def _chunks(self, split: Split, may_mix: bool = True) -> Chunks:
        if self.trainer is None:
            return Chunks(split)
        network = self.trainer.lightning_module.network
        assert isinstance(network, nn.Module)
        if may_mix and normalises_by_batch(network):
            return MixedChunks(split)
        return Chunks(split, samples_at_once(network, split))

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Everything is there already."""
        return batch

    def cohort(self, round: int, ids: Sequence[int], arrivals: Arrivals | None = None) -> Cohort:
        """Return the batch of one round for the clients that take part.

        Args:
            round: 0-based t; -1 for a method's initial visit by all.
            ids: the selected clients.
            arrivals: their delays, where the pattern says them.
        """
        return self.cohorts({round: ids}, arrivals)[0]

    def cohorts(
        self, selected: Mapping[int, Sequence[int]], arrivals: Arrivals | None = None
    ) -> list[Cohort]:
        """Return the batches of some rounds, planned together: small plans cost calls, not work.

        Args:
            selected: by round the ids of the selected clients.
            arrivals: of a single round, as in :meth:`cohort`.
        """
        visits = [self._visits(round, ids, arrivals) for round, ids in selected.items()]
        plans = self._plans([v for v in visits if len(v.clients)])
        made = [(v, next(plans) if len(v.clients) else None) for v in visits]
        return [self._cohort(v, plan, arrivals) for v, plan in made]

    def _visits(self, round: int, ids: Sequence[int], arrivals: Arrivals | None) -> _Visits:
        """Say who of the selected clients works, and how much."""
        times = Counter(ids) if self.participation.merges_repeats else None
        ids = ids if times is None else list(times)
        clients = torch.tensor(ids, dtype=torch.int64)
        distinct = len(set(ids)) == len(ids)  # the same keys then, quicker
        keys = (client_keys if distinct else visit_keys)(self.seed, round, clients)
        amount = self.work.amount(round, clients)
        delays = self.delays.draw(round, clients) if arrivals is None else arrivals.delays
        dropped = None
        if self.work.drops:
            stays = self.work.in_time(round, clients)
            clients, keys, amount, delays = (v[stays] for v in (clients, keys, amount, delays))
            dropped = len(ids) - len(clients)
        held = Holdings(
            self.data.order, take(self.data.offsets, clients), take(self.data.sizes, clients)
        )
        return _Visits(round, clients, keys, amount, delays, held, times, dropped)

    def _plans(self, visits: Sequence[_Visits]) -> Iterator[BatchPlan]:
        if not visits:
            return iter(())
        clients = _joined([v.clients for v in visits])
        start = _joined([v.held.start for v in visits])
        size = _joined([v.held.size for v in visits])
        fixed = None
        if self.sgd.batches == "fixed":
            fixed = client_keys(derive_seed(self.seed, "batches"), 0, clients)
        plans = plan_cohorts(
            Holdings(self.data.order, start, size),
            _joined([v.keys for v in visits]),
            _joined([v.amount for v in visits]),
            [len(v.clients) for v in visits],
            self.sgd.unit,
            self.sgd.batch_size,
            fixed,
            self.data.train.y.device,
        )
        return iter(plans)

    def _cohort(self, visits: _Visits, plan: BatchPlan | None, arrivals: Arrivals | None) -> Cohort:
        return Cohort(
            visits.round,
            visits.clients,
            visits.held.size,
            visits.keys,
            self.data.train,
            plan,
            None if plan is None else visits.held,
            visits.delays,
            self.nominal_steps,
            _multiplicity(visits.clients, visits.times),
            visits.dropped,
            None if arrivals is None else arrivals.discarded,
            None if arrivals is None else arrivals.seconds,
        )

    @cached_property
    def nominal_steps(self) -> float:
        """The run's K: ``sgd.steps``, or the mean over all clients of E ceil(n_i / B)."""
        if self.sgd.unit == "steps":
            return float(self.sgd.amount)
        per_pass = batches_per_pass(self.data.sizes, self.sgd.batch_size)
        return self.sgd.amount * per_pass.double().mean().item()

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state for Lightning's checkpoint."""
        return {"participation": self.participation.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the sampler's state from Lightning's checkpoint."""
        self.participation.load_state_dict(state_dict["participation"])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _multiplicity(clients: Tensor, times: Counter[int] | None) -> Tensor:
    """Return how often each client was drawn, int64 [C]; 1 if nobody counts."""
    if times is None:
        return torch.ones_like(clients)
    return torch.tensor([times[i] for i in clients.tolist()]).to(clients)


class RoundLoader:
    """An iterable of one cohort per epoch; small ones are made some rounds in advance."""

    def __init__(self, source: FederatedDataModule) -> None:
        self.source = source
        self._waiting: dict[int, Cohort] = {}
        self._ahead = 0

    def __len__(self) -> int:
        """One batch per epoch."""
        return 1

    def __iter__(self) -> Iterator[Cohort]:
        """Draw the next round's cohort."""
        round = self.source.participation.round
        for ids in self.source.participation:
            if round not in self._waiting:
                self._waiting = self._made(round, ids)
            yield self._waiting.pop(round)

    def _made(self, round: int, ids: Sequence[int]) -> dict[int, Cohort]:
        """Return the cohort of a round just drawn, and of those that follow it, by round."""
        source, pattern = self.source, self.source.participation
        later = pattern.upcoming(min(self._ahead, self._rounds_after(round)))
        selected = dict(enumerate([ids, *later], start=round))
        cohorts = source.cohorts(selected, pattern.arrivals)
        plan = cohorts[0].plan
        if pattern.foreseeable and plan is not None:
            together = min(PLACES // max(plan.index.numel(), 1), TOGETHER)
            self._ahead = max(together - 1, 0)
        return dict(zip(selected, cohorts, strict=True))

    def _rounds_after(self, round: int) -> int:
        trainer = self.source.trainer
        if trainer is None or trainer.max_epochs is None:
            return 0
        return max(trainer.max_epochs - round - 1, 0)
