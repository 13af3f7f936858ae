"""The comparison with other libraries: they are given fltune's task, and the figures add up."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console


@pytest.fixture(scope="module")
def peers(load_program):
    """The program; beside it the package of the same name."""
    return load_program("peers")


@pytest.fixture
def task(peers):
    return peers.make_task("W3", peers.WORKLOADS["W3"], 3)


@pytest.fixture
def candidate(peers, tmp_path):
    def build(name, threads, *blocks):
        made = [peers.Block(seconds, steps=5, samples=70) for seconds in blocks]
        file = tmp_path / "task.npz"
        return peers.Candidate(name, threads, Path(sys.executable), name, file, blocks=made)

    return build


@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_drivers_build_the_network_of_the_workload(peers, name):
    from peers.network import Network

    workload = peers.WORKLOADS[name]
    own = workload.initial_network()
    built = Network([p.detach().numpy() for p in own.parameters()])
    x = torch.randn(3, *workload.shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(built(x), own(x))
    assert len(list(built.parameters())) == len(list(own.parameters()))


def test_drivers_count_steps_and_samples_over_copies_of_the_network(peers, task):
    import copy

    from peers.network import Network

    network = Network(task.parameters)
    steps, samples = Network.work()
    network(torch.zeros(4, 60))
    copy.deepcopy(network)(torch.zeros(3, 60))
    assert Network.work() == (steps + 2, samples + 7)


def test_task_is_the_workload(peers, task):
    workload = peers.WORKLOADS["W3"]
    data = workload.data()
    assert (task.clients, task.per_round) == (workload.clients, workload.per_round)
    assert (task.epochs, task.batch_size, task.lr) == (5, 16, 0.05)
    for client in (0, 7, task.clients - 1):
        rows = data.client(client)
        assert np.array_equal(task.x[task.rows(client)], data.train.x[rows].numpy())
    for cohort, drawn in zip(task.cohorts, islice(peers.iterate(workload), 3), strict=True):
        assert [cohort.tolist()] == drawn
    assert len(np.unique(task.y)) == task.classes


def test_task_survives_its_file(peers, task, tmp_path):
    task.save(tmp_path / "task.npz")
    back = peers.Task.load(tmp_path / "task.npz")
    for name in ("name", "classes", "epochs", "batch_size", "lr"):
        assert getattr(back, name) == getattr(task, name)
    for name in ("x", "y", "sizes", "cohorts"):
        assert np.array_equal(getattr(back, name), getattr(task, name))
    assert len(back.parameters) == 4
    for one, other in zip(back.parameters, task.parameters, strict=True):
        assert np.array_equal(one, other)


def test_work_is_what_the_clients_of_the_rounds_do(peers, task):
    rounds = [task.cohorts[1], task.cohorts[2], task.cohorts[0]]  # the fourth is the first again
    sizes = [int(task.sizes[client]) for cohort in rounds for client in cohort]
    steps = sum(5 * (size // 16 + (size % 16 > 0)) for size in sizes)
    assert task.work(1, 3) == (steps, 5 * sum(sizes))


def test_cohorts_are_dealt_again_when_they_are_used_up(task):
    dealt = list(islice(task.deal(), 4))
    assert dealt[3] == dealt[0] == task.cohorts[0].tolist()


def test_fltune_driver_serves_rounds_and_learns(peers, benchmarks, tmp_path):
    """Through the same process and the same words as every peer's driver."""
    task = peers.make_task("W3", peers.WORKLOADS["W3"], 5)
    task.save(tmp_path / "task.npz")
    paths = str(benchmarks.parent)
    ours = peers.Candidate(
        "fltune", 1, Path(sys.executable), "fltune", tmp_path / "task.npz", paths, processes=1
    )
    ours.start()
    try:
        assert ours.answer() == {"ready": True}
        blocks = [ours.run(2), ours.run(1)]
        parameters = ours.parameters()
    finally:
        ours.stop()
    assert [len(block.seconds) for block in blocks] == [2, 1]
    assert (blocks[0].steps, blocks[0].samples) == task.work(0, 3)
    assert (blocks[1].steps, blocks[1].samples) == task.work(3, 2)
    workload = peers.WORKLOADS["W3"]
    assert peers.loss_of(workload, task, parameters) < peers.loss_of(
        workload, task, task.parameters
    )
    assert ours.about == "dense, 1 process"


def test_driver_that_dies_is_left_out_with_its_last_words(peers, candidate):
    broken = candidate("no_such_driver", 1)
    healthy = candidate("fltune", 1)
    candidates, failed = [healthy, broken], {}
    broken.start()
    with peers.excused(broken, candidates, failed):
        broken.answer()
    assert candidates == [healthy]
    assert "no_such_driver" in failed["no_such_driver, 1 thread"]


def test_another_candidate_begins_each_turn(peers):
    said = []

    class Told(peers.Candidate):
        def run(self, rounds):
            said.append((self.name, rounds))
            return peers.Block([1.0] * rounds, 0, 0)

    names = ["fltune", "fluke", "FedJAX"]
    told = [Told(name, 1, Path(sys.executable), name, Path("task.npz")) for name in names]
    peers.take_turns(told, [1, 3], {})
    assert [name for name, _ in said] == [*names, "fluke", "FedJAX", "fltune"]
    assert [rounds for _, rounds in said] == [1, 1, 1, 3, 3, 3]
    assert all(len(one.blocks) == 2 for one in told)


def test_fltune_itself_is_not_excused(peers, candidate):
    ours = candidate("fltune", 1)
    with pytest.raises(peers.DriverError), peers.excused(ours, [ours], {}):
        raise peers.DriverError("broken")


def test_ratio_is_taken_block_by_block(peers, candidate):
    ours = candidate("fltune", 1, [*[1.0] * 9, 9.0], [4.0], [3.0])
    other = candidate("fluke", 2, [2.0], [2.0], [4.0, 6.0])
    found = peers.line(other, ours.blocks, (15, 210), loss=1.5)
    assert found.blocks == [2.0, 2.0, 5.0]
    assert found.seconds == 2.0
    assert found.ratio == pytest.approx(0.6)  # of 1/2, 4/2 and 3/5
    assert found.ratio_range == pytest.approx((0.5, 2.0))
    assert (found.steps, found.samples, found.same_work) == (15, 210, True)
    assert not peers.line(other, ours.blocks, (15, 211), loss=1.5).same_work


def test_better_number_of_threads_counts(peers, candidate):
    ours = candidate("fltune", 1, [1.0])
    found = [
        peers.line(one, ours.blocks, (5, 70), loss=0.0)
        for one in (ours, candidate("fluke", 1, [3.0]), candidate("fluke", 2, [2.0]))
    ]
    assert [(one.name, one.threads) for one in peers.best(found)] == [("fltune", 1), ("fluke", 2)]


def test_table_names_other_work(peers, candidate):
    ours = candidate("fltune", 1, [1.0])
    lines = [
        peers.line(ours, ours.blocks, (5, 70), loss=2.0),
        peers.line(candidate("fluke", 1, [2.0]), ours.blocks, (6, 70), loss=2.1),
    ]
    console = Console(record=True, width=120)
    peers.print_workload(console, "W1", 2.3, lines)
    text = console.export_text()
    assert "same" in text
    assert "5 steps of 70 samples" in text
    assert "0.50 - 0.50" in text


def test_parameters_of_another_network_are_refused(peers, task):
    with pytest.raises(ValueError, match="fltune's network has"):
        peers.loss_of(peers.WORKLOADS["W3"], task, task.parameters[:2])


def test_library_that_cannot_be_installed_is_named(peers, monkeypatch, tmp_path):
    from peers import environments

    def refuse(peer, folder):
        raise environments.NotInstalledError("no wheel for this Python")

    monkeypatch.setattr(peers, "install", refuse)
    failed = {}
    assert peers.prepare(peers.PEERS[:1], tmp_path, Console(quiet=True), failed) == {}
    assert failed == {"Flower": "not installed: no wheel for this Python"}


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("note\nERROR: first\nERROR: second\nbye", "second"),
        ("Killed", "Killed"),
        ("", "pip said nothing"),
    ],
)
def test_reason_is_the_last_error_of_pip(peers, errors, said):
    from peers.environments import reason

    assert reason(errors) == said


def test_environment_is_made_once_and_again_for_other_versions(peers, monkeypatch, tmp_path):
    from peers import environments

    made = []

    class Builder:
        def __init__(self, **options):
            pass

        def create(self, home):
            home.mkdir(parents=True, exist_ok=True)
            made.append(home.name)

    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(environments.venv, "EnvBuilder", Builder)
    monkeypatch.setattr(environments.subprocess, "run", lambda *a, **k: done)
    for version in ("1", "1", "2"):
        peer = environments.Peer("A", "a", (f"a=={version}",), borrows=False)
        assert environments.install(peer, tmp_path) == environments.python_of(tmp_path / "a")
    assert made == ["a", "a"]


def test_every_peer_has_a_driver_and_a_version(peers, benchmarks):
    for peer in peers.PEERS:
        assert (benchmarks / "peers" / f"{peer.module}.py").exists()
        assert peer.version[0].isdigit()
