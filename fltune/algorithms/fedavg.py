"""FedAvg: average the clients' local models.

Paper: McMahan, Moore, Ramage, Hampson, Agueera y Arcas (2017), Algorithm 1; with a server learning
rate: Yang, Fang, Liu (2021), Algorithm 1.

    send x to i in S;  y_i = local_solve(i, x, eta_l, K or E)
    D = sum_{i in S} p_i (x - y_i);   x <- x - eta_g D

The last step is the server optimizer's (``server``): FedAvg's own is ``fedavg`` with lr 1; with
``fedgm`` it is general server momentum. d floats down, d up, no client state. Unequal numbers of
local steps are used as they are: the objective then tilts toward clients with more steps.

CyCP (Cho et al. 2023) is FedAvg with cyclic participation. Its local procedures are GD: steps 1,
batch_size null; SGD: steps; SSGD, components fixed for the run: epochs 1, batches fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fltune.algorithms.base import Algorithm


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Average the clients' local models; the base of every server-side method."""

    any_server: ClassVar[bool] = True
    paper: ClassVar[str] = "McMahan et al. 2017, Algorithm 1; Yang, Fang, Liu 2021, Algorithm 1"
