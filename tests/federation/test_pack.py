"""A pack as a module: who leaves it, and what the others feel of that."""

from dataclasses import dataclass, fields

import lightning as L
import pytest
import torch
from quadratics import Recorder, quadratics, trainer
from torch import nn

from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.scaffold import Scaffold
from fltune.data.federated import FederatedData, Split
from fltune.federation import (
    DivergenceGuard,
    FederatedDataModule,
    FederatedModule,
    History,
    LocalProblem,
    LocalSGD,
)
from fltune.federation.losses import cross_entropy, squared_error
from fltune.federation.pack import Pack
from fltune.federation.pack_members import Member
from fltune.models.linear import Linear
from fltune.models.mlp import MLP
from fltune.participation.full import Full
from fltune.participation.trace import Trace
from fltune.server.fedgm import FedGM, FedSGD


def classes(sizes=(7, 3, 9, 4)):
    random = torch.Generator().manual_seed(0)
    n = sum(sizes)
    train = Split(torch.randn(n, 6, generator=random, dtype=torch.float64), torch.arange(n) % 3)
    held = list(torch.arange(n).split(list(sizes)))
    return FederatedData.from_clients(train, train, train, held, 3)


def mlp():
    return MLP((6,), 3, hidden=[5, 4], dropout=0.3)


def normed():
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def conv():
    layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 3))


class Job:
    """A run of four clients, built anew as a new process would."""

    def __init__(
        self,
        lr=0.1,
        network=mlp,
        algorithm=None,
        server=None,
        cohorts=([0, 1, 3], [2], [], [1, 2, 3], [0, 2]),
        strategy="auto",
        every=1,
        callbacks=(),
        max_loss=1e4,
    ):
        torch.manual_seed(0)
        self.data = classes()
        sgd = LocalSGD(lr=lr, epochs=2, batch_size=3)
        self.module = FederatedModule(
            network().double(),
            cross_entropy,
            algorithm or FedAvg(),
            sgd,
            4,
            len(cohorts),
            num_classes=3,
            strategy=strategy,
            seed=5,
            batch_norm="average",
        )
        pattern = Trace([list(c) for c in cohorts]).bind(4, 5)
        self.source = FederatedDataModule(self.data, pattern, sgd, 5, torch.float64)
        self.guard, self.history = DivergenceGuard(max_loss), History(every)
        server = server or FedGM(0.9, 0.5, 0.7)
        self.callbacks = [server, self.guard, *callbacks, self.history]
        self.rounds = len(cohorts)

    def fit(self):
        options = {"limit_val_batches": 1.0}
        trainer(self.rounds, *self.callbacks, **options).fit(self.module, self.source)
        return self

    @property
    def end(self):
        everyone = self.module.client_state.gather(torch.arange(4))
        network = dict(self.module.network.state_dict())
        return {"network": network, "clients": everyone, "server": self.module.server_state}


def together(*jobs):
    """Fit several jobs as a pack; return its members, and the order in which they left."""
    members = [Member(job.module, job.callbacks, job.rounds) for job in jobs]
    left = []
    pack = Pack(members, left.append)
    trainer(jobs[0].rounds, limit_val_batches=1.0).fit(pack, jobs[0].source)
    return members, left


def assert_alike(packed, alone, tolerance=1e-12):
    torch.testing.assert_close(packed.end, alone.end, rtol=tolerance, atol=tolerance)
    found, expected = packed.history.rows, alone.history.rows
    assert [sorted(row) for row in found] == [sorted(row) for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-6, nan_ok=True)  # meters count in float32
    assert packed.guard.reason == alone.guard.reason


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    ("network", "strategy"),
    [
        (mlp, "auto"),  # with dropout
        (mlp, "stacked"),
        (mlp, "fastest"),
        (conv, "stacked"),
        (conv, "loop"),
        (normed, "loop"),  # with running statistics, each member's own
    ],
)
def test_networks_and_strategies(network, strategy, every):
    def jobs():
        return [
            Job(0.1 * (1 + i), network, strategy=strategy, every=every, server=FedGM(1 - 0.1 * i))
            for i in range(3)
        ]

    packed, alone = jobs(), [job.fit() for job in jobs()]
    members, left = together(*packed)
    for one, other in zip(packed, alone, strict=True):
        assert_alike(one, other)
    assert left == members
    assert all(m.seconds > 0 and m.current_epoch == 5 for m in members)


def test_a_pack_of_one_is_the_run_to_the_last_bit():
    packed, alone = Job(), Job().fit()
    together(packed)
    assert packed.history.rows == alone.history.rows
    torch.testing.assert_close(packed.end, alone.end, rtol=0, atol=0)


@pytest.mark.parametrize("lr", [1e3, 1e200], ids=["too_large", "not_finite"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_diverges_hurts_nobody(place, lr):
    lrs = [0.1, 0.2, 0.3]
    lrs[place] = lr
    packed, alone = [Job(v, max_loss=50) for v in lrs], [Job(v, max_loss=50).fit() for v in lrs]
    members, left = together(*packed)
    assert left[0] is members[place]
    assert alone[place].guard.reason is not None
    assert packed[place].history.rows[-1]["round"] < 5
    for one, other in zip(packed, alone, strict=True):
        assert [r["round"] for r in one.history.rows] == [r["round"] for r in other.history.rows]
        assert one.guard.reason == other.guard.reason
        if other.guard.reason is None:
            assert_alike(one, other)


def test_the_pack_ends_when_all_have_left():
    jobs = [Job(1e200) for _ in range(2)]
    members, left = together(*jobs)
    assert left == members
    assert {m.current_epoch for m in members} == {1}
    assert jobs[0].source.participation.round == 1


@dataclass(frozen=True)
class Faulty(FedAvg):
    """Raises in one of its steps, in round 1."""

    step: str = "uplink"

    def _fail(self, step, info):
        if step == self.step and info.round == 1:
            raise RuntimeError(f"{step} fails")

    def local_problem(self, x, server, client, info):
        self._fail("local_problem", info)
        wrong = LocalProblem(x, mu=1.0)  # without the anchor that it needs: the solver refuses
        return wrong if self.step == "solve" and info.round == 1 else LocalProblem(x)

    def uplink(self, x, server, client, result, info):
        self._fail("uplink", info)
        return super().uplink(x, server, client, result, info)

    def downlink(self, x, server, client, message, d, info):
        self._fail("downlink", info)
        return client


class FaultyServer(FedSGD):
    def step(self, x, d, state, round):
        raise ZeroDivisionError("server fails")


class FaultyCallback(L.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        raise KeyError("row")


FAULTS = {
    "local_problem": {"algorithm": Faulty(step="local_problem")},
    "solve": {"algorithm": Faulty(step="solve")},
    "uplink": {"algorithm": Faulty(step="uplink")},
    "downlink": {"algorithm": Faulty(step="downlink")},
    "server": {"server": FaultyServer()},
    "callback": {"callbacks": [FaultyCallback()]},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_who_raises_hurts_nobody(fault):
    packed = [Job(0.1), Job(0.2, **FAULTS[fault]), Job(0.3)]
    members, left = together(*packed)
    assert members[1].error is not None
    assert members[1] not in left
    for i, lr in ((0, 0.1), (2, 0.3)):
        assert members[i].error is None
        assert_alike(packed[i], Job(lr).fit())


def test_what_cannot_be_solved_together_is_told_once_and_solved_one_by_one(monkeypatch):
    asked = []

    def too_much(requests, clients):
        asked.append(len(requests))
        raise MemoryError("no room")

    monkeypatch.setattr("fltune.federation.pack.merge", too_much)
    packed = [Job(0.1), Job(0.2, callbacks=[StopAfter(2)]), Job(0.3)]
    with pytest.warns(UserWarning, match="runs of a pack go on one by one: no room") as said:
        together(*packed)
    assert asked == [3, 2]  # of five rounds: again only when there were fewer
    assert sum("go on one by one" in str(one.message) for one in said) == 2
    for job, lr in ((packed[0], 0.1), (packed[2], 0.3)):
        assert_alike(job, Job(lr).fit())


def test_who_cannot_start_hurts_nobody():
    twice = Job(0.2, callbacks=[FedSGD()])
    packed = [Job(0.1), twice]
    members, left = together(*packed)
    assert "a run has one server optimizer" in str(members[1].error)
    assert left == [members[0]]
    assert_alike(packed[0], Job(0.1).fit())
    members, left = together(Job(0.1, callbacks=[FedSGD()]))
    assert left == []


class StopAfter(L.Callback):
    def __init__(self, rounds):
        self.rounds = rounds

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch + 1 == self.rounds:
            trainer.should_stop = True


def test_who_is_stopped_leaves_with_what_it_has():
    packed = [Job(0.1), Job(0.2, callbacks=[StopAfter(2)]), Job(0.3)]
    members, left = together(*packed)
    assert [m.current_epoch for m in members] == [5, 2, 5]
    assert left == [members[1], members[0], members[2]]
    for job, lr in ((packed[0], 0.1), (packed[2], 0.3)):
        assert_alike(job, Job(lr).fit())
    whole = Job(0.2).fit().history.rows[:2]
    for one, other in zip(packed[1].history.rows, whole, strict=True):
        assert one == pytest.approx(other, rel=1e-6)


class Hooked(L.Callback):
    """Logs during validation, as callbacks that judge a model do."""

    def __init__(self):
        self.seen = 0

    def on_validation_epoch_start(self, trainer, pl_module):
        self.seen = 0

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, loader=0):
        self.seen += len(outputs["losses"])
        assert not pl_module.network.training

    def on_validation_epoch_end(self, trainer, pl_module):
        pl_module.log("val/samples", float(self.seen), batch_size=1)
        self.log("val/chunks", 1.0)


def test_what_callbacks_log_is_in_the_row():
    jobs = [Job(0.1, callbacks=[Hooked()]), Job(0.2)]
    together(*jobs)
    assert [row["val/samples"] for row in jobs[0].history.rows] == [23.0] * 5
    assert [row["val/chunks"] for row in jobs[0].history.rows] == [1.0] * 5
    assert not any("val/samples" in row for row in jobs[1].history.rows)


def test_recorders_see_a_member_as_they_see_a_run():
    data = quadratics([[[2.0]], [[1.0]]], [[1.0], [3.0]])

    def run(algorithm):
        sgd = LocalSGD(lr=0.1, steps=2, batch_size=None)
        module = FederatedModule(Linear((1, 1)).double(), squared_error, algorithm, sgd, 2, 4)
        source = FederatedDataModule(data, Full().bind(2, 0), sgd, 0, torch.float64)
        return module, source, Recorder()

    alone = [run(FedAvg()), run(Scaffold())]
    for module, source, recorder in alone:
        trainer(4, FedSGD(), recorder).fit(module, source)
    packed = [run(FedAvg()), run(Scaffold())]
    members = [Member(module, [FedSGD(), recorder], 4) for module, _, recorder in packed]
    trainer(4).fit(Pack(members, lambda m: None), packed[0][1])
    for (_, _, one), (_, _, other) in zip(packed, alone, strict=True):
        for field in fields(Recorder):
            found, expected = getattr(one, field.name), getattr(other, field.name)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
