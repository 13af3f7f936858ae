"""What a search was, in words: the head of its page, and the description of its run in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from fltune.report.compare import Report, Row
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
    others = [other.label for other in search.goals[1:]]
    bounds = [
        f"{limit.metric} {sign} {bound:g}"
        for limit in search.limits
        for sign, bound in ((">=", limit.low), ("<=", limit.high))
        if bound is not None
    ]
    return {
        "data": f"{one.data.component_name}, {one.data.clients} clients, partition "
        f"{one.data.partition.component_name}",
        "model": one.model.component_name,
        "participation": one.participation.component_name,
        "rounds": f"{one.rounds}",
        "chosen by": f"{search.objective_name}{many}{at_best}",
        **({"also judged by": ", ".join(others)} if others else {}),
        **({"constraints": "; ".join(bounds)} if bounds else {}),
        "sampler": f"{search.sampler}, {search.trials} trials per method, each on {seeds}",
        "early stopping": search.scheduler,
        "confirmation": f"{search.confirm_seeds} fresh seeds, on test data"
        if search.confirm_seeds
        else "none",
    }


def outcome(report: Report) -> list[str]:
    """Say which method is best, in a sentence per scenario."""
    return [
        f"{scenario}: {_best(report, rows)}" if scenario else _best(report, rows)
        for scenario, rows in report.cells.items()
    ]


def _best(report: Report, rows: Sequence[Row]) -> str:
    best = rows[0]
    known = sum(row.summary.test is not None for row in rows)
    if best.summary.test is None:
        if report.search.confirm_seeds or best.summary.val is None:
            return "no method is confirmed so far." if report.resume else "no method is confirmed."
        return (
            f"{best.title} has the best {report.summary.metric} of {len(rows)} in the search, "
            f"{best.summary.val:.4f}; no winner is run on test data."
        )
    place = f"is best of {len(rows)}"
    if known < len(rows):
        place = f"is best of the {known} confirmed of {len(rows)}"
        place = f"is the only one confirmed of {len(rows)}" if known == 1 else place
    seeds = best.summary.test.seeds + best.summary.lost_seeds
    return (
        f"{best.title} {place}, with {report.headline} {tested_text(best.summary)} "
        f"over {seeds} fresh seeds."
    )


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
