"""The final table of a search, and the warnings a researcher acts on."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.report.summary import Interval, MethodSummary, Summary


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
    """Print the ranked methods, the warnings, and how to see more."""
    named = next((m for m in summary.methods.values() if m.test is not None), None)
    headline = "test accuracy" if named and "test/accuracy" in named.metrics else "test loss"
    table = Table(
        title=escape(f"{summary.name}: tuned methods, best first"),
        title_justify="left",
        caption=(
            f"{headline}: mean ± half the 95% interval over {seeds} fresh seeds. {_budget(summary)}"
        ),
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
    for name, m in summary.ranked():
        best = "\n".join(values_text({k: v}) for k, v in m.best.items()) or "no trial completed"
        row = (name, best, _score(m), interval_text(m.test), _trials(m))
        table.add_row(*map(escape, row))
    console.print(table)
    for warning in warnings_of(summary):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", highlight=False)
    where = escape(f"experiment {summary.experiment!r}: {hint}")
    console.print(f"Every trial is in MLflow, {where}", soft_wrap=True)


def _budget(summary: Summary) -> str:
    """State what each method was given: trials and the samples its clients processed."""
    spent = {name: (m.trials, m.client_samples) for name, m in summary.methods.items()}
    if len(set(spent.values())) == 1:
        trials, samples = next(iter(spent.values()))
        return f"Budget of each method: {trials} trials, {_count(samples)} client samples."
    each = ", ".join(f"{n} {t} trials, {_count(s)}" for n, (t, s) in spent.items())
    return f"Budget (trials, client samples): {each}."


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


def warnings_of(summary: Summary) -> list[str]:
    """Return what to distrust in a result, a sentence each."""
    lines = []
    for name, m in summary.methods.items():
        for key, edge in m.edges.items():
            lines.append(
                f"{name}: the winner's {key}={short(m.best[key])} is the {edge} of its space; "
                "the best value may lie beyond, widen the range"
            )
        if m.failed:
            lines.append(f"{name}: {m.failed} of {m.trials} trials failed with an error")
        if m.seeds_failed:
            lines.append(f"{name}: {m.seeds_failed} confirmation runs failed with an error")
        if not m.best:
            lines.append(f"{name}: no trial completed; nothing to confirm")
        if m.seeds_diverged:
            lines.append(
                f"{name}: the winner diverged on {m.seeds_diverged} confirmation seeds; "
                "its accuracy counts as 0 there"
            )
    return lines


def markdown(summary: Summary, hint: str) -> str:
    """Return the same table as Markdown, for the description of the MLflow run."""
    lines = [
        f"Winners by `{summary.metric}` on validation data, confirmed on fresh seeds.",
        "",
        f"| method | best values | {summary.metric} | test, mean ± 95% | trials | diverged |",
        "|---|---|---|---|---|---|",
    ]
    for name, m in summary.ranked():
        lines.append(
            f"| {name} | {values_text(m.best)} | {_score(m)} | {interval_text(m.test)} "
            f"| {m.trials} | {m.diverged} |"
        )
    lines += ["", *(f"- {warning}" for warning in warnings_of(summary))]
    return "\n".join([*lines, "", f"Open the UI: `{hint}`"])
