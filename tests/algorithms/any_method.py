"""One run of any registered algorithm: how each is set up, and what a run leaves to look at.

Random regression rows, clients of uneven sizes that make uneven numbers of steps, and a server
optimizer with momentum wherever the method allows one.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from quadratics import Recorder, trainer

from fltune.algorithms import ALGORITHMS
from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, FederatedModule, LocalSGD, RoundCheckpoint
from fltune.federation.compression import QSGD, Compressor, TopK
from fltune.federation.delays import Delays, UniformDelays
from fltune.federation.losses import squared_error
from fltune.federation.schedules import InverseSqrt
from fltune.federation.work import WorkPerClient
from fltune.models.linear import Linear
from fltune.participation.trace import Trace
from fltune.server.fedgm import FedGM, FedSGD

CLIENTS, DIMENSION = 6, 5
SIZES = [4, 7, 2, 5, 1, 6]
STEPS = [1, 3, 2, 4, 2, 3]
COHORTS = [[0, 2, 5], [1, 4], [], [0, 1, 3], [2, 3, 4, 5], [0, 5]]


@dataclass(frozen=True)
class Case:
    """How a method is run.

    Attributes:
        settings: its hyperparameters, where the defaults do not suit a tiny problem.
        delays: ages of the models that clients start from.
        compressor: of what clients send.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    delays: Delays | None = None
    compressor: Compressor | None = None

    @property
    def random(self):
        """Whether compression draws random numbers, which have 24 bits and hang on client ids."""
        return self.compressor is not None and self.compressor.draws(DIMENSION) > 0


CASES = {
    "fedsum_cr": Case({"exact_rate": True}),
    "fedau": Case({"cutoff": 3}),
    "fedpaq": Case(compressor=QSGD(levels=8)),
    "fedcom": Case(compressor=QSGD(levels=8)),
    "fedcomgate": Case(compressor=QSGD(levels=8)),
    "fedcomgate_sparse": Case(compressor=TopK(k=3)),
    "fedcdr": Case({"eta": 0.5}),
    "feddr": Case({"eta": 0.5, "l1": 0.01}),
    "autonomous": Case(delays=UniformDelays(3)),
    "fedbuff": Case(delays=UniformDelays(3)),
}
"""What differs from the default, ``Case()``; later methods join without an entry."""

every = pytest.mark.parametrize("name", ALGORITHMS)


def case(name):
    return CASES.get(name, Case())


def rows(sizes=SIZES):
    """Deal noisy regression rows, ``sizes[i]`` to client i."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(sum(sizes), DIMENSION, generator=random, dtype=torch.float64)
    y = x @ torch.arange(1.0, DIMENSION + 1).double()
    y = y + 0.1 * torch.randn(len(y), generator=random, dtype=torch.float64)
    split = Split(x.unsqueeze(1), y.unsqueeze(1))  # one equation per sample
    return FederatedData.from_clients(split, split, split, torch.arange(len(x)).split(sizes), None)


class Shuffled(FederatedDataModule):
    """Hands the clients of a cohort over in descending order."""

    def cohorts(self, selected, arrivals=None):
        return super().cohorts({round: ids[::-1] for round, ids in selected.items()})


class Run:
    """One run of a method, built anew as a new process would."""

    def __init__(
        self,
        name,
        cohorts=COHORTS,
        *,
        rounds=None,
        data=None,
        steps=STEPS,
        sgd=None,
        seed=3,
        dtype=torch.float64,
        strategy="stacked",
        source=FederatedDataModule,
        path=None,
        keep=True,
        **changes,
    ):
        self.case = replace(case(name), **changes)
        self.algorithm = ALGORITHMS.load(name)(**self.case.settings)
        data = data or rows()
        pattern = Trace(cohorts) if isinstance(cohorts, list) else cohorts
        self.rounds = rounds or len(cohorts)
        sgd = sgd or LocalSGD(lr=0.03, steps=2, batch_size=2, schedule=InverseSqrt(20))
        work = WorkPerClient(steps) if sgd.unit == "steps" else None
        network = Linear(data.input_shape).to(dtype)
        self.module = FederatedModule(
            network,
            squared_error,
            self.algorithm,
            sgd,
            data.num_clients,
            self.rounds,
            strategy=strategy,
            compressor=self.case.compressor,
            seed=seed,
        )
        pattern = pattern.bind(data.num_clients, seed)
        self.source = source(data, pattern, sgd, seed, dtype, work, self.case.delays)
        self.server = FedSGD(0.8) if self.algorithm.plain_server else FedGM(0.8, 0.5, 0.7)
        self.recorded = Recorder()
        saved = [] if path is None else [RoundCheckpoint(path)]
        records = [self.recorded] if keep else []
        self.data, self.callbacks = data, [self.server, *records, *saved]

    def fit(self, until=None, resume_from=None):
        """Train, all rounds or fewer."""
        trainer(until or self.rounds, *self.callbacks).fit(
            self.module, self.source, ckpt_path=resume_from, weights_only=True
        )
        return self

    @property
    def x(self):
        """The model after every round, [T, d]."""
        return torch.stack(self.recorded.x)

    def loss(self, x):
        """The mean over clients of their mean loss at a model."""
        train, losses = self.data.train, []
        for i in range(self.data.num_clients):
            held = self.data.client(i)
            rest = train.x[held].to(x) @ x - train.y[held].to(x)  # [n, 1]
            losses.append(0.5 * rest.square().mean())
        return float(torch.stack(losses).mean())

    def improves(self):
        """Whether the last model is better than the first, x = 0."""
        end = self.recorded.x[-1]
        return self.loss(end) < self.loss(torch.zeros_like(end))

    @property
    def end(self):
        """All that is left when the run is over."""
        everyone = torch.arange(self.module.num_clients)
        return {
            "x": self.module.x,
            "optimizer": self.server.state,
            "server": self.module.server_state,
            "clients": self.module.client_state.gather(everyone),
            "bits": (self.module.bits_down, self.module.bits_up),
            "samples": self.module.client_samples,
        }


def same(a, b, tolerance=0.0):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
