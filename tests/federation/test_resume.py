"""A run that was cut off and resumed equals the uninterrupted one bit for bit."""

from dataclasses import dataclass

import lightning as L
import pytest
import torch
from quadratics import trainer
from small_digits import experiment

from fltune.algorithms.base import Algorithm
from fltune.data.dataset import federate
from fltune.data.digits import Digits
from fltune.data.partition import Iid
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import (
    FederatedDataModule,
    FederatedModule,
    History,
    LocalProblem,
    LocalSGD,
    RoundCheckpoint,
)
from fltune.federation.losses import cross_entropy
from fltune.models.mlp import MLP
from fltune.participation.uniform import Uniform
from fltune.runner import run
from fltune.server.adaptive import FedYogi
from fltune.server.fedgm import FedGM
from fltune.server.torch_optimizer import TorchServer

ROUNDS = 7


@dataclass(frozen=True)
class Pull(Algorithm):
    """Clients drift back to where they last were; the server counts visits.

    A client never seen was at the initial model, which only a good checkpoint remembers.
    """

    def server_state(self, x, num_clients):
        return {"visits": x.new_zeros(num_clients)}

    def client_state(self, x):
        return {"last_model": x, "visits": torch.zeros((), dtype=torch.int64)}

    def local_problem(self, x, server, client, info):
        return LocalProblem(x, mu=0.5, anchor=client["last_model"])

    def uplink(self, x, server, client, result, info):
        new = {"last_model": result.end, "visits": client["visits"] + 1}
        return {"update": x - result.end}, new

    def aggregate(self, x, server, message, info):
        d, _ = super().aggregate(x, server, message, info)
        return d, {"visits": server["visits"].index_add(0, info.clients, info.weights)}

    def downlink(self, x, server, client, message, d, info):
        return {**client, "last_model": (client["last_model"] + x) / 2}


class CutOff(L.Callback):
    """Kills the run in the middle of a round."""

    def __init__(self, round):
        self.round = round

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch.round == self.round:
            raise RuntimeError("killed")


SERVERS = {
    "fedgm": lambda: FedGM(0.8, 0.9, 0.7),
    "fedyogi": lambda: FedYogi(0.05),
    "torch_adam": lambda: TorchServer(torch.optim.Adam, lr=0.01, betas=(0.9, 0.99)),
}


class Job:
    """One run, built anew as a new process would; ``kill`` cuts it off in that round."""

    def __init__(self, path, server, every=1, kill=None, rounds=ROUNDS):
        data = federate(Digits(), Iid(), num_clients=12, val_fraction=0.1, seed=0)
        sgd = LocalSGD(lr=0.1, epochs=1, batch_size=50, momentum=0.5)
        torch.manual_seed(0)
        network = MLP((64,), 10, hidden=[8], dropout=0.2)
        self.module = FederatedModule(
            network, cross_entropy, Pull(), sgd, num_clients=12, rounds=ROUNDS, num_classes=10
        )
        self.source = FederatedDataModule(data, Uniform(4).bind(12, 3), sgd, 3)
        self.server = SERVERS[server]()
        self.history = History(every=2)
        extra = [] if kill is None else [CutOff(kill)]
        self.trainer = trainer(
            rounds,
            self.server,
            *extra,
            self.history,
            RoundCheckpoint(path, every),
            limit_val_batches=1.0,
        )

    def fit(self, resume_from=None):
        self.trainer.fit(self.module, self.source, ckpt_path=resume_from, weights_only=True)
        return self


def assert_bitwise_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def assert_same_run(a, b):
    assert_bitwise_equal(a.module.x, b.module.x)
    assert_bitwise_equal(a.server.state_dict(), b.server.state_dict())
    assert_bitwise_equal(a.module.server_state, b.module.server_state)
    everyone = torch.arange(12)
    assert_bitwise_equal(
        a.module.client_state.gather(everyone), b.module.client_state.gather(everyone)
    )
    assert_bitwise_equal(a.source.participation.state_dict(), b.source.participation.state_dict())
    assert a.source.participation.turns.tau_avg == b.source.participation.turns.tau_avg
    assert a.history.rows == b.history.rows
    for name in ("bits_up", "bits_down", "client_samples"):
        assert getattr(a.module, name) == getattr(b.module, name)


@pytest.mark.parametrize("server", SERVERS)
def test_resumed_run_equals_the_uninterrupted_one(tmp_path, server):
    whole = Job(tmp_path / "whole.ckpt", server).fit()
    path = tmp_path / "cut.ckpt"
    with pytest.raises(RuntimeError, match="killed"):
        Job(path, server, kill=4).fit()
    resumed = Job(path, server).fit(path)
    assert_same_run(resumed, whole)
    assert [row["round"] for row in whole.history.rows] == [2, 4, 6, 7]
    assert whole.module.client_state.gather(torch.arange(12))["visits"].sum() == 4 * ROUNDS
    assert whole.module.client_state.seen > 8  # some were first seen after the cut


def test_a_cut_between_two_saves_repeats_the_lost_rounds(tmp_path):
    whole = Job(tmp_path / "whole.ckpt", "fedgm").fit()
    path = tmp_path / "cut.ckpt"
    with pytest.raises(RuntimeError, match="killed"):
        Job(path, "fedgm", every=3, kill=5).fit()
    assert torch.load(path, weights_only=True)["epoch"] + 1 == 3
    assert_same_run(Job(path, "fedgm").fit(path), whole)


def test_a_finished_run_can_be_extended_and_is_not_repeated(tmp_path):
    whole = Job(tmp_path / "whole.ckpt", "fedgm").fit()
    path = tmp_path / "short.ckpt"
    Job(path, "fedgm", rounds=4).fit()
    assert_same_run(Job(path, "fedgm").fit(path), whole)
    assert_same_run(Job(path, "fedgm").fit(path), whole)  # saved as finished by the run before


class Saves(L.Callback):
    """Notes the rounds after which the checkpoint file is new."""

    def __init__(self, path):
        self.path, self.rounds, self.seen = path, [], None

    def on_train_epoch_end(self, trainer, pl_module):
        stamp = self.path.read_bytes() if self.path.exists() else None
        if stamp != self.seen:
            self.rounds.append(trainer.current_epoch + 1)
        self.seen = stamp


def test_saves_every_few_rounds_and_the_last(tmp_path):
    path = tmp_path / "a new folder" / "run.ckpt"
    job = Job(path, "fedgm", every=3)
    saves = Saves(path)
    job.trainer.callbacks.append(saves)
    job.fit()
    assert saves.rounds == [3, 6, 7]
    assert [p.name for p in path.parent.iterdir()] == ["run.ckpt"]  # no draft is left behind


def test_a_failed_save_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    job = Job(path, "fedgm")
    save = job.trainer.save_checkpoint

    def broken(target):
        if job.trainer.current_epoch < 2:
            return save(target)
        target.write_bytes(b"half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(job.trainer, "save_checkpoint", broken)
    with pytest.raises(OSError, match="no space"):
        job.fit()
    assert torch.load(path, weights_only=True)["epoch"] == 1


def test_every_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match=r"every = 0: must be >= 1"):
        RoundCheckpoint(tmp_path / "run.ckpt", every=0)


@pytest.mark.parametrize("server", ["fedgm", "torch.optim:Adam"])
def test_runner_resumes(tmp_path, server):
    config = Experiment.parse(
        {
            "data": {"name": "digits", "clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": {"kind": "uniform", "per_round": 3},
            "server": {"name": server, "lr": 0.1},
            "rounds": 6,
            "eval_every": 2,
            "device": "cpu",
        }
    )
    path = tmp_path / "run.ckpt"
    whole = run(config)

    def killed(row):
        if row["round"] == 6:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(config, on_row=killed, checkpoint=path)
    reported = []
    resumed = run(config, on_row=reported.append, checkpoint=path, resume=True)
    assert [row["round"] for row in reported] == [6]
    assert resumed.history == whole.history
    for name in ("metrics", "comm", "participation", "client_samples", "rounds", "stop_reason"):
        assert getattr(resumed, name) == getattr(whole, name)


def test_a_run_that_diverged_has_ended_and_is_not_gone_on_with(tmp_path):
    config = Experiment.parse(
        {
            "data": {"name": "digits", "clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "client": {"lr": 50.0},
            "max_loss": 3.0,
            "rounds": 6,
            "device": "cpu",
        }
    )
    path = tmp_path / "run.ckpt"
    first = run(config, checkpoint=path)
    assert first.stop_reason == "diverged"
    again = run(config, checkpoint=path, resume=True)
    for name in ("stop_reason", "message", "history", "comm", "participation", "rounds"):
        assert getattr(again, name) == getattr(first, name)


def test_a_checkpoint_goes_on_with_its_own_run_only(tmp_path):
    path = tmp_path / "run.ckpt"
    run(experiment(), checkpoint=path)
    with pytest.raises(ConfigError) as caught:
        run(experiment(seed=1, client={"lr": 0.3}), checkpoint=path, resume=True)
    assert caught.value.problems == [
        "resume: client.lr: found 0.3; the checkpoint is of a run with 0.1",
        "resume: seed: found 1; the checkpoint is of a run with 0",
    ]
    longer = run(experiment(rounds=6, strategy="loop"), checkpoint=path, resume=True)
    assert longer.rounds == 6


@pytest.mark.parametrize(
    "changes",
    [{"server": {"name": "multistage"}}, {"client": {"schedule": {"name": "step_decay"}}}],
)
def test_a_run_whose_rates_hang_on_its_length_is_not_made_longer(changes, tmp_path):
    path = tmp_path / "run.ckpt"
    run(experiment(rounds=8, **changes), checkpoint=path)
    with pytest.raises(ConfigError, match=r"rounds: found 16; with 8, as in the checkpoint, the 8"):
        run(experiment(rounds=16, **changes), checkpoint=path, resume=True)
    assert run(experiment(rounds=8, **changes), checkpoint=path, resume=True).rounds == 8
