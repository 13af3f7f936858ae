"""Which strategy solves the local problems of a run.

``auto`` goes by the model and the size of the cohort's steps, never by a clock, so that the same
seed gives the same last digits on every machine. ``fastest`` times the candidates on the run's
first local work: it may choose otherwise elsewhere, and says what it saw.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.compiled import check_compiler, solve_compiled
from fltune.federation.dense import can_be_dense, check_dense, solve_dense
from fltune.federation.flat import FlatNetwork
from fltune.federation.glance import leaves
from fltune.federation.local import Losses, Strategy
from fltune.federation.loop import solve_loop
from fltune.federation.precision import FULL
from fltune.federation.stacked import batched_gradient, solve_stacked
from fltune.models.batch_norm import sees_batches
from fltune.models.dropout import KeyedDropout
from fltune.models.linear import Linear

if TYPE_CHECKING:  # it imports this module
    from fltune.federation.bundles import Work

COMPILED = "compiled"
STRATEGIES: dict[str, Strategy] = {
    "loop": solve_loop,
    "stacked": solve_stacked,
    "dense": solve_dense,
    COMPILED: solve_compiled,
}
AUTO = "auto"
FASTEST = "fastest"

QUICK_LAYERS = (
    *(nn.Linear, Linear, nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, KeyedDropout),
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LayerNorm, nn.GroupNorm),
    *(nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d),
)
"""Layers that ``vmap`` batches without falling back to a loop of its own."""
STACKED_OVERHEAD = 3
"""What a batched step costs besides its products, in steps of a loop."""
STACKED_WORK = 28e6
"""Floating-point operations of a client's step from which a stack of any size is slower.

Products are slower side by side: convolutions are grouped, gradients are written out for all. So
stacking saves C - 3 overheads and loses C times something that grows with the work. It took 0.7 of
a loop's time for 4 clients with 0.3 million operations a step, 0.8 for 6 with 11 million, 0.93 for
10 with 18 million and 1.10 for 10 with 23 million; 1.2 for 4 with 20 million.
"""

REPETITIONS = 3
_timed: dict[tuple[Any, ...], dict[str, float]] = {}  # seconds by strategy, of this process


def choose_strategy(network: nn.Module, losses: Losses, precision: str = FULL) -> str:
    """Return what ``auto`` is for a network: ``dense`` for chains of dense layers, unless in bf16.

    For others it is ``loop``, or stays ``auto`` where each cohort decides
    (:func:`choose_by_cohort`).
    """
    if can_be_dense(network, losses, precision):
        return "dense"
    quick = all(isinstance(m, QUICK_LAYERS) for m in leaves(network))
    return AUTO if quick and "stacked" in candidates(network, losses) else "loop"


def choose_by_cohort(flops: float, plan: BatchPlan) -> str:
    """Return ``stacked`` for many clients whose steps are small, else ``loop``.

    Args:
        flops: floating-point operations of one sample's forward.
        plan: the cohort's batches.
    """
    clients, samples = plan.index.shape[1:]
    bound = STACKED_WORK * (1 - STACKED_OVERHEAD / clients)
    return "stacked" if step_work(flops, samples) < bound else "loop"


def step_work(flops: float, samples: int) -> float:
    """Return the floating-point operations of a client's local step, forward and backward.

    Backward takes two products for each one of the forward.
    """
    return 3.0 * flops * samples


def check_strategy(name: str, network: nn.Module, losses: Losses, precision: str = FULL) -> None:
    """Refuse an unknown strategy, or one whose numbers would not be those of the loop.

    Raises:
        ValueError: with what to take instead.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"strategy = {name!r}; must be auto, {FASTEST} or one of {list(STRATEGIES)}"
        )
    if name in ("stacked", COMPILED):
        check_stackable(network, name)
    if name == COMPILED:
        check_compiler()
    if name == "dense":
        check_dense(network, losses, precision)


def check_stackable(network: nn.Module, name: str = "stacked") -> None:
    """Refuse a strategy that stacks clients where its numbers would not be those of the loop.

    Raises:
        ValueError: BatchNorm, or a network that says ``stackable = False``.
    """
    layer = sees_batches(network)
    if layer is not None:
        raise ValueError(
            f"strategy = {name!r} pads partial batches, and layer {layer} would count the "
            "padding; use strategy auto or loop"
        )
    for module in network.modules():
        if not getattr(module, "stackable", True):
            raise ValueError(
                f"strategy = {name!r} is not for {type(module).__name__}, whose layers draw "
                "random numbers of their own; use strategy auto or loop"
            )


def may_stack(strategy: str, network: FlatNetwork, x: Tensor) -> bool:
    """Whether a strategy may come to solve clients side by side by ``vmap``.

    Args:
        strategy: in use, or ``auto`` or ``fastest`` before the first cohort.
        network: the model.
        x: samples [n, ...].
    """
    if strategy == AUTO:  # one sample is the least that a client's step can have
        return step_work(network.flops(x), 1) < STACKED_WORK
    return strategy in ("stacked", COMPILED, FASTEST)


@torch.no_grad()
def try_stacking(network: FlatNetwork, losses: Losses, samples: Split) -> None:
    """Take the gradients of two clients side by side, who hold the same few samples.

    Raises:
        RuntimeError: ``vmap`` cannot batch the network or the loss; a forward that branches on
            what it is given, say.
    """
    pair = [2, *[1] * samples.x.dim()]
    w = network.read().expand(2, -1).clone()
    weight = w.new_full((2, len(samples)), 1 / len(samples))
    y = samples.y.repeat(2, *[1] * samples.y.dim())
    batched_gradient(network, losses)(w, samples.x.repeat(pair), y, weight, torch.arange(2))


def candidates(network: nn.Module, losses: Losses, precision: str = FULL) -> list[str]:
    """Return the strategies that a network, a loss and a precision allow, but ``compiled``.

    That one is for who asks for it: compiling takes longer than many a run.
    """
    allowed = []
    for name in (n for n in STRATEGIES if n != COMPILED):
        try:
            check_strategy(name, network, losses, precision)
        except ValueError:
            continue
        allowed.append(name)
    return allowed


def time_strategies(work: Work) -> dict[str, float]:
    """Return the median seconds of each candidate for the local work of a cohort.

    Solving has no side effect: results are thrown away, and random numbers are hashes. Measured
    once in a process for each network, number of clients, batch size, dtype, precision, device and
    number of threads.
    """
    network, losses = work.network, work.losses
    values = network.parameters[0]
    layers = (str(network.network), network.dimension, tuple(network.shapes))
    machine = (values.dtype, network.precision, str(values.device), torch.get_num_threads())
    key = (*layers, getattr(losses, "__name__", losses), work.plan.index.shape[1:], *machine)
    if key not in _timed:
        names = candidates(network.network, losses, network.precision)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(1 + REPETITIONS):  # in turns: a drift of the machine hits them all
            for name in names:
                seconds[name].append(_seconds(STRATEGIES[name], values.device, work))
        _timed[key] = {name: statistics.median(s[1:]) for name, s in seconds.items()}
    return dict(_timed[key])


def _seconds(solve: Strategy, device: torch.device, work: Work) -> float:
    started = time.perf_counter()
    result = solve(*work)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    del result
    return time.perf_counter() - started
