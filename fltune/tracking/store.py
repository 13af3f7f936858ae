"""The tracking store of a search: experiments and runs in MLflow, written by the driver alone.

sqlite has one writer and MLflow no bulk client, so everything is sent in few, large batches: 50
single metrics cost 0.4 s, one batch of 1,000 some hundredths.
"""

from __future__ import annotations

import getpass
import posixpath
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fltune.tracking.client import TrackingError, open_experiment, tracking_calls
from fltune.tracking.series import split_curves, thin

PARENT = "mlflow.parentRunId"
DIVERGED = "fltune.diverged"
_NOTE = "mlflow.note.content"

# MLflow's limits of characters; batches that are too long its client parts itself.
_PARAM_CHARACTERS = 6000
_TAG_CHARACTERS = 8000


@dataclass(frozen=True)
class FoundRun:
    """A run that is in the store already.

    Attributes:
        id: MLflow's run id.
        status: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``.
        tags: all its tags, MLflow's own among them.
        params: its parameters, as text.
    """

    id: str
    status: str
    tags: dict[str, str]
    params: dict[str, str]


class Store:
    """One experiment of one tracking store; make it with :meth:`open`.

    Attributes:
        uri: the absolute URI.
        experiment: the experiment's name.
        experiment_id: MLflow's id of it.
    """

    def __init__(self, client: Any, uri: str, experiment: str, experiment_id: str) -> None:
        self.client = client
        self.uri = uri
        self.experiment = experiment
        self.experiment_id = experiment_id

    @classmethod
    def open(cls, uri: str, experiment: str, artifact_root: Path) -> Store:
        """Open a store, creating database and experiment; call it before any worker starts.

        Args:
            uri: what :func:`~fltune.tracking.uri.resolve_uri` returned.
            experiment: the name of the experiment.
            artifact_root: folder of a new experiment's artifacts; a tracking server chooses its
                own.

        Raises:
            ConfigError: within seconds, for a store that cannot be written or reached.
        """
        client, experiment_id = open_experiment(uri, experiment, artifact_root)
        return cls(client, uri, experiment, experiment_id)

    def start_run(
        self,
        name: str,
        parent: TrackedRun | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> TrackedRun:
        """Start a run, below ``parent`` if there is one; params are written once, here."""
        base = {"mlflow.user": _user(), "mlflow.source.name": "fltune"}
        base |= {"mlflow.source.type": "LOCAL"} | ({PARENT: parent.id} if parent else {})
        # With all its tags from the first moment: a kill leaves no run that is not found again.
        base |= {k: _shorten(str(v), _TAG_CHARACTERS) for k, v in (tags or {}).items()}
        with tracking_calls(self.uri):
            made = self.client.create_run(self.experiment_id, tags=base, run_name=name)
        run = TrackedRun(self, made.info)
        try:
            run.log_params(params or {})
        except BaseException:
            run.close_quietly()
            raise
        return run

    def reopen(self, run_id: str) -> TrackedRun:
        """Set a run of an earlier process to running again, to go on with it."""
        with tracking_calls(self.uri):
            self.client.update_run(run_id, status="RUNNING")
            return TrackedRun(self, self.client.get_run(run_id).info)

    def get(self, run_id: str) -> FoundRun:
        """Return what the store holds of a run."""
        with tracking_calls(self.uri):
            return _found(self.client.get_run(run_id))

    def find(self, tags: Mapping[str, str]) -> list[FoundRun]:
        """Return the runs that carry all of ``tags``, the newest first."""
        # MLflow's filter has no escape for quotes: those values are compared here instead.
        plain = {key: value for key, value in tags.items() if "'" not in value}
        condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in plain.items())
        with tracking_calls(self.uri):
            runs = list(self._search(condition))
        return [run for run in runs if all(run.tags.get(key) == tags[key] for key in tags)]

    def _search(self, condition: str) -> Iterator[FoundRun]:
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                filter_string=condition,
                max_results=1000,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            yield from map(_found, page)
            token = page.token
            if not token:
                return

    def move(self, run_id: str, parent: TrackedRun) -> None:
        """Put a run below another parent."""
        with tracking_calls(self.uri):
            self.client.set_tag(run_id, PARENT, parent.id)

    def tag(self, run_id: str, tags: Mapping[str, Any]) -> None:
        """Write tags of a run, over those of the same names."""
        from mlflow.entities import RunTag

        with tracking_calls(self.uri):
            self.client.log_batch(run_id, tags=_entries(RunTag, tags, _TAG_CHARACTERS))

    def untag(self, run_id: str, keys: Iterable[str]) -> None:
        """Take tags off a run."""
        with tracking_calls(self.uri):
            for key in keys:
                self.client.delete_tag(run_id, key)

    def tag_experiment(self, tags: Mapping[str, str]) -> None:
        """Write tags of the experiment, over those of the same names."""
        with tracking_calls(self.uri):
            for key, value in tags.items():
                self.client.set_experiment_tag(self.experiment_id, key, value)

    def delete(self, run_id: str) -> None:
        """Put a run in MLflow's bin."""
        with tracking_calls(self.uri):
            self.client.delete_run(run_id)


class TrackedRun:
    """A run that is being written. As a context manager it is finished, or killed on an error.

    Attributes:
        id: MLflow's run id.
        name: what the UI shows.
        open: whether it still awaits :meth:`finish`.
    """

    def __init__(self, store: Store, info: Any) -> None:
        self.store = store
        self.id: str = info.run_id
        self.name: str = info.run_name
        self.open = True
        self._artifact_uri = info.artifact_uri

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Write parameters under their dotted names; MLflow lets none be changed later."""
        from mlflow.entities import Param

        self._batch(params=_entries(Param, params, _PARAM_CHARACTERS))

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Write tags, over those of the same names."""
        self.store.tag(self.id, tags)

    def log_curve(
        self,
        rows: Iterable[Mapping[str, Any]],
        max_points: int = 500,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Write whole series at once; the step of a value is its round.

        Args:
            rows: ``{"round": 10, "val/accuracy": 0.9, ...}``, in the order of the rounds. An
                infinite value is left out and tags the run as ``fltune.diverged``.
            max_points: longer series are thinned evenly to so many points: the UI crawls with
                long ones.
            params: to be written in the same call, which takes about as long without them.
        """
        from mlflow.entities import Metric, Param

        curves, infinite = split_curves(rows)
        now = int(time.time() * 1000)
        entries = [
            Metric(name, value, now, step)
            for name, points in curves.items()
            for step, value in thin(points, max_points)
        ]
        self._batch(metrics=entries, params=_entries(Param, params or {}, _PARAM_CHARACTERS))
        if infinite:
            self.set_tags({DIVERGED: "true"})

    def set_note(self, markdown: str) -> None:
        """Set the description that the UI shows on top of the run."""
        self.set_tags({_NOTE: markdown})

    def log_text(self, text: str, artifact_file: str) -> None:
        """Keep ``text`` as the artifact ``artifact_file``, over an earlier one."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        # the client would read the whole run again to learn where its artifacts are
        folder, name = posixpath.split(artifact_file)
        uri = self.store.uri
        with tracking_calls(uri), tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary, name)
            path.write_text(text, encoding="utf-8")
            repository = get_artifact_repository(self._artifact_uri, tracking_uri=uri)
            repository.log_artifact(str(path), folder or None)

    def log_dict(self, content: Mapping[str, Any], artifact_file: str) -> None:
        """Keep ``content`` as JSON or YAML, whichever the ending of ``artifact_file`` says."""
        with tracking_calls(self.store.uri):
            self.store.client.log_dict(self.id, dict(content), artifact_file)

    def finish(self, status: str = "FINISHED") -> None:
        """Close the run as ``FINISHED``, ``FAILED`` or ``KILLED``; a second call does nothing."""
        if self.open:
            with tracking_calls(self.store.uri):
                self.store.client.set_terminated(self.id, status)
            self.open = False

    def close_quietly(self, status: str = "KILLED") -> None:
        """Close the run while an error is on its way, which must stay the one that is seen."""
        try:
            self.finish(status)
        except TrackingError:
            self.open = False

    def __enter__(self) -> TrackedRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close_quietly()

    def _batch(self, **entries: list[Any]) -> None:
        if not any(entries.values()):
            return
        with tracking_calls(self.store.uri):
            self.store.client.log_batch(self.id, **entries)


def _found(run: Any) -> FoundRun:
    return FoundRun(run.info.run_id, run.info.status, dict(run.data.tags), dict(run.data.params))


def _entries(kind: Callable[[str, str], Any], values: Mapping[str, Any], limit: int) -> list[Any]:
    return [kind(key, _shorten(str(value), limit)) for key, value in values.items()]


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "unknown"
