"""Calls to MLflow: silent, bounded in time, and with one kind of error for a store that fails."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fltune.errors import ConfigError, FltuneError
from fltune.tracking.sqlite_file import log_ahead, prove_writable
from fltune.tracking.uri import is_server, redact, sqlite_path

# MLflow's defaults (120 s, 7 retries) would hold a search for many minutes when its server dies.
_BOUNDED = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "4", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
# Nothing is printed between the lines of the live table, and a search does not report usage to
# anyone unless the user turned that on.
_SILENT = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
_TALKATIVE = ("mlflow", "alembic", "urllib3.connectionpool")
_ARRANGED: ContextVar[bool] = ContextVar("arranged", default=False)


class TrackingError(FltuneError):
    """The tracking store stopped taking what it was sent; the results must be kept elsewhere."""


@contextmanager
def tracking_calls(uri: str) -> Iterator[None]:
    """Run MLflow calls silently; a store that fails raises :class:`TrackingError`.

    What MLflow calls an invalid value is a bug of the caller, not of the store, and passes as is.
    Around many calls it saves each of them a millisecond.
    """
    with _silent_and_bounded():
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            if getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE":
                raise
            raise TrackingError(
                f"the tracking store {redact(uri)} failed: {_reason(error, uri)}"
            ) from error


@contextmanager
def _silent_and_bounded() -> Iterator[None]:
    if _ARRANGED.get():
        yield
        return
    arranged = _ARRANGED.set(True)
    try:
        with _environment(_SILENT | _BOUNDED, override=False), _muted_loggers():
            yield
    finally:
        _ARRANGED.reset(arranged)


@contextmanager
def _environment(values: Mapping[str, str], override: bool) -> Iterator[None]:
    before = dict(os.environ)
    added = {name: value for name, value in values.items() if override or name not in before}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def _muted_loggers() -> Iterator[None]:
    import mlflow  # noqa: F401  (it sets the level of its logger when first imported)

    levels = {name: logging.getLogger(name).level for name in _TALKATIVE}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what fails comes as an exception too
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _reason(error: BaseException, uri: str, limit: int = 300) -> str:
    """Return one line about a failure, without the password that MLflow's messages repeat."""
    import requests

    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    if any(isinstance(link, (requests.ConnectionError, requests.Timeout)) for link in chain):
        last = chain[-1]
        return f"no server answers ({getattr(last, 'strerror', None) or last})"
    # SQLAlchemy wraps "disk is full" in the statement and its values.
    plain = next((link for link in chain if isinstance(link, sqlite3.Error)), error)
    text = " ".join(str(plain).split()) or type(plain).__name__
    credentials = urlsplit(uri).netloc.rpartition("@")[0]
    if credentials:
        text = text.replace(credentials, "***")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def open_experiment(uri: str, name: str, artifact_root: Path) -> tuple[Any, str]:
    """Return a client and the id of the experiment, both proven to work.

    Args:
        uri: a resolved store URI.
        name: the experiment, made when it is not there.
        artifact_root: where a store without a server keeps the artifacts of a new experiment.

    Raises:
        ConfigError: the store cannot be written or reached, or holds the experiment as deleted.
    """
    _prove_writable(uri, artifact_root)
    with _environment(_SILENT, override=False), _environment(_IMPATIENT, override=True):
        try:
            with _muted_loggers():
                from mlflow.tracking import MlflowClient

                client = MlflowClient(tracking_uri=uri)
                return client, _experiment_id(client, uri, name, artifact_root)
        except ConfigError:
            raise
        # SQLAlchemy, its drivers and requests each have their own errors for "no such store".
        except Exception as error:
            hint = "; start it, or record in a file of this machine: --set tracking.uri=FILE.db"
            raise ConfigError(
                f"tracking.uri: {redact(uri)} cannot be opened: {_reason(error, uri)}"
                f"{hint if is_server(uri) else ''}"
            ) from error


def _experiment_id(client: Any, uri: str, name: str, artifact_root: Path) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        # A relative location would be read from the directory of whoever opens the store later.
        location = None if is_server(uri) else artifact_root.absolute().as_uri()
        # Without the kind the UI guesses one, and may open on its pages for language models.
        kind = {"mlflow.experimentKind": "custom_model_development"}
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=kind))
        except MlflowException:  # another search may have made it in between
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise ConfigError(
            f"tracking.experiment: {name!r} was deleted from {redact(uri)}; choose another name or "
            f"run `mlflow experiments restore --experiment-id {found.experiment_id}`"
        )
    return str(found.experiment_id)


def _prove_writable(uri: str, artifact_root: Path) -> None:
    """Fail in seconds where MLflow would retry for minutes."""
    if is_server(uri):
        return
    try:
        artifact_root.mkdir(parents=True, exist_ok=True)
        path = sqlite_path(uri)
        if path is not None:
            prove_writable(path)
            log_ahead(path)
        else:
            _prove_listening(uri)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"tracking.uri: {redact(uri)} cannot be written: {_reason(error, uri)}"
        ) from error


def _prove_listening(uri: str) -> None:
    parts = urlsplit(uri)
    default = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}[parts.scheme.split("+")[0]]
    if parts.hostname:
        socket.create_connection((parts.hostname, parts.port or default), timeout=5).close()
