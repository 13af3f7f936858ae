"""What the command line says of one federated run that has ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from fltune.runner import RunResult

KEPT = (
    *("rounds", "metrics", "comm", "participation", "client_samples", "seconds"),
    *("strategy", "timings", "processes", "data"),
)
"""What of a result its JSON object has besides how the run ended."""


def print_row(row: dict[str, float], console: Console) -> None:
    """Print an evaluation over the one before it; nothing where no one looks on."""
    if console.is_terminal:
        text = "  ".join(f"{k} {v:.4f}" for k, v in row.items() if k.startswith(("val", "train")))
        console.print(f"round {row['round']:g}  {text}", highlight=False, end="\r")


def print_run(method: str, result: RunResult, console: Console) -> None:
    """Print how a run ended, what it reached, what it cost, and who took part."""
    from fltune.report.compare import bits_text

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    say(f"{method}: {result.message}")
    held = result.data
    say(
        f"  {held['clients']} clients with {held['size_min']} to {held['size_max']} samples "
        f"(median {held['size_median']:g})"
    )
    for text in held["partition_notes"]:
        say(f"  {text}")
    for key, value in sorted(result.metrics.items()):
        say(f"  {key:16} {value:.4f}")
    up, down = (bits_text(result.comm[k]) for k in ("up_bits", "down_bits"))
    helped = f", {result.processes} processes" if result.processes > 1 else ""
    say(
        f"  {result.rounds} rounds, {result.client_samples:,} client samples, {up} up, "
        f"{down} down, {result.seconds:.1f} s "
        f"({result.strategy}{helped})"
    )
    if result.timings:
        timed = ", ".join(f"{name} {value:.4f} s" for name, value in result.timings.items())
        say(f"  a round's local work: {timed}")
    seen = result.participation
    say(
        f"  {seen['coverage']:.0%} of the clients seen, away for up to {seen['tau_max']} rounds "
        f"(mean {seen['tau_avg']:.1f}); visits within {seen['fairness']:.0%} of their mean "
        f"(cv {seen['count_cv']:.2f})"
    )


def run_as_json(method: str, result: RunResult) -> dict[str, Any]:
    """Return plain values: what ``run --json`` ends with."""
    plain = asdict(result)
    reason = {"stop_reason": result.stop_reason.value, "message": result.message}
    return {"method": method, **reason, **{key: plain[key] for key in KEPT}}
