"""Does a forward decide anything? A trace of one that does keeps only the way that was taken.

A layer that is skipped at random, or in training alone, would be skipped for ever.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn


def decides(network: nn.Module) -> bool:
    """Whether a forward, or a function of its own that it calls, has an ``if`` in it.

    What torch and this package bring is known, and not looked at; walking through a list is no
    decision.
    """
    return any(
        _branches(function)
        for kind in {type(module) for module in network.modules()}
        for function in _reached(kind)
    )


def _reached(kind: type) -> Iterator[FunctionType]:
    """Yield the functions that a class's forward may call by name, itself first."""
    waiting: list[Any] = [getattr(kind, "forward", None)]
    seen = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in seen or _known(function):
            continue
        seen.add(function)
        yield function
        for name in function.__code__.co_names:
            found = getattr(kind, name, None)
            waiting.append(found.fget if isinstance(found, property) else found)
            waiting.append(function.__globals__.get(name))


def _known(function: FunctionType) -> bool:
    return str(function.__module__).partition(".")[0] in ("torch", "fltune")


def _branches(function: FunctionType) -> bool:
    return any("JUMP" in i.opname and "_IF_" in i.opname for i in dis.get_instructions(function))
