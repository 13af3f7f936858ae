import math
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from quadratics import fit, quadratics, trainer
from torch import nn

from fltune.algorithms.base import Algorithm
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.mifa import MIFA
from fltune.data.federated import FederatedData, Split
from fltune.federation import (
    DivergenceGuard,
    FederatedDataModule,
    FederatedModule,
    History,
    LocalSGD,
    StopReason,
)
from fltune.federation.losses import cross_entropy, squared_error
from fltune.models.linear import Linear
from fltune.participation.full import Full
from fltune.participation.trace import Trace
from fltune.server.adaptive import FedAdam
from fltune.server.fedgm import FedGM, FedSGD
from fltune.server.multistage import MultistageFedGM

A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]]]
B = [[1.0, 0.1], [-1.0, 2.0]]


@pytest.mark.parametrize(
    ("loss", "largest", "reason"),
    [
        (5.0, 1.0, None),  # the bound itself is allowed
        (5.01, 1.0, StopReason.DIVERGED),
        (math.nan, 1.0, StopReason.DIVERGED),
        (1.0, math.inf, StopReason.DIVERGED),
        (1.0, math.nan, StopReason.DIVERGED),
    ],
)
def test_a_run_diverges_above_its_bound(loss, largest, reason):
    guard, run = DivergenceGuard(5.0), SimpleNamespace(should_stop=False)
    flat = SimpleNamespace(largest=lambda: torch.tensor(largest))
    metrics = {"train/loss": torch.tensor(loss)}
    module = SimpleNamespace(round_metrics=metrics, flat=flat, device=torch.device("cpu"))
    guard.on_train_batch_end(run, module, None, SimpleNamespace(plan=(), round=3), 0)
    assert (guard.reason, run.should_stop) == (reason, reason is not None)


def test_an_algorithm_is_told_the_server_rate_of_its_own_round():
    told = []

    class Listening(FedAvg):
        def aggregate(self, x, server, message, info):
            told.append(info.server_lr)
            return super().aggregate(x, server, message, info)

    server = MultistageFedGM(lrs=[2.0, 1.0, 0.5], stage_ends=[1, 3, 4])
    fit(quadratics(A, B), server, algorithm=Listening(), rounds=4)
    assert told == [2.0, 1.0, 1.0, 0.5]


@pytest.mark.parametrize("server", [FedSGD, FedGM, FedAdam])
def test_an_empty_round_moves_nothing(server):
    recorded, module = fit(quadratics(A, B), server(), x0=[3.0, 3.0], cohorts=[[0], [], [], [1]])
    assert recorded.d[1] is None
    for t in (1, 2):
        assert torch.equal(recorded.x[t], recorded.x[0])
        assert str(recorded.state[t]) == str(recorded.state[0])
        assert recorded.bits[t] == recorded.bits[0]
    assert not torch.equal(recorded.x[3], recorded.x[2])
    assert module.trainer.datamodule.participation.round == 4
    without, _ = fit(quadratics(A, B), server(), x0=[3.0, 3.0], cohorts=[[0], [1]])
    assert torch.equal(recorded.x[3], without.x[1])


def test_a_run_may_start_with_an_empty_round():
    recorded, _ = fit(quadratics(A, B), FedAdam(), x0=[3.0, 3.0], cohorts=[[], [0, 1]])
    assert recorded.x[0].tolist() == [3.0, 3.0]
    assert recorded.state[0] == {}


class Recursion(Algorithm):
    """Moves by 1 in every round, also where nobody takes part."""

    acts_on_empty_rounds = True

    def aggregate(self, x, server, message, info):
        assert (message == {}) == (len(info.clients) == len(info.weights) == 0)
        return torch.ones_like(x), server


def test_an_algorithm_may_act_on_empty_rounds():
    recorded, _ = fit(quadratics(A, B), x0=[0.0, 0.0], cohorts=[[], [0], []], algorithm=Recursion())
    assert [x.tolist() for x in recorded.x] == [[-1, -1], [-2, -2], [-3, -3]]


class Order(Algorithm):
    """Notes what each stage of a round gets to see."""

    seen = []  # noqa: RUF012 - one list for the test

    def client_state(self, x):
        return {"n": torch.zeros((), dtype=torch.int64)}

    def uplink(self, x, server, client, result, info):
        self.seen.append(("uplink", x.tolist()))
        return {"update": x - result.end}, {"n": client["n"] + 1}

    def downlink(self, x, server, client, message, d, info):
        self.seen.append(("downlink", x.tolist()))
        assert torch.equal(d, message["update"].mean(0))
        return {"n": client["n"] * 10}


def test_downlink_sees_the_moved_model_and_keeps_client_state():
    Order.seen.clear()
    recorded, module = fit(
        quadratics(A, B), x0=[3.0, 3.0], cohorts=[[0, 1], [1]], algorithm=Order()
    )
    one, two = recorded.x[0].tolist(), recorded.x[1].tolist()
    assert Order.seen == [
        ("uplink", [3.0, 3.0]),
        ("downlink", one),
        ("uplink", one),
        ("downlink", two),
    ]
    assert module.client_state.gather(torch.arange(2))["n"].tolist() == [10, 110]


def history_of(cohorts, every=1, rounds=None, **options):
    history = History(every)
    callbacks = [FedSGD(), history]
    data = quadratics(A, B)
    module = FederatedModule(
        Linear((2, 2)).double(), squared_error, FedAvg(), LocalSGD(steps=1), 2, len(cohorts)
    )
    source = FederatedDataModule(data, Trace(cohorts).bind(2, 0), LocalSGD(steps=1), 0)
    source.dtype = torch.float64
    callbacks += options.pop("callbacks", [])
    trainer(rounds or len(cohorts), *callbacks, limit_val_batches=1.0).fit(module, source)
    return history, module, data


def test_validation_sees_the_moved_model():
    class Models(L.Callback):
        validated, moved = [], []

        def on_validation_start(self, trainer, pl_module):
            self.validated.append(pl_module.x.tolist())

        def on_train_epoch_end(self, trainer, pl_module):
            self.moved.append(pl_module.x.tolist())

    models = Models()
    history, module, data = history_of([[0], [1], [0, 1]], callbacks=[models])
    assert models.validated == models.moved
    assert len({tuple(x) for x in models.moved}) == 3
    output = torch.einsum("nkd,d->nk", data.val.x, module.x)
    loss = squared_error(output, data.val.y).mean()
    assert history.rows[-1]["val/loss"] == pytest.approx(float(loss), rel=1e-6)


def test_rows_come_every_few_rounds_and_at_the_last():
    rows = history_of([[0, 1], [0], [], [1], [0, 1]], every=2)[0].rows
    assert [row["round"] for row in rows] == [2, 4, 5]
    assert all("val/loss" in row for row in rows)
    assert "val/accuracy" not in rows[0]  # a regression
    visits = [3, 4, 6]
    assert [row["comm/up_bits"] for row in rows] == [32 * 2 * n for n in visits]
    assert [row["comm/down_bits"] for row in rows] == [32 * 2 * n for n in visits]
    assert [row["client_samples"] for row in rows] == visits


def test_train_loss_is_that_of_the_round_and_an_empty_one_has_none():
    data = quadratics(A, B)
    expected = 0.5 * data.train.y.square().sum(1).mean()  # both clients, at w = 0
    rows = history_of([[0, 1], []])[0].rows
    assert rows[0]["train/loss"] == pytest.approx(float(expected), rel=1e-12)
    assert "train/loss" not in rows[1]


@pytest.mark.parametrize("algorithm", [FedAvg(), FedAvg(weighting="samples")], ids=str)
def test_weights_of_the_aggregate(algorithm):
    data = quadratics(A, B, counts=[1, 3])
    recorded, _ = fit(data, x0=[3.0, 3.0], cohorts=[[0, 1]], algorithm=algorithm)
    alone = [fit(data, x0=[3.0, 3.0], cohorts=[[i]])[0].x[0] for i in (0, 1)]
    share = 0.5 if algorithm.weighting == "uniform" else 0.25
    torch.testing.assert_close(recorded.x[0], share * alone[0] + (1 - share) * alone[1])


@pytest.mark.parametrize(("weighting", "share"), [("uniform", 0.5), ("samples", 0.25)])
def test_the_training_loss_is_weighted_as_the_aggregate_is(weighting, share):
    def loss(*cohort):
        data, sgd = quadratics(A, B, counts=[1, 3]), LocalSGD(0.1, steps=1, batch_size=None)
        algorithm = FedAvg(weighting=weighting)
        _, module = fit(data, x0=[3.0, 3.0], cohorts=[list(cohort)], algorithm=algorithm, sgd=sgd)
        return float(module.round_metrics["train/loss"])

    assert loss(0) != pytest.approx(loss(1))
    assert loss(0, 1) == pytest.approx(share * loss(0) + (1 - share) * loss(1))


def test_the_server_draws_anew_in_every_round_of_every_seed():
    def keys(seed):
        found = []

        class Notes(FedAvg):
            def aggregate(self, x, server, message, info):
                found.append(int(info.key))
                return super().aggregate(x, server, message, info)

        fit(quadratics(A, B), cohorts=[[0, 1]] * 3, algorithm=Notes(), seed=seed)
        return found

    assert len({*keys(0), *keys(1)}) == 6
    assert keys(0) == keys(0)


class Sends(Algorithm):
    down, up = 2.0, 1.5


def test_communication_is_counted_per_active_client():
    recorded, _ = fit(quadratics(A, B), cohorts=[[0, 1], [], [1]], algorithm=Sends())
    down, up = 32 * 2 * 2.0, 32 * 2 * 1.5
    assert recorded.bits == [(2 * down, 2 * up), (2 * down, 2 * up), (3 * down, 3 * up)]


@pytest.mark.parametrize(
    ("lr", "bound", "what"), [(1e3, 1e4, "training loss"), (1.7e308, 1e300, "a model not finite")]
)
def test_guard_stops_in_the_round_that_diverges_and_says_so(lr, bound, what):
    guard = DivergenceGuard(bound)
    history = History(every=50)
    sgd = LocalSGD(lr=lr, steps=1, batch_size=None)
    server = FedSGD()
    data = quadratics(A, B)
    network = Linear((2, 2)).double()
    module = FederatedModule(network, squared_error, FedAvg(), sgd, 2, 100)
    source = FederatedDataModule(data, Full().bind(2, 0), sgd, 0, torch.float64)
    run = trainer(100, server, guard, history, limit_val_batches=1.0)
    run.fit(module, source)
    assert guard.reason is StopReason.DIVERGED
    assert what in guard.message
    assert f"diverged in round {run.current_epoch - 1}:" in guard.message
    assert f"(bound {bound:g})" in guard.message
    assert run.current_epoch < 5
    (row,) = history.rows  # the round is reported, although it is not an evaluated one
    assert row["round"] == run.current_epoch
    assert "val/loss" not in row


def test_guard_looks_at_rounds_in_which_the_server_waits():
    guard = DivergenceGuard()
    data, sgd = quadratics(A, B), LocalSGD(lr=1e200, steps=3, batch_size=None)
    network = Linear((2, 2)).double()
    waiting = MIFA(wait_for_all=True)
    module = FederatedModule(network, squared_error, waiting, sgd, 3, 3)
    source = FederatedDataModule(data, Trace([[0]]).bind(3, 0), sgd, 0, torch.float64)
    trainer(3, FedSGD(), guard).fit(module, source)
    assert guard.message.startswith("diverged in round 0: training loss")


def test_guard_leaves_a_healthy_run_alone():
    guard = DivergenceGuard()
    history_of([[0], [], [1]], callbacks=[guard])
    assert guard.reason is None
    assert guard.message == ""


def test_two_server_optimizers_are_refused():
    with pytest.raises(ValueError, match="one server optimizer; found FedSGD and FedGM"):
        history_of([[0]], callbacks=[FedGM()])


def test_no_server_optimizer_is_refused():
    sgd = LocalSGD()
    module = FederatedModule(Linear((2, 2)), squared_error, FedAvg(), sgd, 2, 1)
    source = FederatedDataModule(quadratics(A, B), Full().bind(2, 0), sgd, 0)
    with pytest.raises(ValueError, match="no server optimizer among its callbacks"):
        trainer(1).fit(module, source)


def module_of(network):
    return FederatedModule(network, cross_entropy, FedAvg(), LocalSGD(), 2, 1, num_classes=3)


def test_running_statistics_are_refused():
    network = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm1d\) keeps running statistics"):
        module_of(network)
    network[1] = nn.BatchNorm1d(4, track_running_stats=False)
    module_of(network)
    network[1] = nn.GroupNorm(2, 4)
    module_of(network)


def test_a_network_without_parameters_is_refused():
    with pytest.raises(ValueError, match="Flatten has no trainable parameter"):
        module_of(nn.Flatten())


def test_frozen_layers_stay_out_of_x():
    network = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))
    network[0].requires_grad_(False)
    module = module_of(network)
    assert len(module.x) == 4 * 3 + 3
    module.x = torch.arange(15.0)
    assert torch.equal(network[1].weight.flatten(), torch.arange(12.0))
    assert torch.equal(module.x, torch.arange(15.0))


class Overflow(nn.Module):
    """Finite parameters, a finite loss in training, NaN outputs for negative inputs."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return (x * self.w).sqrt()


def test_a_loss_that_is_not_a_number_is_not_averaged_away():
    train = Split(torch.ones(2, 2), torch.zeros(2, dtype=torch.int64))
    val = Split(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]), torch.zeros(2, dtype=torch.int64))
    data = FederatedData.from_clients(train, val, val, [torch.tensor([0, 1])], 2)
    module = FederatedModule(Overflow(), cross_entropy, FedAvg(), LocalSGD(), 1, 1, num_classes=2)
    history = History()
    source = FederatedDataModule(data, Full().bind(1, 0), LocalSGD(), 0)
    trainer(1, FedSGD(), history, limit_val_batches=1.0).fit(module, source)
    assert math.isfinite(history.rows[0]["train/loss"])
    assert math.isnan(history.rows[0]["val/loss"])
