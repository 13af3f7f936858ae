"""The record of a search in MLflow: the only package that knows it.

The driver of a search is the only writer; workers report to it and never open the store. MLflow
itself is imported when a store is opened, not before: it costs seconds.
"""

from fltune.tracking.store import FoundRun, Store, TrackedRun, TrackingError
from fltune.tracking.tree import MethodBranch, SearchTree
from fltune.tracking.uri import (
    ENVIRONMENT_NAME,
    UI_ENVIRONMENT,
    is_server,
    moved_to,
    redact,
    resolve_uri,
    sqlite_path,
    ui_command,
    ui_environment,
    ui_hint,
)
from fltune.tracking.views import View

__all__ = [
    "ENVIRONMENT_NAME",
    "UI_ENVIRONMENT",
    "FoundRun",
    "MethodBranch",
    "SearchTree",
    "Store",
    "TrackedRun",
    "TrackingError",
    "View",
    "is_server",
    "moved_to",
    "redact",
    "resolve_uri",
    "sqlite_path",
    "ui_command",
    "ui_environment",
    "ui_hint",
]
