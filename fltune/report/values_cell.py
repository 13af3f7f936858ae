"""A cell of a terminal's table that holds values, and never breaks a number in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text


class ValuesCell:
    """A line ``key=value`` for each value; where it does not fit, the value has the next one.

    Folded anywhere, ``eta=19.96`` would read as 19 in a narrow column.

    Args:
        values: at least one, as text.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._lines = [(f"{key}=", value) for key, value in values.items()]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the narrowest and the widest that it can be."""
        parts = [cell_len(part) for line in self._lines for part in line]
        whole = [cell_len(key + value) for key, value in self._lines]
        return Measurement(max(parts), max(whole)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Return its lines in the width that there is."""
        for key, value in self._lines:
            whole = cell_len(key + value) <= options.max_width
            for text in (key + value,) if whole else (key, f" {value}"):
                yield Text(text, overflow="fold")
