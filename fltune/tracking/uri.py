"""Where the tracking store is: which URI counts, what may be shown of it, and how to look at it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from fltune.errors import ConfigError

ENVIRONMENT_NAME = "MLFLOW_TRACKING_URI"
# With MLflow's job execution on, its UI keeps a dozen idle processes beside the server.
UI_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
_SQLITE = "sqlite:///"
_SQLITE_SUFFIXES = {".db", ".sqlite", ".sqlite3"}
_SERVERS = ("http", "https", "postgresql", "mysql", "mssql")


def resolve_uri(explicit: str | None, root: Path, environ: Mapping[str, str] | None = None) -> str:
    """Return the absolute URI of the tracking store; nothing is created.

    Every trial of Ray runs in a working directory of its own, and MLflow's own default depends on
    what lies in the current one: so the driver settles the URI once, with an absolute path.

    Args:
        explicit: the user's ``tracking.uri``; it wins over everything else.
        root: the folder of the default store, ``<root>/mlflow.db``.
        environ: where ``MLFLOW_TRACKING_URI`` is looked up; the process environment by default.

    Raises:
        ConfigError: for a folder (MLflow's file store is no longer maintained and raises since
            3.13), an in-memory database or an unknown scheme.
    """
    from_environment = (os.environ if environ is None else environ).get(ENVIRONMENT_NAME)
    if explicit:
        return _absolute(explicit.strip(), "tracking.uri", root)
    if from_environment:
        return _absolute(from_environment.strip(), ENVIRONMENT_NAME, root)
    return f"{_SQLITE}{root.absolute() / 'mlflow.db'}"


def _absolute(uri: str, key: str, root: Path) -> str:
    scheme = uri.split(":", 1)[0].lower() if "://" in uri or uri.startswith("file:") else ""
    if scheme.split("+")[0] in _SERVERS:
        return uri
    if scheme.startswith("sqlite"):
        return _absolute_sqlite(uri, key)
    default = f"{_SQLITE}{root.absolute() / 'mlflow.db'}"
    if scheme == "" and Path(uri).suffix in _SQLITE_SUFFIXES and not Path(uri).is_dir():
        return f"{_SQLITE}{Path(uri).expanduser().absolute()}"
    if scheme in ("", "file"):
        raise ConfigError(
            f"{key}: found the folder {uri!r}, but MLflow no longer keeps runs in plain folders; "
            f"use a sqlite file, e.g. {default}"
        )
    allowed = "sqlite:///FILE.db, " + ", ".join(f"{name}://..." for name in _SERVERS)
    raise ConfigError(f"{key}: found {redact(uri)!r}, allowed {allowed}")


def _absolute_sqlite(uri: str, key: str) -> str:
    prefix, _, rest = uri.partition(":///")
    path, question_mark, query = rest.partition("?")
    if not path or path == ":memory:":
        raise ConfigError(
            f"{key}: found {uri!r}, which names no file, so the runs would be lost with the "
            "process; use sqlite:///FILE.db"
        )
    return f"{prefix}:///{Path(path).expanduser().absolute()}{question_mark}{query}"


def sqlite_path(uri: str) -> Path | None:
    """Return the database file of a sqlite URI, or ``None`` for any other store."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def moved_to(uri: str, folder: Path) -> str:
    """Return a store's URI with its file, if it is one, in another folder."""
    path = sqlite_path(uri)
    if path is None:
        return uri
    file, question_mark, query = uri.partition("?")
    prefix = file.partition(":///")[0]
    return f"{prefix}:///{folder.absolute() / path.name}{question_mark}{query}"


def is_server(uri: str) -> bool:
    """Return whether a tracking server (not a database) answers at ``uri``."""
    return urlsplit(uri).scheme in ("http", "https")


def redact(uri: str) -> str:
    """Return ``uri`` without its password and query, fit for messages, logs and reports."""
    parts = urlsplit(uri)
    if not parts.netloc:
        return uri
    user, at, host = parts.netloc.rpartition("@")
    if at:
        user = user.partition(":")[0] + ":***"
    return urlunsplit((parts.scheme, f"{user}{at}{host}", parts.path, "", ""))


def ui_command(uri: str, port: int = 5000, artifact_root: Path | None = None) -> list[str]:
    """Return the argv that shows this store in the MLflow UI, on this machine only.

    A tracking server serves its own UI, so for one the argv opens the browser there. Run it
    with :func:`ui_environment` added to the environment.

    Args:
        uri: a resolved store URI.
        port: the local port of the UI.
        artifact_root: where the server may keep what is uploaded through it; without it MLflow
            makes a folder in the current directory.
    """
    if is_server(uri):
        return [sys.executable, "-m", "webbrowser", uri]
    # One server process: the default of four helps nobody on a laptop and contends for sqlite.
    argv = [sys.executable, "-m", "mlflow", "ui"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    if artifact_root is not None:
        argv += ["--artifacts-destination", str(artifact_root.absolute())]
    return argv


def ui_environment(uri: str) -> dict[str, str]:
    """Return what :func:`ui_command` needs in its environment.

    The store is named there: everyone on the machine can read the words of a command, and so a
    database's password.
    """
    return {**UI_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": uri}


def ui_hint(uri: str, root: Path) -> str:
    """Return what a user types (or opens) to see the runs of ``uri``."""
    if is_server(uri):
        return redact(uri)
    # with the variable set, the command alone would show what that names
    if uri == resolve_uri(None, root, environ={}) and not os.environ.get(ENVIRONMENT_NAME):
        return "python -m fltune ui"
    return f"{ENVIRONMENT_NAME}={shlex.quote(redact(uri))} python -m fltune ui"
