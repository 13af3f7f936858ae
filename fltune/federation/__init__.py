"""The round loop: a Lightning module whose epoch is one communication round.

Needs torch and lightning only.
"""

from fltune.federation.batches import BatchPlan
from fltune.federation.checkpoint import RoundCheckpoint
from fltune.federation.datamodule import Cohort, FederatedDataModule
from fltune.federation.history import History
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, LocalSolver
from fltune.federation.module import FederatedModule
from fltune.federation.stopping import DivergenceGuard, StopReason

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
