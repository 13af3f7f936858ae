"""What a search was, in words: the head of its page, and the description of its run in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from fltune.report.compare import Report
from fltune.report.markdown import literal
from fltune.report.table import markdown, tested_text


def searched(report: Report) -> dict[str, str]:
    """Return what was searched, under headings; values are those of the first method."""
    first = next(iter(report.lanes.values()))
    one = first.method.first_experiment()
    search, goal = report.search, report.search.goals[0]
    seeds = "1 seed" if search.seeds == 1 else f"{search.seeds} seeds"
    many = f", mean of the last {goal.average_last} evaluations" if goal.average_last > 1 else ""
    at_best = ", at its best" if goal.best else ""
    return {
        "data": f"{one.data.component_name}, {one.data.clients} clients, partition "
        f"{one.data.partition.component_name}",
        "model": one.model.component_name,
        "participation": one.participation.component_name,
        "rounds": f"{one.rounds}",
        "chosen by": f"{search.objective_name}{many}{at_best}",
        "sampler": f"{search.sampler}, {search.trials} trials per method, each on {seeds}",
        "early stopping": search.scheduler,
        "confirmation": f"{search.confirm_seeds} fresh seeds, on test data"
        if search.confirm_seeds
        else "none",
    }


def outcome(report: Report) -> list[str]:
    """Say which method is best, in a sentence per scenario."""
    sentences = []
    for scenario, rows in report.cells.items():
        best = rows[0]
        where = f"{scenario}: " if scenario else ""
        if best.summary.test is None:
            sentences.append(f"{where}no method is confirmed so far.")
            continue
        seeds = best.summary.test.seeds + best.summary.lost_seeds
        sentences.append(
            f"{where}{best.title} is best of {len(rows)}, with {report.headline} "
            f"{tested_text(best.summary)} over {seeds} fresh seeds."
        )
    return sentences


def description(report: Report, commands: Sequence[str]) -> str:
    """Return what was searched, what won and how to go on, as Markdown.

    Args:
        report: the comparison.
        commands: that go on with the search.
    """
    what = [f"- {key}: {literal(text)}" for key, text in searched(report).items()]
    page = "All figures are in the artifact `comparison.html`."
    won = markdown(report.summary, report.hint)
    return "\n".join(
        [
            *map(literal, outcome(report)),  # first: the UI folds away all but the first lines
            "",
            page,
            "",
            won,
            "",
            "### What was searched",
            *what,
            "",
            "### How to go on",
            "```",
            *commands,
            "```",
        ]
    )
