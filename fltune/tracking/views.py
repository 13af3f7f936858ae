"""Views of MLflow's table of runs: which runs, in which order, with which columns.

MLflow's UI keeps what was chosen for its table in the browser, or, once it is shared, in a tag of
the experiment: a link that names the tag opens the table so. A tag that holds a title too stands in
the UI's list of saved views. These tags are written here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

SHARED = "mlflow.sharedViewState."
"""Prefix of the tags of an experiment that hold a view."""


@dataclass(frozen=True)
class View:
    """One look at the table of runs.

    Attributes:
        key: name of the view among those of a search.
        title: what it shows, in a few words.
        tags: values by which runs are chosen, by tag.
        order_by: the metric that the rows are sorted by.
        ascending: whether the smallest value comes first.
        metrics, params, marks: columns, in their order; marks are names of tags.
    """

    key: str
    title: str
    tags: dict[str, str]
    order_by: str
    ascending: bool
    metrics: Sequence[str] = ()
    params: Sequence[str] = ()
    marks: Sequence[str] = ()

    def state(self) -> str:
        """Return the view as MLflow's UI writes it."""
        columns = [_column("metrics", name) for name in self.metrics]
        columns += [_column("params", name) for name in self.params]
        columns += [_column("tags", name) for name in self.marks]
        chosen = (f"tags.`{name}` = {_quoted(value)}" for name, value in self.tags.items())
        return json.dumps(
            {
                "searchFilter": " and ".join(chosen),
                "orderByKey": _column("metrics", self.order_by),
                "orderByAsc": self.ascending,
                "selectedColumns": columns,
                "columnOrder": columns,
            }
        )

    def saved(self, name: str, now: int) -> str:
        """Return it as an entry of the UI's list of saved views; ``now`` in milliseconds."""
        return json.dumps({"name": name, "createdAt": now, "updatedAt": now, "state": self.state()})


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"


def _quoted(value: str) -> str:
    """Quote a value for MLflow's filter, which knows two quotes and no escape."""
    return f'"{value}"' if "'" in value else f"'{value}'"
