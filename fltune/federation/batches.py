"""Which samples each client sees in each local step of a round.

The plan of a whole cohort, or of several, is made at once, without a loop over clients: hashed keys
are sorted into one order of samples per client and pass, and the orders are cut into batches. Who
holds what is on the host, where NumPy calls are cheaper; what is one number per pass and sample, or
more, is worked out on the device that trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.federated import Split
from fltune.randomness import hashed_places, mix, mix_host


@dataclass(frozen=True)
class BatchPlan:
    """The mini-batches of a cohort of C clients over K local steps.

    How much each client does lies on the host: who asks waits for no accelerator.

    Attributes:
        index: int64 [K, C, B], rows of the training set, where that lies. Places beyond a batch's
            end repeat the batch's first sample, so that they add no number that the batch does not
            hold; a client that has finished has samples of its own there.
        count: int64 [K, C], samples in each batch; 0 where the client has finished; on the host.
        steps: int64 [C], local steps K_i of each client; K is their maximum; on the host.
    """

    index: Tensor
    count: Tensor
    steps: Tensor

    @property
    def samples(self) -> int:
        """Client samples processed in the round."""
        return int(self.count.sum())


@dataclass(frozen=True)
class Holdings:
    """Which training samples the clients of a cohort hold; on the host.

    Attributes:
        order: int64 [m], training indices grouped by client, ascending within each.
        start: int64 [C], where each client's indices begin in ``order``.
        size: int64 [C], samples n_i >= 1 of each client.
    """

    order: Tensor
    start: Tensor
    size: Tensor


LAST = 2**63 - 1
"""Sorts behind every sample."""
VALUE_BITS = 24
"""Of a rank, for a sample's row; the other 40 are of its hash. More where there are more rows."""

Ints = NDArray[np.int64]


def take(values: Tensor, index: Tensor) -> Tensor:
    """Return ``values[index]``; index_select is two to three times as quick as indexing."""
    if index.dim() == 1:
        return values.index_select(0, index)
    return values.index_select(0, index.reshape(-1)).view(*index.shape, *values.shape[1:])


def take_inputs(data: Split, index: Tensor, key: Tensor) -> Tensor:
    """Return the inputs ``[..., B, *input_shape]`` of local steps, augmented if the data says so.

    Args:
        data: the training samples.
        index: int64 ``[..., B]``, one batch for each step.
        key: int64 ``[...]``, the randomness of each step.
    """
    x = take(data.x, index)
    return x if data.augmentation is None else data.augmentation(x, key)


def batches_per_pass(size: Tensor, batch_size: int | None) -> Tensor:
    """Return ceil(n_i / B), int64 [C], for clients of n_i samples; 1 for full batches (None)."""
    return torch.ones_like(size) if batch_size is None else -(size // -batch_size)


def plan_batches(
    held: Holdings,
    keys: Tensor,
    amount: Tensor,
    unit: str,
    batch_size: int | None,
    fixed: Tensor | None = None,
    device: torch.device | None = None,
) -> BatchPlan:
    """Shuffle each client's samples and cut them into batches: :func:`plan_cohorts` of one."""
    whole = [len(held.size)]
    return plan_cohorts(held, keys, amount, whole, unit, batch_size, fixed, device)[0]


def plan_cohorts(
    held: Holdings,
    keys: Tensor,
    amount: Tensor,
    cohorts: Sequence[int],
    unit: str,
    batch_size: int | None,
    fixed: Tensor | None = None,
    device: torch.device | None = None,
) -> list[BatchPlan]:
    """Shuffle each client's samples and cut them into batches, of several cohorts at once.

    Every cohort has the plan that it would have alone.

    A pass over n_i samples has ceil(n_i / B) batches, the last one partial. In steps mode a client
    goes through as many freshly shuffled passes as its steps need; every round starts a new pass,
    so that client i's batches in round t depend on (seed, t, i) alone.

    Args:
        held: the cohorts' samples, one cohort after the other.
        keys: int64 [C], from :func:`fltune.randomness.client_keys`.
        amount: int64 [C] >= 0, local epochs or steps of each client.
        cohorts: how many clients each has; their sum is C.
        unit: ``"epochs"`` or ``"steps"``.
        batch_size: B >= 1, or None for one full batch per pass.
        fixed: int64 [C], the clients' randomness of the run: their batches are drawn from it, once
            and for all, and ``keys`` shuffle whole batches; None draws new batches in every pass.
        device: where the indices shall lie; the host if left out. All other tensors lie there.
    """
    size, made = held.size.numpy(), amount.numpy()
    longest = int(size.max())
    width = min(batch_size or longest, longest)
    # a full batch per pass: every client's one batch, however many samples it has
    per_pass = -(size // -width)
    most = int(per_pass.max())
    steps = made * (per_pass if unit == "epochs" else 1)
    begun = np.maximum(-(steps // -per_pass), 1)
    passes = int(begun.max())
    step = np.arange(steps.max())[:, None]
    done = step // per_pass
    batch = step - done * per_pass
    # who has finished stays in the last pass of its own, whatever the others do
    row = np.minimum(done, begun - 1) + passes * np.arange(len(size))
    place = held.start.numpy()[:, None] + np.arange(longest)
    own = held.order.numpy().take(place, mode="clip")  # what lies beyond a client's end is not used
    device = device or torch.device("cpu")
    if fixed is None:
        order = _shuffled(own, keys, size, passes, per_pass > 1, most * width, device)
    else:
        order = _shuffled(own, fixed, size, 1, per_pass > 1, most * width, device)
        host = torch.device("cpu")
        number = np.tile(np.arange(most), (len(size), 1))
        batches = _shuffled(number, keys, per_pass, passes, per_pass > 1, most, host)
        batch = batches.numpy().reshape(-1)[row * most + batch]
        row = np.arange(len(size))
    count = np.where(step < steps, np.minimum(size - batch * width, width), 0)
    every = order.view(len(size), -1, most, width)
    _fill_last(every, size, per_pass)
    chosen = torch.from_numpy(row * most + batch).to(device)
    plans, at = [], 0
    for clients in cohorts:  # each has the steps and the width of its own
        part = slice(at, at := at + clients)
        last, wide = int(steps[part].max()), int(size[part].max())
        index = take(every.view(-1, width), chosen[:last, part])[..., :wide].contiguous()
        counted = torch.from_numpy(count[:last, part].copy())
        plans.append(BatchPlan(index, counted, torch.from_numpy(steps[part])))
    return plans


def _fill_last(order: Tensor, size: Ints, per_pass: Ints) -> None:
    """Let the last batch of a pass, where it is not full, go on with its own first sample.

    Args:
        order: int64 [C, passes, batches, B], changed in place.
        size, per_pass: [C], samples of each client and the batches that they fill.
    """
    passes, most, width = order.shape[1:]
    last = np.arange(0, order.numel() // width, most).reshape(-1, passes) + (per_pass - 1)[:, None]
    beyond = np.arange(width) >= (size - (per_pass - 1) * width)[:, None, None]
    batches = order.view(-1, width)
    place = torch.from_numpy(last).view(-1).to(order.device)
    found = take(batches, place).view(-1, passes, width)
    filled = torch.where(torch.from_numpy(beyond).to(order.device), found[..., :1], found)
    batches.index_copy_(0, place, filled.view(-1, width))


def _shuffled(
    values: Ints,
    keys: Tensor,
    size: Ints,
    passes: int,
    cut: NDArray[np.bool_],
    columns: int,
    device: torch.device,
) -> Tensor:
    """Return [C, passes, columns]: of each client its first n_i values, in a new order each pass.

    A client whose pass is one batch (not ``cut``) keeps its order, whoever else is in the cohort.

    Args:
        values: [C, longest] >= 0, ascending within each client's n_i.
        keys: int64 [C], the clients' randomness.
        size: [C], n_i, the greatest of which is ``longest``.
        passes: orders of each client.
        cut: [C], whom to shuffle.
        columns: >= ``longest``; places beyond a client's n_i hold any number.
        device: where to sort.
    """
    longest = values.shape[1]
    found = torch.empty(len(size), passes, columns, dtype=torch.int64, device=device)
    if not cut.any():
        found[..., :longest] = torch.from_numpy(values).to(device).unsqueeze(1)
        return found
    hashed = hashed_places(max(longest, passes))
    root = mix_host(keys.numpy()[:, None] ^ hashed[:passes])
    # with the value as its last bits a rank says whose it is: sorting numbers takes a third of the
    # time of sorting places by them. Ties, 2**-40 a pair, go to the smaller value. As many bits for
    # all cohorts: else what ties would depend on who else is there
    low = (1 << max(int(values.max()).bit_length(), VALUE_BITS)) - 1
    ends = np.where(np.arange(longest) < size[:, None], values, LAST)
    free = np.where((ends < LAST) & cut[:, None], ~low, 0)  # the bits that a hash decides
    parts = [root[:, :, None], hashed[:longest], free[:, None], ends[:, None]]
    rank = _ranks(*(torch.from_numpy(part).to(device) for part in parts))
    torch.bitwise_and(rank, low, out=found[..., :longest])
    return found


def _ranks(root: Tensor, hashed: Tensor, free: Tensor, ends: Tensor) -> Tensor:
    """Return the sorted ranks of values, int64 [C, passes, longest]; by NumPy on the host.

    Its sort takes a third of the time of torch's.
    """
    rank = root ^ hashed
    if rank.device.type != "cpu":
        return ((mix(rank) & free) | ends).sort(dim=2).values
    mix_host(rank.numpy())
    rank &= free
    rank |= ends
    rank.numpy().sort(axis=2)
    return rank
