"""Which samples each client sees in each local step of a round.

The plan of a whole cohort is made at once, without a loop over clients: hashed keys are sorted into
one permutation per client and pass, and the permutations are cut into batches. What is a number per
client or step is worked out on the host, by NumPy, whose calls are cheaper; what is one per sample,
where the samples are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.data.federated import Split
from fltune.randomness import mix_keys


@dataclass(frozen=True)
class BatchPlan:
    """The mini-batches of a cohort of C clients over K local steps.

    Attributes:
        index: int64 [K, C, B], rows of the training set. Places beyond a batch's end repeat the
            batch's first sample, so that they add no number that the batch does not hold.
        count: int64 [K, C], samples in each batch; 0 where the client has finished.
        steps: int64 [C], local steps K_i of each client; K is their maximum.
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
    """Which training samples the clients of a cohort hold.

    Attributes:
        order: int64 [m], training indices grouped by client.
        start: int64 [C], where each client's indices begin in ``order``.
        size: int64 [C], samples n_i >= 1 of each client.
    """

    order: Tensor
    start: Tensor
    size: Tensor


BEYOND = 2**62
"""What no halved hash reaches: the places that are not shuffled are sorted behind, in order."""


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
) -> BatchPlan:
    """Shuffle each client's samples and cut them into batches.

    A pass over n_i samples has ceil(n_i / B) batches, the last one partial. In steps mode a client
    goes through as many freshly shuffled passes as its steps need; every round starts a new pass,
    so that client i's batches in round t depend on (seed, t, i) alone.

    Args:
        held: the cohort's samples.
        keys: int64 [C], from :func:`fltune.randomness.client_keys`.
        amount: int64 [C] >= 0, local epochs or steps of each client.
        unit: ``"epochs"`` or ``"steps"``.
        batch_size: B >= 1, or None for one full batch per pass.
        fixed: int64 [C], the clients' randomness of the run: their batches are drawn from it, once
            and for all, and ``keys`` shuffle whole batches; None draws new batches in every pass.
    """
    size, made = held.size.cpu().numpy(), amount.cpu().numpy()
    longest = int(size.max())
    width = min(batch_size or longest, longest)
    # a full batch per pass: every client's one batch, however many samples it has
    per_pass = -(size // -width)
    steps = made * (per_pass if unit == "epochs" else 1)
    passes = max(int((-(steps // -per_pass)).max()), 1)
    step = np.arange(steps.max())[:, None]
    done = step // per_pass
    batch = step - done * per_pass
    row = np.minimum(done, passes - 1) + passes * np.arange(len(size))
    cut = per_pass > 1
    if fixed is None:
        order = _permutations(keys, size, passes, cut)
    else:
        order = _permutations(fixed, size, 1, cut)
        batches = _permutations(keys, per_pass, passes, cut)
        batch = take(batches.reshape(-1), _like(row * per_pass.max() + batch, keys)).cpu().numpy()
        row = np.arange(len(size))
    begin = batch * width
    count = _like(np.where(step < steps, np.minimum(size - begin, width), 0), keys)
    place = torch.arange(width, device=keys.device)
    place = torch.where(place < count.unsqueeze(2), place, 0)
    place += _like(row * longest + begin, keys).unsqueeze(2)
    local = take(order.reshape(-1), place) + held.start.unsqueeze(1)
    return BatchPlan(take(held.order, local), count, _like(steps, keys))


def _like(values: NDArray[Any], tensor: Tensor) -> Tensor:
    """Return what was worked out on the host as a tensor where another one lies."""
    return torch.from_numpy(values).to(tensor.device)


def _permutations(
    keys: Tensor, size: NDArray[np.int64], passes: int, cut: NDArray[np.bool_]
) -> Tensor:
    """Return [C, passes, longest]: permutations of 0..n_i-1 in the first n_i places of each row.

    A client whose pass is one batch (not ``cut``) keeps its order, whoever else is in the cohort.
    """
    longest = int(size.max())
    if not cut.any():
        return torch.arange(longest, device=keys.device).expand(len(size), passes, -1)
    number = torch.arange(max(longest, passes), device=keys.device)
    hashed, place = mix_keys(number), number[:longest]
    root = mix_keys(keys.unsqueeze(1) ^ hashed[:passes])
    rank = mix_keys(root.unsqueeze(2) ^ hashed[:longest]) >> 1
    shuffled = _like(cut[:, None] & (np.arange(longest) < size[:, None]), keys).unsqueeze(1)
    # with the place as its last bits a rank says where it came from: sorting numbers takes a third
    # of the time of sorting places by them. Ties, 2**-40 a pair or rarer, go to the earlier place
    low = (1 << longest.bit_length()) - 1
    rank = torch.where(shuffled, rank & ~low, BEYOND) | place
    if rank.device.type == "cpu":  # NumPy's sort takes a third of the time of torch's
        rank.numpy().sort(axis=2)
    else:
        rank = rank.sort(dim=2).values
    return rank & low
