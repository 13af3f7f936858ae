"""When a search says what: the one clock that benchmarks read without reaching into a search."""

from __future__ import annotations

import io
import time


class TimedLines(io.StringIO):
    """Takes what a search prints, and notes when: it says a line when Ray is up and at each end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        """Note the time of each line."""
        now = time.time()
        self.lines += [(now, line) for line in text.splitlines() if line.strip()]
        return super().write(text)
