"""Which samples judge a model while it is tuned: a pooled hold-out, or some of every client.

A pooled hold-out is taken before anything is dealt, so that new partitions are judged on the same
samples. What clients hold out of their own is taken after it, so that every sample has an owner and
the clients can be asked one by one; a panel is some of them. A growing panel asks few while a model
is young, and more of them later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fltune.errors import DataError
from fltune.randomness import client_keys, derive_seed


def split_validation(
    y: Tensor, fraction: float, seed: int, clients: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose which training samples are trained on, and which are held out.

    Args:
        y: ``[n]`` class ids or ``[n, k]`` targets.
        fraction: of the training samples, in (0, 1); rounded to whole samples.
        seed: >= 0; decides which ones, alone.
        clients: int64 ``[n]``, the client of each sample where it is known; negative for none.

    Returns:
        Sorted indices (kept, held out). Each class gives its share of the held-out ones, to within
        one sample. With ``clients`` each client does instead, whatever its classes, but never its
        last sample (so that where clients are tiny, fewer are held out), and samples of nobody are
        all kept.

    Raises:
        DataError: the fraction is out of range, or one of the two would be empty.
    """
    _check_fraction(fraction)
    rng = np.random.default_rng(seed)
    if clients is None:
        n = len(y)
        kept, held_out = hold_out(y, round(fraction * n), rng)
    else:
        owned = clients.ge(0).nonzero()[:, 0]
        n = len(owned)
        _, chosen = hold_out(clients[owned], round(fraction * n), rng, spare=1)
        held_out = owned[chosen]
        kept = torch.ones(len(clients), dtype=torch.bool).index_fill(0, held_out, False)
        kept = kept.nonzero()[:, 0]
    if not 0 < len(held_out) < n:
        raise DataError(
            f"a validation fraction of {fraction} of {n} samples leaves {n - len(held_out)} to "
            f"train and {len(held_out)} to validate on; each needs at least one"
        )
    return kept, held_out


def hold_out(
    y: Tensor, count: int, rng: np.random.Generator, spare: int = 0
) -> tuple[Tensor, Tensor]:
    """Return sorted indices (kept, held out); stratified by largest remainders if y is classes.

    Every stratum keeps at least ``spare`` samples; ``count`` is not reached where that forbids it.
    """
    labels = y.cpu().numpy() if y.ndim == 1 else np.zeros(len(y), np.int64)
    _, class_of, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(class_sizes * count, max(len(labels), 1))  # whole: no rounding
    most = class_sizes - spare
    # Ties are broken at random, or many classes of one sample would all give from the front.
    first = np.lexsort((rng.random(len(quota)), -remainder, quota >= most))
    quota[first[: count - quota.sum()]] += 1
    quota = np.minimum(quota, most)
    held_out = _draw(class_of, class_sizes, quota, rng)
    return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))


def _draw(
    stratum: NDArray[np.int64],
    sizes: NDArray[np.int64],
    quota: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Mark so many random samples of each stratum; bool ``[n]``."""
    shuffled = rng.permutation(len(stratum))
    grouped = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    rank = np.arange(len(stratum)) - (sizes.cumsum() - sizes).repeat(sizes)
    drawn: NDArray[np.bool_] = np.empty(len(stratum), np.bool_)
    drawn[grouped] = rank < quota.repeat(sizes)
    return drawn


def hold_out_of_each(
    clients: Sequence[Tensor], fraction: float, seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Let every client hold out some of its own samples.

    Args:
        clients: per client the sorted indices of its samples, none empty, all disjoint.
        fraction: of each client's samples, in (0, 1); rounded to whole samples.
        seed: >= 0; decides which ones, given what each client holds.

    Returns:
        Sorted indices (kept, held out), each per client. A client of two samples or more holds out
        at least one and keeps at least one; a client of one only trains.

    Raises:
        DataError: the fraction is out of range, or no client has a sample to spare.
    """
    _check_fraction(fraction)
    sizes = np.array([len(indices) for indices in clients])
    quota = np.clip(np.rint(fraction * sizes).astype(np.int64), 1, np.maximum(sizes - 1, 1))
    quota[sizes < 2] = 0
    if not quota.any():
        raise DataError(
            f"none of {len(sizes)} clients has two samples, one to train and one to validate on; "
            "use fewer clients, or data.val_from: pool"
        )
    owner = np.arange(len(sizes)).repeat(sizes)
    drawn = torch.from_numpy(_draw(owner, sizes, quota, np.random.default_rng(seed)))
    marks = drawn.split(sizes.tolist())
    both = list(zip(clients, marks, strict=True))
    return [own[~mark] for own, mark in both], [own[mark] for own, mark in both]


def panel(owner: Tensor, count: int, seed: int) -> Tensor:
    """Return the clients of a fixed panel, drawn uniformly without replacement.

    A client's place in the draw depends on (seed, client) alone. So a panel is part of every larger
    one of the same seed, and stays the same when other clients come to nothing.

    Args:
        owner: int64 ``[n_val]``, the client of each validation sample.
        count: k, clients of the panel, >= 1.
        seed: >= 0.

    Returns:
        int64 ``[k]``, ascending.

    Raises:
        DataError: fewer clients hold validation samples.
    """
    return _in_draw_order(owner, count, seed)[:count].sort().values


def _in_draw_order(owner: Tensor, count: int, seed: int) -> Tensor:
    """Return all clients that hold validation samples, int64, by their place in the draw."""
    there = owner.unique()
    if count > len(there):
        raise DataError(
            f"a panel of {count} clients is asked for; {len(there)} hold validation samples. Set "
            f"data.val_clients or search.first_panel to {len(there)} or fewer"
        )
    return there[client_keys(derive_seed(seed, "panel"), 0, there).argsort()]


Growth = Mapping[int, int | None]
"""A growing panel: how many clients judge, by the round from which on; None: all there are."""


def check_growth(growth: Growth) -> None:
    """Check that a panel is there from the first round on, and grows.

    Raises:
        ValueError: it is not, or does not.
    """
    rounds = sorted(growth)
    if not rounds or rounds[0] != 1:
        found = f"starts at round {rounds[0]}" if rounds else "is empty"
        raise ValueError(f"a panel that {found}; must start at round 1, such as {{1: 5, 31: 15}}")
    for before, after in pairwise(rounds):
        few, more = growth[before], growth[after]
        if few is None or (more is not None and more <= few):
            asked = ["all" if k is None else str(k) for k in (few, more)]
            raise ValueError(
                f"{asked[1]} clients from round {after} on, after {asked[0]} from round {before} "
                "on; must be more each time"
            )


def growing_panel(
    owner: Tensor, growth: Growth, seed: int
) -> tuple[Tensor, tuple[tuple[int, int], ...]]:
    """Sort validation samples so that those of every panel come first.

    The panels are those of :func:`panel`. One that asks for more clients than there are, after the
    first, asks all.

    Args:
        owner: int64 ``[n_val]``, the client of each validation sample.
        growth: how many clients judge, by round.
        seed: >= 0.

    Returns:
        Indices of the samples of the largest panel, client by client; and by round, from which on,
        how many of these judge.

    Raises:
        ValueError: the panel does not grow.
        DataError: the first one asks for more clients than hold validation samples.
    """
    check_growth(growth)
    rounds = sorted(growth)
    clients = _in_draw_order(owner, growth[rounds[0]] or 1, seed)
    counts = [min(growth[r] or len(clients), len(clients)) for r in rounds]
    place = torch.empty(int(clients.max()) + 1, dtype=torch.int64)
    place[clients] = torch.arange(len(clients))
    held = torch.bincount(place[owner]).cumsum(0)
    samples = [int(held[k - 1]) for k in counts]
    order = place[owner].argsort(stable=True)[: samples[-1]]
    return order, tuple(zip(rounds, samples, strict=True))


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise DataError(f"a validation fraction of {fraction} is not allowed; must be in (0, 1)")
