"""What a method's functions return, held to what they are to return.

The numbers of a method that says less than it does look right: a message that is longer than its
class says costs less than it should, and D of another shape may broadcast. So both are looked at
where they arise, and the method is named.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fltune.algorithms import base  # the module: it imports this package while it loads
from fltune.errors import ConfigError
from fltune.federation.compression import Compressor


def check_message(
    algorithm: base.Algorithm, message: base.State, compressor: Compressor, dimension: int
) -> None:
    """Look at the first message of a method, before it is compressed.

    Scalars of each client, [C] or [C, 1], are not counted.

    Args:
        algorithm: the method.
        message: of a cohort of C clients.
        compressor: of the run.
        dimension: d.

    Raises:
        ConfigError: it lacks an entry that is to be compressed, or holds more floats than the
            method's ``up`` says, where no ``bits_up`` of its own counts them.
    """
    kind = type(algorithm).__name__
    lost = [name for name in algorithm.compressed if name not in message]
    if lost and (type(compressor) is not Compressor or compressor.error_feedback):
        sent = ", ".join(map(repr, message)) or "nothing"
        raise ConfigError(
            f"algorithm: {kind}.compressed names {lost[0]!r}, and {kind}.uplink sends {sent}: "
            f"name what is to be compressed, as in `compressed = ({next(iter(message), '')!r},)`"
        )
    if type(algorithm).bits_up is not base.Algorithm.bits_up:
        return
    rows = [v.shape[1:].numel() for v in message.values() if v.dim() > 1]
    multiple = sum(n for n in rows if n > 1 or dimension == 1) / dimension
    if multiple > algorithm.up + 0.5 / dimension:  # what `up` says may be a third of d
        raise ConfigError(
            f"algorithm: {kind}.uplink sends {multiple:.4g} d floats, but up = {algorithm.up:g}: "
            f"set `up = {float(f'{multiple:.4g}')}`, or count fewer in a bits_up of its own"
        )


def checked_result(
    algorithm: base.Algorithm, x: Tensor, result: Any
) -> tuple[Tensor | None, base.State]:
    """Return what a method's ``aggregate`` gave.

    Args:
        algorithm: the method.
        x: the model [d].
        result: what it gave.

    Raises:
        ConfigError: it is no pair of D (or None) and named tensors.
    """
    if isinstance(result, tuple) and len(result) == 2:
        d, state = result
        fits = d is None or (isinstance(d, Tensor) and d.shape == x.shape and d.dtype == x.dtype)
        if fits and isinstance(state, dict) and all(isinstance(v, Tensor) for v in state.values()):
            return d, state
    raise ConfigError(
        f"algorithm: {type(algorithm).__name__}.aggregate must return (D [d] or None, state); "
        f"found {_described(result)}; here d = {len(x)}, {x.dtype}, and state is a dict of tensors"
    )


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}, {value.dtype}"
    if isinstance(value, dict):
        odd = [f"{k!r}: {type(v).__name__}" for k, v in value.items() if not isinstance(v, Tensor)]
        return f"a dict with {', '.join(odd)}" if odd else "a dict"
    return "None" if value is None else f"a {type(value).__name__}"
