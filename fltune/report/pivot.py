"""The scenarios of a search side by side: a row per method, a column per cell."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.report.compare import Report
from fltune.report.parts import table
from fltune.report.table import tested_text

LABEL = "mean ± half the 95% interval over fresh seeds, and the rank in the cell"


def pivot(report: Report) -> list[tuple[str, list[str], list[bool]]]:
    """Return, per method, its result in every cell and whether it is the best there.

    The methods stand in the order of their mean rank; in a cell that a method has no row in, ``-``.
    """
    cells = report.cells
    titles = list(dict.fromkeys(row.title for row in report.rows))
    ranks: dict[str, list[int]] = {title: [] for title in titles}
    found: dict[str, tuple[list[str], list[bool]]] = {title: ([], []) for title in titles}
    for rows in cells.values():
        there = {row.title: row for row in rows}
        for title, (texts, best) in found.items():
            row = there.get(title)
            known = row is not None and row.summary.test is not None
            texts.append(f"{tested_text(row.summary)} ({row.rank})" if known and row else "-")
            best.append(row is not None and row.wins)
            ranks[title] += [row.rank] if row is not None else []
    order = sorted(titles, key=lambda title: sum(ranks[title]) / len(ranks[title]))
    return [(title, *found[title]) for title in order]


def pivot_section(report: Report) -> str:
    """Return the table of the page; empty for a search without scenarios."""
    if len(report.cells) < 2:
        return ""
    rows = [
        (title, [f"{t} ◂" if b else t for t, b in zip(texts, best, strict=True)], False)
        for title, texts, best in pivot(report)
    ]
    label = f"All scenarios: {report.headline}, {LABEL}; ◂ marks the best method of a cell"
    return "<h3>All scenarios</h3>" + table("table-pivot", label, ["method", *report.cells], rows)


def print_pivot(report: Report, console: Console) -> None:
    """Print the same table."""
    shown = Table(
        title=escape(f"{report.summary.name}: {report.headline} in all scenarios"),
        title_justify="left",
        caption=LABEL,
        caption_justify="left",
    )
    shown.add_column("method", style="bold", overflow="fold")
    for cell in report.cells:
        shown.add_column(escape(cell.replace(", ", "\n")), justify="right")
    for title, texts, best in pivot(report):
        cells = [
            f"[bold]{escape(t)}[/bold]" if b else escape(t)
            for t, b in zip(texts, best, strict=True)
        ]
        shown.add_row(escape(title), *cells)
    console.print(shown)
