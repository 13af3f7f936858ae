"""Does a forward decide anything? A trace of one that does keeps only the way that was taken.

A layer that is skipped at random, or in training alone, would be skipped for ever.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from torch import nn


@contextmanager
def decisions(network: nn.Module) -> Iterator[list[str]]:
    """List the functions with an ``if`` in them that run meanwhile in the files of a network.

    Modules of torch and of this package are known; their files are not looked at.

    Args:
        network: whose modules' files are watched.
    """
    found: list[str] = []
    files = {_file(type(module)) for module in network.modules() if not _known(type(module))}
    before = sys.getprofile()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in files and _decides(code):
            found.append(code.co_name)

    sys.setprofile(watch if files else before)
    try:
        yield found
    finally:
        sys.setprofile(before)


def _known(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "fltune")


def _file(kind: type) -> str:
    code = getattr(kind.forward, "__code__", None)  # type: ignore[attr-defined]
    return code.co_filename if code is not None else ""


def _decides(code: CodeType) -> bool:
    """Whether a function jumps on a condition; walking through a list is no decision."""
    return any("JUMP" in i.opname and "_IF_" in i.opname for i in dis.get_instructions(code))
