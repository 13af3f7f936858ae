"""Cohorts as batches: one batch per epoch, because an epoch is a round.

All samples sit on the device once; a cohort carries index tensors, never copies of its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from fltune.data.federated import FederatedData, Split
from fltune.federation.batches import BatchPlan, Holdings, batches_per_pass, plan_cohorts, take
from fltune.federation.chunks import Chunks, GrowingChunks, MixedChunks, samples_at_once
from fltune.federation.cohort import Cohort, shares
from fltune.federation.delays import Delays
from fltune.federation.local import LocalSGD
from fltune.federation.work import LocalWork
from fltune.models.batch_norm import normalises_by_batch
from fltune.participation.base import Arrivals, Participation
from fltune.randomness import client_keys, cohort_keys, derive_seed, visit_keys

PLACES = 2**17
"""Of batches: plans with no more than these are made together, while they fit a core's cache."""
TOGETHER = 8
"""Rounds that are planned at once, at most."""


@dataclass(frozen=True)
class _Visits:
    """The clients that work in a round; tensors [C] on the host.

    Attributes:
        times: int64 [C], how often each counts: is drawn, where the pattern merges repeats.
        dropped: as in :class:`Cohort`.
    """

    round: int
    clients: Tensor
    keys: Tensor
    amount: Tensor
    delays: Tensor
    times: Tensor
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
        merges = self.participation.merges_repeats
        drawn = [Counter(ids) if merges else ids for ids in selected.values()]
        counts = [len(ids) for ids in drawn]
        clients = torch.tensor([i for ids in drawn for i in ids], dtype=torch.int64)
        keys = cohort_keys(self.seed, [*selected], counts, clients)
        parts = zip(selected, drawn, clients.split(counts), keys.split(counts), strict=True)
        visits = [self._visits(*part, arrivals) for part in parts]
        return self._planned(visits, arrivals)

    def _visits(
        self,
        round: int,
        ids: Collection[int],
        clients: Tensor,
        keys: Tensor,
        arrivals: Arrivals | None,
    ) -> _Visits:
        """Say who of the selected clients works, and how much."""
        if len(set(ids)) < len(ids):  # each visit draws anew
            keys = visit_keys(self.seed, round, clients)
        amount = self.work.amount(round, clients)
        delays = self.delays.draw(round, clients) if arrivals is None else arrivals.delays
        dropped = None
        if self.work.drops:
            stays = self.work.in_time(round, clients)
            clients, keys, amount, delays = (v[stays] for v in (clients, keys, amount, delays))
            dropped = len(ids) - len(clients)
        times = torch.ones_like(clients)
        if isinstance(ids, Counter):
            times = torch.tensor([ids[i] for i in clients.tolist()], dtype=torch.int64)
        return _Visits(round, clients, keys, amount, delays, times, dropped)

    def _planned(self, visits: Sequence[_Visits], arrivals: Arrivals | None) -> list[Cohort]:
        """Return the batches of visits."""
        counts = [len(v.clients) for v in visits]
        clients, times = _joined([v.clients for v in visits]), _joined([v.times for v in visits])
        start, size = take(self.data.offsets, clients), take(self.data.sizes, clients)
        held = Holdings(self.data.order, start, size)
        plans = iter(self._plans(held, visits, clients) if len(clients) else ())
        share = shares(times, size, counts)
        weights = share.to(self.data.train.y.device, self.dtype)  # of this type: once for all
        parts = [t.split(counts, -1) for t in (start, size, share, weights)]
        return [
            Cohort(
                visit.round,
                visit.clients,
                sizes,
                visit.keys,
                self.data.train,
                next(plans) if count else None,
                Holdings(held.order, begins, sizes) if count else None,
                visit.delays,
                self.nominal_steps,
                own,
                visit.dropped,
                None if arrivals is None else arrivals.discarded,
                None if arrivals is None else arrivals.seconds,
                {self.dtype: weight},
            )
            for visit, count, begins, sizes, own, weight in zip(visits, counts, *parts, strict=True)
        ]

    def _plans(self, held: Holdings, visits: Sequence[_Visits], clients: Tensor) -> list[BatchPlan]:
        fixed = None
        if self.sgd.batches == "fixed":
            fixed = client_keys(derive_seed(self.seed, "batches"), 0, clients)
        return plan_cohorts(
            held,
            _joined([v.keys for v in visits]),
            _joined([v.amount for v in visits]),
            [len(v.clients) for v in visits if len(v.clients)],
            self.sgd.unit,
            self.sgd.batch_size,
            fixed,
            self.data.train.y.device,
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
