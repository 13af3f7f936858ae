"""Federated problems with exact gradients, run by the product's own round loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import lightning as L
import torch

from fltune.algorithms.fedavg import FedAvg
from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, FederatedModule, LocalSGD
from fltune.federation.losses import squared_error
from fltune.models.linear import Linear
from fltune.participation.full import Full
from fltune.participation.trace import Trace
from fltune.server.fedgm import FedSGD

A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]], [[3.0, -0.5], [-0.5, 1.0]]]
B = [[1.0, 0.1], [-1.0, 2.0], [0.5, -1.0]]
"""Three clients in the plane, for tests in which any will do."""


def quadratics(A, b, counts=None) -> FederatedData:
    """Clients f_i(w) = 0.5 (w - b_i)^T A_i (w - b_i).

    With A = M^T M the sample (M, M b) has the loss 0.5 |M w - M b|^2, which is f. A client that
    holds it ``counts[i]`` times has the same f and more weight.
    """
    A, b = torch.tensor(A, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    x = torch.linalg.cholesky(A).mT
    y = torch.einsum("nkd,nd->nk", x, b)
    return federated(x, y, counts or [1] * len(b))


def slopes(gradients) -> FederatedData:
    """Clients whose loss :func:`slope` is g_i . w: the gradient is g_i wherever the model is."""
    x = torch.tensor(gradients, dtype=torch.float64).unsqueeze(1)
    return federated(x, torch.zeros(len(x), 1, dtype=torch.float64), [1] * len(x))


def slope(output, target):
    return output.flatten(1).sum(1)


def federated(x, y, counts) -> FederatedData:
    """Give client i the i-th sample ``counts[i]`` times."""
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    clients = [(owner == i).nonzero().squeeze(1) for i in range(len(counts))]
    train, held_out = Split(x[owner], y[owner]), Split(x[:1], y[:1])
    return FederatedData.from_clients(train, held_out, held_out, clients, None)


@dataclass
class Recorder(L.Callback):
    """Keeps what there is after every round.

    Attributes:
        x: the model.
        d: the pseudo-gradient.
        state: the server optimizer's state.
        server: the algorithm's server state.
        clients: the algorithm's state of all clients, rows by client id.
        bits: communicated so far, (down, up).
        totals: what was spent and lost so far, by name.
    """

    x: list = field(default_factory=list)
    d: list = field(default_factory=list)
    state: list = field(default_factory=list)
    server: list = field(default_factory=list)
    clients: list = field(default_factory=list)
    bits: list = field(default_factory=list)
    totals: list = field(default_factory=list)

    def on_train_epoch_end(self, trainer, pl_module):
        self.x.append(pl_module.x)
        self.d.append(pl_module.pseudo_gradient)
        self.state.append({k: v.clone() for k, v in (pl_module.server.state or {}).items()})
        self.server.append({k: v.clone() for k, v in pl_module.server_state.items()})
        self.clients.append(pl_module.client_state.gather(torch.arange(pl_module.num_clients)))
        self.bits.append((pl_module.bits_down, pl_module.bits_up))
        self.totals.append(pl_module.totals())


def trainer(rounds, *callbacks, **options):
    """A quiet Lightning trainer; no validation unless ``limit_val_batches`` says so."""
    return L.Trainer(
        max_epochs=rounds,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **{"limit_val_batches": 0, **options},
    )


def fit(
    data,
    server=None,
    *,
    x0=None,
    rounds=None,
    cohorts=None,
    algorithm=None,
    sgd=None,
    work=None,
    losses=squared_error,
    strategy="loop",
    compressor=None,
    seed=0,
    delays=None,
    repeats=False,
    participation=None,
    clock=None,
    **options,
):
    """Train a :class:`Linear` by rounds; return what was recorded, and the module."""
    network = Linear(data.input_shape).double()
    if x0 is not None:
        network.w.data.copy_(torch.tensor(x0, dtype=torch.float64))
    rounds = rounds or len(cohorts)
    if participation is None:
        participation = Full() if cohorts is None else Trace(cohorts, repeats)
    sgd = sgd or LocalSGD(lr=0.1, steps=2, batch_size=None)
    module = FederatedModule(
        network,
        losses,
        algorithm or FedAvg(),
        sgd,
        data.num_clients,
        rounds,
        strategy=strategy,
        compressor=compressor,
        seed=seed,
        clock=clock,
    )
    source = FederatedDataModule(
        data, participation.bind(data.num_clients, 0), sgd, seed, torch.float64, work, delays
    )
    recorder = Recorder()
    trainer(rounds, server or FedSGD(), recorder, **options).fit(module, source)
    return recorder, module
