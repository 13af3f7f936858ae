"""The round loop: a Lightning module whose epoch is one communication round.

Needs torch and lightning only. Names load on use: the workers of a run
(:mod:`fltune.federation.parallel_worker`) do without lightning, and start in half the time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fltune.federation.batches import BatchPlan
    from fltune.federation.checkpoint import RoundCheckpoint
    from fltune.federation.cohort import Cohort
    from fltune.federation.datamodule import FederatedDataModule
    from fltune.federation.history import History
    from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, LocalSolver
    from fltune.federation.module import FederatedModule
    from fltune.federation.stopping import DivergenceGuard, StopReason

_PUBLIC = {
    "BatchPlan": "batches",
    "Cohort": "cohort",
    "DivergenceGuard": "stopping",
    "FederatedDataModule": "datamodule",
    "FederatedModule": "module",
    "History": "history",
    "LocalProblem": "local",
    "LocalResult": "local",
    "LocalSGD": "local",
    "LocalSolver": "local",
    "RoundCheckpoint": "checkpoint",
    "StopReason": "stopping",
}

__all__ = [
    "BatchPlan",
    "Cohort",
    "DivergenceGuard",
    "FederatedDataModule",
    "FederatedModule",
    "History",
    "LocalProblem",
    "LocalResult",
    "LocalSGD",
    "LocalSolver",
    "RoundCheckpoint",
    "StopReason",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
