"""What MLflow's table of runs shows of a search: its methods, its trials, what matters first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fltune.report.summary import Summary
from fltune.tracking import View

RANK = "search/rank"
"""Metric of a method's run: its place in its scenario."""
MOST_PARAMS = 12
"""Columns of searched parameters; more would push everything else out of sight."""


def views_of(summary: Summary, searched: Iterable[str]) -> Sequence[View]:
    """Return the tuned methods, and all trials if there are any, each with the best on top.

    Args:
        summary: what the search found.
        searched: the parameters of the methods, by dotted name; each may come several times.
    """
    own = {"fltune.search": summary.name}
    params = list(dict.fromkeys(searched))[:MOST_PARAMS]
    found = {name for m in summary.methods.values() for name in m.metrics}
    tested = [name for name in ("test/accuracy", "test/loss") if name in found][:1]
    scores = [*tested, *(f"{name}_std" for name in tested), "search/score"]
    methods = View(
        key="methods",
        title="the tuned methods, best first",
        tags={**own, "fltune.kind": "method"},
        order_by=RANK,  # no score: losses of lucky seeds alone may be the lowest
        ascending=True,
        metrics=(RANK, *scores, "search/client_samples"),
        params=params,
        marks=("fltune.winner", "fltune.edge", "fltune.trials", "fltune.pruned", "fltune.diverged"),
    )
    trials = View(
        key="trials",
        title="all trials, best first",
        tags={**own, "fltune.kind": "trial"},
        order_by="score",
        ascending=not summary.maximize,
        metrics=("score", "val/accuracy", "val/loss", "client_samples"),
        params=params,
        marks=("fltune.method", "fltune.status", "fltune.confirmed"),
    )
    return (methods, trials) if any(m.trials for m in summary.methods.values()) else (methods,)
