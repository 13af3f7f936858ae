"""The final table of a search, and the warnings a researcher acts on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.report.markdown import literal, markdown_table
from fltune.report.statistics import Comparison, Interval
from fltune.report.summary import MethodSummary, Summary
from fltune.report.values_cell import ValuesCell
from fltune.search.edges import Edge

ALIKE = 3
"""Methods of the same budget from which it is said once for all of them."""
ALL_EQUAL = "all equal: the same difference on every seed, so there is no p"


def short(value: Any) -> str:
    """Show a value in a table: four significant digits for floats."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(short, value)) + "]"
    return str(value)


def values_text(values: dict[str, Any]) -> str:
    """Show dotted values on one line."""
    return "  ".join(f"{key}={short(value)}" for key, value in values.items())


def interval_text(interval: Interval | None) -> str:
    """Show a mean with half its 95% interval."""
    if interval is None:
        return "-"
    if interval.seeds == 1:
        return f"{interval.mean:.4f} (1 seed)"
    return f"{interval.mean:.4f} ± {interval.high - interval.mean:.4f}"


def print_summary(summary: Summary, console: Console, hint: str, seeds: int) -> None:
    """Print the ranked methods of each scenario, the warnings, and the hint how to see more.

    Args:
        summary: the outcome.
        console: where it goes.
        hint: how to see more; empty where there is no more.
        seeds: fresh ones of each winner.
    """
    headline = summary.headline.replace("/", " ")
    chosen = any(m.winner is not None for m in summary.methods.values())
    numbered = f" #: the winner's trial, for explain {summary.name}/METHOD#NUMBER." * chosen
    table = Table(
        title=escape(f"{summary.name}: tuned methods, best first"),
        title_justify="left",
        caption=escape(f"{_reading(headline, summary, seeds)} {_budget(summary)}{numbered}"),
        caption_justify="left",
    )
    table.add_column("method", style="bold", overflow="fold", max_width=console.width // 6)
    table.add_column("best values", overflow="fold")
    for column in (
        summary.metric.replace("/", "/\n"),
        headline.replace(" ", "\n"),
        "trials\n(diverged)",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for cell, methods in summary.by_cell().items():
        table.add_section()
        if cell:
            table.add_row("", f"[bold]{escape(cell)}[/bold]")
        for name, m in methods:
            shown = {key: short(value) for key, value in m.shown.items()}
            best = ValuesCell(shown) if shown else nothing_chosen(m)
            title = own_name(name, m) + ("" if m.winner is None else f"\n#{m.winner}")
            table.add_row(escape(title), best, *map(escape, (_score(m), _tested(m), _trials(m))))
    console.print(table)
    if summary.objectives:
        _print_fronts(summary, console)
    for warning in warnings_of(summary):
        console.print(
            f"[yellow]warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True
        )
    if hint:
        where = escape(f"experiment {summary.experiment!r}: {hint}")
        console.print(f"Every trial is in MLflow, {where}", soft_wrap=True)


def own_name(name: str, method: MethodSummary) -> str:
    """Return what a method is called within its scenario."""
    return method.scenario.get("method", name)


def tested_text(m: MethodSummary) -> str:
    """Show the result on fresh seeds, and how many of them a loss leaves out."""
    return " ".join(filter(None, [interval_text(m.test), _without(m)]))


def comparison_text(m: MethodSummary) -> str:
    """Show the mean paired difference to the best method, and how likely chance makes it."""
    difference = _difference(m.against_best)
    return " ".join(filter(None, [difference, _without(m)])) if difference else ""


def _without(m: MethodSummary) -> str:
    """Say which seeds a mean loss, and a difference of losses, knows nothing of."""
    if not m.lost_seeds:
        return ""
    return m.broken_off if m.test is None else f"without {m.broken_off}"


def _difference(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    difference = f"{comparison.difference.mean:+.4f}"
    if comparison.all_equal:
        return f"{difference} (all equal)"
    if math.isnan(comparison.p):
        return difference
    return f"{difference} ({'p < 0.001' if comparison.p < 1e-3 else f'p {comparison.p:.3f}'})"


def _tested(m: MethodSummary) -> str:
    lines = [interval_text(m.test), _difference(m.against_best), _without(m)]
    return "\n".join(filter(None, lines))


def _reading(headline: str, summary: Summary, seeds: int) -> str:
    """Say what the numbers of the table are."""
    text = f"{headline}: mean ± half the 95% interval over {seeds} fresh seeds"
    if not seeds:
        text = "no winner is run on the test split (search.confirm_seeds: 0)"
    if any(m.against_best is not None for m in summary.methods.values()):
        text += "; below it the difference to the best, seed by seed (paired t-test, Holm)"
        text += _if_all_equal(summary)
    each = f"Each config was run on {summary.seeds} seeds in the search." * (summary.seeds > 1)
    return " ".join(filter(None, [f"{text}.", each, summary.origin]))


def _if_all_equal(summary: Summary) -> str:
    """Say why a difference has no p, where there is one that every seed has alike."""
    found = [m.against_best for m in summary.methods.values() if m.against_best is not None]
    return f"; {ALL_EQUAL}" if any(c.all_equal for c in found) else ""


def _print_fronts(summary: Summary, console: Console) -> None:
    """Print what no other config beats in all objectives at once."""
    table = Table(title="Pareto front of each method, on validation data", title_justify="left")
    table.add_column("method", style="bold", overflow="fold", max_width=console.width // 4)
    for label in summary.objectives:
        table.add_column(label.replace("/", "/\n"), justify="right", no_wrap=True)
    table.add_column("values", overflow="fold")
    for name, m in summary.methods.items():
        table.add_section()
        for i, point in enumerate(m.front):
            scores = [short(score) for score in point["scores"]]
            row = ["" if i else name, *scores, values_text(point["shown"])]
            table.add_row(*map(escape, row))
    console.print(table)


def _budget(summary: Summary) -> str:
    """State what each method was given: trials and the samples its clients processed."""
    spent = {name: (m.trials, m.client_samples) for name, m in summary.methods.items()}
    if len(set(spent.values())) == 1:
        trials, samples = next(iter(spent.values()))
        if not trials:
            return "Nothing was to be chosen: no trials."
        return f"Budget of each method: {trials} trials, {_count(samples)} client samples."
    common, many = Counter(spent.values()).most_common(1)[0]
    own = spent if many < ALIKE else {n: had for n, had in spent.items() if had != common}
    each = [f"{name} {_had(*had)}" for name, had in own.items()]
    each += [f"each of the other {many} {_had(*common)}"] if many >= ALIKE else []
    return f"Budget (trials, client samples): {', '.join(each)}."


def _had(trials: int, samples: int) -> str:
    return f"{trials} trials, {_count(samples)}" if trials else "none"


def _count(number: int) -> str:
    """Show a large count in three or four characters: 363k, 1.2M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _trials(m: MethodSummary) -> str:
    """Count the trials and the diverged ones; below them what else did not complete."""
    counts = {"pruned": m.pruned, "failed": m.failed}
    others = [f"{n} {how}" for how, n in counts.items() if n]
    return "\n".join([f"{m.trials} ({m.diverged})", *others])


def _score(m: MethodSummary) -> str:
    return "-" if m.val is None else f"{m.val:.4f}"


def nothing_chosen(method: MethodSummary) -> str:
    """Say why a method has no values to show: none completed, or none are searched."""
    return "no trial completed" if method.val is None else "nothing to search"


def warnings_of(summary: Summary) -> list[str]:
    """Return what to distrust in a result, a sentence each."""
    lines = [summary.short_of] if summary.short_of else []
    for name, m in summary.methods.items():
        lines += [_edge_warning(name, edge, summary.extend) for edge in m.beyond]
        if m.too_optimistic and m.optimism is not None:
            lines.append(
                f"{name}: the winner's {summary.metric} was {short(m.optimism)} better in the "
                "search than on fresh seeds, more than their spread explains: part of it was "
                "luck; search on more seeds (search.seeds) or confirm more winners "
                "(search.confirm_top)"
            )
        if m.failed:
            lines.append(f"{name}: {m.failed} of {m.trials} trials failed with an error")
        if m.seeds_failed:
            lines.append(f"{name}: {m.seeds_failed} confirmation runs failed with an error")
        ended = m.pruned + m.diverged + m.failed
        if m.val is None and 0 < m.trials == ended and not m.seeds_failed:
            lines.append(f"{name}: no trial completed; nothing to confirm")
        if m.seeds_diverged:
            classes = "test/accuracy" in m.metrics
            counted = "its accuracy counts as 0 there"
            if not classes:
                counted = "its loss leaves them out, and it ranks behind those with fewer"
            lines.append(
                f"{name}: the winner diverged on {m.seeds_diverged} of its fresh seeds; {counted}"
            )
    return lines


def caps_warning(caps: Sequence[str], trials: Mapping[str, tuple[int, int]]) -> str:
    """Say which methods had fewer trials than they were to have, because a cap was spent.

    Args:
        caps: those that are spent, see :meth:`fltune.search.caps.Caps.spent`.
        trials: by method, how many it ran and how many it was to run.

    Returns:
        A sentence; empty where no method lacks a trial.
    """
    lacking = {name: (ran, of) for name, (ran, of) in trials.items() if ran < of}
    if not caps or not lacking:
        return ""
    verb = "was" if len(caps) == 1 else "were"
    each = [
        f"{name} ran {ran} of {of} trials" if ran else f"{name} none of {of}"
        for name, (ran, of) in lacking.items()
    ]
    return f"{' and '.join(caps)} {verb} spent: {', '.join(each)}"


def _edge_warning(name: str, edge: Edge, extend: str) -> str:
    """Say where a winner sits, how the score moves there, and what to do."""
    text = f"{name}: the winner's {edge.parameter}={short(edge.value)} is the {edge.side} of its "
    text += "space"
    if len(edge.trend) > 1:
        trend = ", ".join(f"{short(score)} at {short(value)}" for value, score in edge.trend)
        how = "still gets better" if edge.still_rising else "no longer gets better"
        text += f", where the score {how} ({trend})"
    if not edge.wider:
        return f"{text}; the best value may lie beyond, widen it in the file"
    if not extend:
        return f"{text}; the best value may lie beyond, widen it with {edge.option(name)}"
    return f"{text}; the best value may lie beyond: {extend} {edge.extension(name)}"


def markdown(summary: Summary, hint: str) -> str:
    """Return the same tables as Markdown, for the description of the MLflow run."""
    seeds = f", each config on {summary.seeds} seeds" * (summary.seeds > 1)
    lines = [
        f"Winners by `{summary.metric}` on validation data{seeds}, confirmed on fresh seeds. "
        "Differences to the best are means over paired seeds, with Holm's corrected p"
        f"{_if_all_equal(summary)}.",
        *filter(None, [summary.origin]),
    ]
    columns = ["method", "best values", summary.metric, "test, mean ± 95%", "difference to best"]
    for cell, methods in summary.by_cell().items():
        lines += ["", *([f"**{literal(cell)}**", ""] if cell else [])]
        rows = []
        for name, m in methods:
            tested = [tested_text(m), comparison_text(m)]
            counts = [str(m.trials), str(m.diverged)]
            values = values_text(m.shown) or nothing_chosen(m)
            rows.append([own_name(name, m), values, _score(m), *tested, *counts])
        lines += _literal_table([*columns, "trials", "diverged"], rows)
    if summary.objectives:
        lines += ["", "Pareto front of each method, on validation data:", ""]
        fronts = [
            [name, *map(short, point["scores"]), values_text(point["shown"])]
            for name, m in summary.methods.items()
            for point in m.front
        ]
        lines += _literal_table(["method", *summary.objectives, "values"], fronts)
    lines += ["", *(f"- {literal(warning)}" for warning in warnings_of(summary))]
    return "\n".join([*lines, "", f"Open the UI: `{hint}`"])


def _literal_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return markdown_table([*map(literal, heads)], [[*map(literal, row)] for row in rows])
