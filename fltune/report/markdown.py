"""Text and tables in Markdown: descriptions in MLflow, pages of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"[\\`*]|(?<!\w)_|_(?!\w)")
"""What begins or ends markup inside a line; an underscore between letters does not."""


def literal(text: str) -> str:
    """Return text that Markdown shows as it is; HTML in it is text too."""
    plain = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")
    return _MARKUP.sub(r"\\\g<0>", plain)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; its cells are Markdown, on one line each."""
    cells = [[*map(_cell, row)] for row in (heads, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{' --- |' * len(heads)}", *lines[1:]]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
