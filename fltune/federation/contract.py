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
from fltune.federation.local import LocalProblem
from fltune.server.base import is_state


def check_state(algorithm: base.Algorithm, name: str, state: Any) -> None:
    """Look at what a method keeps before the first round.

    Args:
        algorithm: the method.
        name: ``server_state`` or ``client_state``, that gave it.
        state: what it gave.

    Raises:
        ConfigError: it is no dict of tensors.
    """
    if not is_state(state):
        raise ConfigError(
            f"algorithm: {type(algorithm).__name__}.{name} must return a dict of tensors; found "
            f"{_described(state)}"
        )


def check_problem(algorithm: base.Algorithm, problem: Any, clients: int, dimension: int) -> None:
    """Look at the first local problem of a method.

    Args:
        algorithm: the method.
        problem: what it gave for a cohort.
        clients: C.
        dimension: d.

    Raises:
        ConfigError: it is none, or has a vector or number of another shape, or a mu that pulls
            toward nothing.
    """
    kind = f"algorithm: {type(algorithm).__name__}.local_problem"
    if not isinstance(problem, LocalProblem):
        raise ConfigError(f"{kind} must return a LocalProblem; found {_described(problem)}")
    of_d: tuple[list[int], list[int]] = [dimension], [clients, dimension]
    of_one: tuple[list[int], list[int]] = [], [clients, 1]
    allowed = dict.fromkeys(("start", "correction", "anchor"), of_d)
    allowed |= dict.fromkeys(("mu", "lr_scale", "momentum", "weight_decay"), of_one)
    for name, shapes in allowed.items():
        value = getattr(problem, name)
        if isinstance(value, Tensor) and list(value.shape) not in shapes:
            raise ConfigError(
                f"{kind}: {name} has shape {list(value.shape)}; must be {shapes[0] or 'a number'} "
                f"for all, or {shapes[1]} for the {clients} clients of a cohort"
            )
    if problem.anchor is None and (isinstance(problem.mu, Tensor) or problem.mu != 0):
        raise ConfigError(f"{kind}: mu needs an anchor, the point [d] that it pulls toward")


def check_uplink(
    algorithm: base.Algorithm, result: Any, compressor: Compressor, clients: int, dimension: int
) -> None:
    """Look at what a method's ``uplink`` gave first.

    Args:
        algorithm: the method.
        result: what it gave for a cohort.
        compressor: of the run.
        clients: C.
        dimension: d.

    Raises:
        ConfigError: it is no pair of a message with rows [C, ...] and named tensors; or see
            :func:`check_message`.
    """
    fits = isinstance(result, tuple) and len(result) == 2 and all(map(is_state, result))
    if fits and all(v.shape[:1] == (clients,) for v in result[0].values()):
        check_message(algorithm, result[0], compressor, dimension)
        return
    shapes = ""
    if fits:
        odd = {k: list(v.shape) for k, v in result[0].items() if v.shape[:1] != (clients,)}
        shapes = f", with {', '.join(f'{k!r} of shape {shape}' for k, shape in odd.items())}"
    raise ConfigError(
        f"algorithm: {type(algorithm).__name__}.uplink must return (message, state), dicts of "
        f"tensors, the message's with a row for each of {clients} clients; found "
        f"{_described(result)}{shapes}"
    )


def check_rows(
    algorithm: base.Algorithm,
    said: base.State,
    after: Any,
    template: base.State,
    clients: int,
) -> None:
    """Look at the first state of clients that is to be kept.

    Args:
        algorithm: the method.
        said: what ``uplink`` gave.
        after: what ``downlink`` gave, to be laid over it.
        template: what ``client_state`` gave.
        clients: C.

    Raises:
        ConfigError: ``downlink`` gave no named tensors, or an entry is missing or has no row for
            each client.
    """
    check_state(algorithm, "downlink", after)
    for name, value in template.items():
        found, wanted = after.get(name, said.get(name)), [clients, *value.shape]
        if found is None or list(found.shape) != wanted:
            shape = "nothing" if found is None else f"shape {list(found.shape)}"
            raise ConfigError(
                f"algorithm: {type(algorithm).__name__}: client_state has {name!r}; uplink or "
                f"downlink must return it with a row for each of {clients} clients, {wanted}; "
                f"found {shape}"
            )


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
        if fits and is_state(state):
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
