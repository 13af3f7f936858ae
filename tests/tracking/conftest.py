"""One sqlite store for all tests here: making one costs MLflow about two seconds."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from fltune.tracking import Store, resolve_uri


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root: Path = tmp_path_factory.mktemp("a project") / "mlruns"  # spaces and no folder yet
    return Store.open(resolve_uri(None, root, environ={}), "tests", root / "artifacts")


class Reader:
    """Reads runs back with MLflow's own client."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def curve(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        history = self.store.client.get_metric_history(run_id, metric)
        return [(point.step, point.value) for point in history]

    def artifact(self, run_id: str, name: str) -> str:
        uri = self.store.client.get_run(run_id).info.artifact_uri
        return (Path(url2pathname(urlsplit(uri).path)) / name).read_text()

    def parent(self, run_id: str) -> str | None:
        return self.store.get(run_id).tags.get("mlflow.parentRunId")

    def children(self, run_id: str) -> set[str]:
        return {run.id for run in self.store.find({"mlflow.parentRunId": run_id})}


@pytest.fixture(scope="session")
def reader(store: Store) -> Reader:
    return Reader(store)
