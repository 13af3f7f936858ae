"""Read the results of a search into pandas, from its folder and from MLflow.

    python examples/results_to_pandas.py [SEARCH]

``trials.jsonl`` has one line per ended run, with its values, scores and whole curve; MLflow has the
same as runs. Without a name a small search is made first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlflow
import pandas as pd

import fltune

CONFIG = {
    "experiment": {
        "data": {"clients": 20, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "mlp", "hidden": [16]},
        "client": {"steps": 5, "batch_size": 16},
        "rounds": 10,
        "eval_every": 2,
    },
    "methods": {"FedAvg": {"space": {"client.lr": {"grid": [0.05, 0.1, 0.2]}}}},
    "search": {"trials": 3, "confirm_seeds": 2},
}


def trials_of(search: str, root: str = "mlruns") -> pd.DataFrame:
    """Return a row per ended run: method, kind, number, seed, values, scores, status."""
    path = Path(root) / "searches" / search / "trials.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    return pd.json_normalize([json.loads(line) for line in lines], max_level=1)


def curves_of(trials: pd.DataFrame) -> pd.DataFrame:
    """Return a row per evaluation: the run it belongs to, its round and its metrics."""
    runs = trials[["method", "kind", "number", "seed", "rows"]].explode("rows", ignore_index=True)
    return runs.drop(columns="rows").join(pd.json_normalize(runs["rows"]))


def winners_of(search: str, uri: str) -> pd.DataFrame:
    """Return a row per tuned method from MLflow: its winner's values and confirmed metrics."""
    mlflow.set_tracking_uri(uri)
    wanted = f"tags.`fltune.kind` = 'method' and tags.`fltune.search` = '{search}'"
    return mlflow.search_runs(search_all_experiments=True, filter_string=wanted)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        name, uri = sys.argv[1], f"sqlite:///{Path('mlruns/mlflow.db').resolve()}"
    else:
        summary = fltune.search(CONFIG)
        name, uri = summary.name, summary.tracking_uri

    trials = trials_of(name)
    searched = [column for column in trials if column.startswith("values.")]
    trials["score"] = trials["scores"].str[0]
    print(trials.loc[trials["kind"] == "trial", ["method", "number", "status", *searched, "score"]])

    curves = curves_of(trials)
    print(curves.groupby(["method", "round"])["val/accuracy"].agg(["mean", "max"]).tail(3))

    print(winners_of(name, uri)[["tags.fltune.method", "metrics.test/accuracy"]])
