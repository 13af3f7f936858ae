"""A round costs what its cohort costs: the same calls for 100 clients and for 10,000."""

import sys

import lightning as L
import pytest
import torch

from fltune.algorithms import ALGORITHMS
from fltune.data.federated import FederatedData, Split
from fltune.federation import (
    DivergenceGuard,
    FederatedDataModule,
    FederatedModule,
    History,
    LocalSGD,
)
from fltune.federation.losses import squared_error
from fltune.models.linear import Linear
from fltune.participation.asynchronous import Asynchronous
from fltune.participation.uniform import Uniform
from fltune.participation.with_replacement import WithReplacement
from fltune.server.fedgm import FedSGD

CASES = {
    "fedavg": lambda n: Uniform(5),
    "scaffold": lambda n: Uniform(5),
    "mifa": lambda n: Uniform(5),
    "fedau": lambda n: Uniform(5),
    "fedawe": lambda n: Uniform(5),
    "feddc": lambda n: WithReplacement(5, [1 / n] * n),
    "fedbuff": lambda n: Asynchronous(concurrency=6, buffer=5, speed_sigma=0.0),
}
ROUNDS = 6


class Calls(L.Callback):
    """Counts the calls of Python and C functions, round by round."""

    def __init__(self):
        self.rounds = []

    def on_train_epoch_start(self, trainer, pl_module):
        self.count = 0
        sys.setprofile(self.see)

    def see(self, frame, event, argument):
        self.count += event in ("call", "c_call")

    def on_train_epoch_end(self, trainer, pl_module):
        sys.setprofile(None)
        self.rounds.append(self.count)


def calls(name, clients):
    x = torch.arange(clients, dtype=torch.float32).view(-1, 1, 1) / clients
    split = Split(x, torch.zeros(clients, 1))
    data = FederatedData.from_clients(
        split, split, split, list(torch.arange(clients).split(1)), None
    )
    sgd = LocalSGD(lr=0.01, steps=1)
    method = ALGORITHMS.load(name)()
    module = FederatedModule(Linear((1, 1)), squared_error, method, sgd, clients, ROUNDS)
    source = FederatedDataModule(data, CASES[name](clients).bind(clients, 0), sgd, 0)
    counted = Calls()
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = L.Trainer(
        max_epochs=ROUNDS,
        accelerator="cpu",
        callbacks=[FedSGD(), DivergenceGuard(), History(), counted],
        limit_val_batches=0,
        **dict.fromkeys(off, False),
    )
    trainer.fit(module, source)
    return sum(counted.rounds[1:])  # one of them may have planned the others


@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_round_do_not_grow_with_the_population(name):
    few, many = calls(name, 100), calls(name, 10_000)
    assert few > 100
    assert many < 1.2 * few  # cohorts differ: a client seen before, a block of rows more


def test_probabilities_are_summed_up_once():
    pattern = WithReplacement(3, [0.5, 0.3, 0.2]).bind(3, 0)
    expected = pattern.draw(0, torch.Generator().manual_seed(0))
    pattern.probabilities = ["not", "read", "again"]
    assert torch.equal(pattern.draw(0, torch.Generator().manual_seed(0)), expected)
