"""fltune: tune federated-learning algorithms and compare them fairly.

    import fltune

    experiment = fltune.load("search_spaces/digits_fedgm.yaml", method="FedGM")
    result = fltune.run(experiment)
    outcome = fltune.search("search_spaces/digits_fedgm.yaml", name="first")
    report = fltune.compare("first")

Public names load on use, so that ``import fltune`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Experiment": "fltune.experiment",
    "RunResult": "fltune.runner",
    "run": "fltune.runner",
    "build": "fltune.runner",
    "load": "fltune.search.config",
    "search": "fltune.search.search",
    "resume": "fltune.search.search",
    "extend": "fltune.search.search",
    "compare": "fltune.search.search",
    "explain": "fltune.search.search",
    "sync": "fltune.search.search",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fltune' has no attribute {name!r}")
