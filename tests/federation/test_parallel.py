"""Runs with several processes: the same digits, an end with the run, a word when one is lost."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import lightning as L
import pytest
import torch
from torch import nn

from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.scaffold import Scaffold
from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError, RunFailedError
from fltune.federation import (
    FederatedDataModule,
    FederatedModule,
    LocalSGD,
    bundles,
    child,
    parallel,
    processes,
)
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.parallel import Team, possible
from fltune.federation.processes import Processes
from fltune.federation.quiet import quiet
from fltune.models.mlp import MLP
from fltune.participation.uniform import Uniform
from fltune.server.fedgm import FedSGD

needs_linux = pytest.mark.skipif(not possible(), reason="needs memfd_create")
SIZES = [7, 1, 12, 4, 9, 5, 8]


def mlp():
    return MLP((6,), 3, [5], dropout=0.3)


def conv():
    layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))


def data():
    random = torch.Generator().manual_seed(0)
    n = sum(SIZES)
    x, y = torch.randn(n, 6, generator=random), torch.randint(3, (n,), generator=random)
    unused = Split(x[:1], y[:1])
    return FederatedData.from_clients(Split(x, y), unused, unused, torch.arange(n).split(SIZES), 3)


class Watch(L.Callback):
    """Does something before a round."""

    def __init__(self, act=None):
        self.act = act or (lambda module: None)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.act(pl_module)


def fit(number, network=mlp, strategy="loop", algorithm=None, rounds=3, act=None):
    torch.manual_seed(0)
    sgd = LocalSGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
    module = FederatedModule(
        *(network(), cross_entropy, algorithm or FedAvg(), sgd, len(SIZES), rounds),
        strategy=strategy,
        batch_norm="average",
    )
    source = FederatedDataModule(data(), Uniform(per_round=5).bind(len(SIZES), 0), sgd, 0)
    helping = number if isinstance(number, Processes) else Processes(number)
    silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    with quiet():
        trainer = L.Trainer(
            max_epochs=rounds,
            accelerator="cpu",
            callbacks=[FedSGD(), helping, Watch(act)],
            limit_val_batches=0,
            **dict.fromkeys(silent, False),
        )
        trainer.fit(module, source)
    return module


@pytest.fixture
def small_bundles(monkeypatch):
    monkeypatch.setattr(bundles, "BUNDLE_WORK", {"dense": 1.0, "stacked": 1.0})


@needs_linux
@pytest.mark.parametrize(
    ("network", "strategy", "algorithm"),
    [
        (mlp, "loop", FedAvg()),
        (mlp, "stacked", FedAvg()),
        (mlp, "dense", Scaffold(option="I")),
        (conv, "loop", FedAvg()),  # with running statistics
    ],
    ids=["loop", "stacked", "dense", "statistics"],
)
def test_the_same_digits_with_any_number_of_processes(small_bundles, network, strategy, algorithm):
    alone = fit(1, network, strategy, algorithm)
    seen = []
    watch = lambda module: seen.extend(module.solver.team._workers)  # noqa: E731
    shared = fit(2, network, strategy, algorithm, act=watch)
    assert torch.equal(shared.x, alone.x)
    assert torch.equal(shared.flat.read_statistics(), alone.flat.read_statistics())
    assert shared.round_metrics == alone.round_metrics
    assert shared.solver.team is None  # it has ended with the run
    assert seen
    assert all(worker.process.poll() is not None for worker in seen)


@needs_linux
def test_a_lost_worker_ends_the_run_with_its_name():
    def kill(module):
        (worker,) = module.solver.team._workers
        os.kill(worker.process.pid, signal.SIGKILL)

    with pytest.raises(RunFailedError, match="ended by SIGKILL; if it was short of memory"):
        fit(2, act=kill)


class Grumbling(nn.Linear):
    """Works in this process only."""

    def forward(self, x):
        if os.getpid() != int(os.environ["FLTUNE_TEST_PARENT"]):
            raise ValueError("not here")
        return super().forward(x)


@needs_linux
def test_what_a_worker_cannot_do_is_told(monkeypatch):
    monkeypatch.setenv("FLTUNE_TEST_PARENT", str(os.getpid()))
    with pytest.raises(RunFailedError, match=r"(?s)worker process of this run failed.*not here"):
        fit(2, lambda: Grumbling(6, 3))


def test_a_model_that_cannot_be_sent_is_refused():
    class Local(nn.Linear):
        pass

    with pytest.raises(ConfigError, match="found 2, but the model cannot be sent"):
        fit(2, lambda: Local(6, 3))


@needs_linux
def test_a_worker_that_never_comes_to_life_is_told_of_and_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(child.sys, "executable", shutil.which("true"))
    large = FlatNetwork(nn.Linear(1000, 1000))  # more than a pipe holds
    team = Team(large, cross_entropy, LocalSGD(), 2)
    with pytest.raises(RunFailedError, match="ended with exit code 0"):
        team.wait()
    team.close()


@needs_linux
def test_a_process_that_cannot_be_started(monkeypatch):
    def refuse(*args, **kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(child.subprocess, "Popen", refuse)
    with pytest.raises(RunFailedError, match="a worker process of this run cannot be started"):
        fit(2)
    for name, value in (("free_cores", lambda: 2), ("SECONDS_PER_ROUND", 0), ("SECONDS_LEFT", 0)):
        monkeypatch.setattr(processes, name, value)
    hopeful = Processes("auto")
    fit(hopeful)
    assert hopeful.used == 1


@needs_linux
def test_workers_end_with_their_parent(tmp_path):
    """Even if it is killed and can tell nobody; a script needs no main guard."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import time, torch
            from fltune.federation import LocalSGD
            from fltune.federation.flat import FlatNetwork
            from fltune.federation.losses import cross_entropy
            from fltune.federation.parallel import Team

            network = FlatNetwork(torch.nn.Linear(3, 2))
            team = Team(network, cross_entropy, LocalSGD(), 2).wait()
            print(team._workers[0].process.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(600):
        if not _alive(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent by a minute")


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@needs_linux
def test_auto_starts_workers_where_rounds_are_long_and_many(monkeypatch):
    monkeypatch.setattr(processes, "free_cores", lambda: 2)
    short = Processes("auto")
    fit(short)
    assert short.used == 1
    monkeypatch.setattr(processes, "SECONDS_PER_ROUND", 0.0)
    monkeypatch.setattr(processes, "SECONDS_LEFT", 0.0)
    waits = Processes("auto")

    def patience(module):
        if waits._team is not None:
            waits._team.wait()

    joined = fit(waits, act=patience, rounds=4)
    assert waits.used == 2
    assert torch.equal(joined.x, fit(1, rounds=4).x)


def test_elsewhere_a_run_goes_on_alone_and_says_so(monkeypatch):
    monkeypatch.setattr(processes, "possible", lambda: False)
    with pytest.warns(UserWarning, match=r"processes = 2: .* needs Linux; going on with 1"):
        module = fit(2)
    assert torch.equal(module.x, fit(1).x)


def test_numbers_of_processes():
    for wrong in (0, "2", "all"):
        with pytest.raises(ConfigError, match=r"processes: found .*; must be auto or a whole"):
            Processes(wrong)


@needs_linux
def test_a_cohort_of_one_bundle_disturbs_no_worker(monkeypatch):
    monkeypatch.setattr(parallel, "Child", lambda *args, **options: None)  # would fail if asked
    monkeypatch.setattr(parallel, "_end", lambda workers, memories: None)
    monkeypatch.setattr(parallel.Team, "ready", lambda team: True)
    assert torch.equal(fit(2, strategy="dense").x, fit(1, strategy="dense").x)
