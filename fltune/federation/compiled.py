"""The strategy ``stacked`` with its gradients compiled by ``torch.compile``.

A small network's step is mostly overhead: of each operation of forward and backward, and of writing
what lies in between. Compiled it is a few loops; on a CUDA device they are launched together, as a
CUDA graph. The first rounds wait for the compiler, in each process that trains, so that nobody
takes this strategy but who asks for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.errors import ConfigError
from fltune.federation.batches import BatchPlan
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses
from fltune.federation.stacked import Gradient, batched_gradient, solve_stacked

COMPILERS = ("g++", "clang++")


def solve_compiled(
    network: FlatNetwork,
    losses: Losses,
    data: Split,
    problem: LocalProblem,
    plan: BatchPlan,
    sgd: LocalSGD,
    lr: float,
    keys: Tensor,
) -> LocalResult:
    """Solve the cohort's local problems as ``stacked`` does, with compiled gradients.

    Raises:
        ConfigError: the network's forward, or the loss, cannot be compiled.
    """
    if losses not in network.compiled:
        graphs = problem.start.device.type == "cuda"
        network.compiled[losses] = _compile(batched_gradient(network, losses), graphs)
    gradient = network.compiled[losses]
    return solve_stacked(network, losses, data, problem, plan, sgd, lr, keys, gradient)


def check_compiler() -> None:
    """Refuse to begin where there is nothing to compile with.

    Raises:
        ValueError: with what to install.
    """
    asked = os.environ.get("CXX")
    names = (asked,) if asked else COMPILERS
    if not any(shutil.which(name) for name in names):
        raise ValueError(
            f"strategy = 'compiled' needs a C++ compiler, and {' or '.join(names)} is not on the "
            "PATH; install one, or use strategy stacked"
        )


def _compile(gradient: Gradient, graphs: bool) -> Gradient:
    """Return a gradient compiled; with ``graphs``, what it returns is gone at the next call."""

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        return gradient(*inputs)

    # torch keeps what it compiled by code object, of which all runs would share one, and gives up
    # after eight: so each gets its own
    own = FunctionType(
        call.__code__.replace(), call.__globals__, closure=call.__closure__, name=call.__name__
    )
    mode = "reduce-overhead" if graphs else None
    compiled: Callable[..., Any] = torch.compile(own, dynamic=True, fullgraph=True, mode=mode)
    largest = 1

    def padded(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        # vmap is compiled for one number of clients, and a cohort shrinks from step to step: so it
        # is filled up with its first client, to a power of two and never to fewer than before
        nonlocal largest
        clients = len(inputs[0])
        largest = max(largest, 1 << (clients - 1).bit_length())
        place = torch.arange(largest, device=inputs[0].device)
        place = torch.where(place < clients, place, 0)
        try:
            if graphs:
                torch.compiler.cudagraph_mark_step_begin()
            gradients, losses = compiled(*(value.index_select(0, place) for value in inputs))
        except (
            torch._dynamo.exc.TorchDynamoException,
            torch._dynamo.exc.FailOnRecompileLimitHit,
        ) as e:
            first = str(e).strip().splitlines()[0]
            raise ConfigError(
                f"strategy = 'compiled': torch.compile cannot take this network ({first}); use "
                "strategy stacked"
            ) from e
        return gradients[:clients], losses[:clients]

    return padded
