"""The arithmetic of models: in their own type, or coarser and quicker.

Only products become coarser: those of forward, backward and evaluation. Parameters, local updates,
messages, aggregation and the server's step stay in the model's type, float32.

``tf32`` lets a CUDA device round the factors of matrix products and convolutions to 10 bits; torch
does so for convolutions unless told otherwise. ``bf16`` is torch's autocast to bfloat16, which
knows which operations bear its 8 bits; losses are taken in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

FULL = "full"
TF32 = "tf32"
BF16 = "bf16"


def misfit(precision: str, dtype: str, device: str) -> str:
    """Say why a precision does not go with a run's type and device; empty if it does.

    Args:
        precision: ``full``, ``tf32`` or ``bf16``.
        dtype: ``float32`` or ``float64``.
        device: ``auto``, ``cpu`` or ``cuda``.
    """
    if precision == FULL:
        return ""
    if dtype != "float32":
        return f"found {precision!r} with dtype {dtype!r}; take dtype: float32, or precision: full"
    if precision == TF32 and device != "cuda":
        return f"found {precision!r} with device {device!r}; only device: cuda has it, take full"
    return ""


def output_of(forward: Callable[[Tensor], Any], x: Tensor, precision: str) -> Any:
    """Return a model's output for a batch x [B, ...], in float32 where ``precision`` is bf16."""
    if precision != BF16:
        return forward(x)
    # no weight is used twice: a cache of the rounded ones would only keep them
    with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
        output = forward(x)
    return output.float()


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Let float32 products on CUDA be coarse for a while if ``precision`` is tf32, else exact.

    Whatever the program around has asked torch for: a run's numbers follow from its config. So
    cuDNN takes no algorithm whose sums come in another order each time, and none by the clock.
    """
    cudnn, coarse = torch.backends.cudnn, precision == TF32
    wanted = {"allow_tf32": coarse, "deterministic": True, "benchmark": False}
    before = {name: getattr(cudnn, name) for name in wanted}
    matrices = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if coarse else "highest")
        for name, value in wanted.items():
            setattr(cudnn, name, value)
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        for name, value in before.items():
            setattr(cudnn, name, value)
