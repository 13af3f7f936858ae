"""A curve on one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def finite_values(values: Sequence[float | None]) -> list[float]:
    """Return the values that are numbers."""
    return [v for v in values if v is not None and math.isfinite(v)]


def spark(values: Sequence[float | None], width: int) -> str:
    """Return a bar per value between the lowest and the highest, thinned to ``width`` bars.

    The last value always has its bar; what is no number has none.
    """
    known = finite_values(values)
    if len(known) > width:
        step = (len(known) - 1) / max(1, width - 1)
        known = [known[round(i * step)] for i in range(width)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    length = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((v - low) / length * len(BARS)))] for v in known)
