"""What has no hash, with a key that stands for it, so that ``functools.lru_cache`` can hold it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Keyed(Generic[T]):
    """An argument of a cached function.

    Attributes:
        key: equal for values of which the function makes the same.
        value: what the function looks at.
    """

    key: Hashable
    value: T = field(compare=False)
