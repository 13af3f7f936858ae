"""Cohorts as batches: one batch per epoch, because an epoch is a round.

All samples sit on the device once; a cohort carries index tensors, never copies of its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
    take,
)
from fltune.federation.chunks import Chunks, GrowingChunks, samples_at_once
from fltune.federation.delays import Delays
from fltune.federation.local import LocalSGD
from fltune.federation.work import LocalWork
from fltune.participation.base import Arrivals, Participation
from fltune.randomness import client_keys, derive_seed, visit_keys


@dataclass(frozen=True)
class Cohort:
    """One round's batch.

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

    def weights(self, by_samples: bool, dtype: torch.dtype) -> Tensor:
        """Return aggregation weights [C] that sum to 1, made once for all members of a pack.

        Args:
            by_samples: whether a client counts by its samples; else all count alike.
            dtype: of the weights.
        """
        known = self._weights.get((by_samples, dtype))
        if known is None:
            raw = self.multiplicity * self.sizes if by_samples else self.multiplicity
            raw = raw.to(dtype)
            known = self._weights[by_samples, dtype] = raw / raw.sum()
        return known

    def full_batch(self) -> BatchPlan | None:
        """Return one batch of all samples for each client; None in an empty round."""
        if self.held is None:
            return None
        once = torch.ones_like(self.held.size)
        return plan_batches(self.held, self.keys, once, "steps", None, device=self.keys.device)


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
        """Return the validation samples in chunks; of a growing panel those of the round."""
        chunks = self._chunks(self.data.val)
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

    def _chunks(self, split: Split) -> Chunks:
        if self.trainer is None:
            return Chunks(split)
        network = self.trainer.lightning_module.network
        assert isinstance(network, nn.Module)
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
        data = self.data
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
        sizes = take(data.sizes, clients)
        plan = held = None
        if len(clients):
            held = Holdings(data.order, take(data.offsets, clients), sizes)
            plan = self._plan(held, keys, amount, clients)
        device = data.train.y.device
        return Cohort(
            round,
            clients.to(device),
            sizes.to(device),
            keys.to(device),
            data.train,
            plan,
            held,
            delays.to(device),
            self.nominal_steps,
            _multiplicity(clients, times).to(device),
            dropped,
            None if arrivals is None else arrivals.discarded,
            None if arrivals is None else arrivals.seconds,
        )

    def _plan(self, held: Holdings, keys: Tensor, amount: Tensor, clients: Tensor) -> BatchPlan:
        fixed = None
        if self.sgd.batches == "fixed":
            fixed = client_keys(derive_seed(self.seed, "batches"), 0, clients)
        sgd, device = self.sgd, self.data.train.y.device
        return plan_batches(held, keys, amount, sgd.unit, sgd.batch_size, fixed, device)

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


def _multiplicity(clients: Tensor, times: Counter[int] | None) -> Tensor:
    """Return how often each client was drawn, int64 [C]; 1 if nobody counts."""
    if times is None:
        return torch.ones_like(clients)
    return torch.tensor([times[i] for i in clients.tolist()]).to(clients)


class RoundLoader:
    """An iterable of one cohort per epoch."""

    def __init__(self, source: FederatedDataModule) -> None:
        self.source = source

    def __len__(self) -> int:
        """One batch per epoch."""
        return 1

    def __iter__(self) -> Iterator[Cohort]:
        """Draw the next round's cohort."""
        participation = self.source.participation
        round = participation.round
        for ids in participation:
            yield self.source.cohort(round, ids, participation.arrivals)
