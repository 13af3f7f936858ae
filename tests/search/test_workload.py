"""Which configs do equal work in a round, so that timing one says what the other takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.experiment import Experiment
from fltune.search.workload import ROUNDS, TOLERANCE, Work, work_of

RAW = {
    "data": {"name": "digits", "clients": 20, "partition": {"kind": "dirichlet", "alpha": 1.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "participation": {"kind": "uniform", "per_round": 4},
    "client": {"lr": 0.1, "steps": 3, "batch_size": 7},
    "server": {"name": "fedgm", "lr": 1.0, "beta": 0.9},
    "rounds": 60,
}


def work(**values):
    return work_of(Experiment.parse(RAW).with_values(values))


def test_a_round_is_counted():
    found = work()
    assert (found.clients, found.steps, found.samples, found.room) == (4, 4 * 3, 4 * 3 * 7, 84)
    assert found.evaluated == 144
    assert found.tested == 360


@pytest.mark.parametrize(
    "values",
    [
        {"client.lr": 0.01, "server.lr": 3.0, "server.beta": 0.5},
        {"seed": 7},
        {"rounds": 500, "eval_every": 10, "max_loss": 10.0},
        {"data.split_seed": 3, "data.partition_seed": 4},
        {"data.partition.alpha": 0.8},
        {"client.schedule": {"name": "inverse"}, "client.lr": 0.3},
        {"participation": {"kind": "cyclic", "per_round": 4}},
    ],
)
def test_what_does_not_change_the_work(values):
    base = {"client.schedule": {"name": "inverse"}} if "client.schedule" in values else {}
    assert work(**values).equals(work(**base))


@pytest.mark.parametrize(
    "values",
    [
        {"client.steps": 4},
        {"client.batch_size": 14},
        {"client.momentum": 0.9},
        {"client.weight_decay": 0.01},
        {"client.schedule": {"name": "inverse"}},
        {"participation.per_round": 8},
        {"data.clients": 40},
        {"data.val_fraction": 0.3},
        {"data.val_from": "clients"},
        {"model.hidden": [16]},
        {"server.nu": 0.0},
        {"server": {"name": "fedavg"}},
        {"algorithm": {"name": "scaffold"}},
        {"algorithm": {"name": "fedprox", "mu": 0.1}},
        {"compression": {"name": "qsgd", "levels": 4}},
        {"work": {"kind": "uniform", "low": 1, "high": 3}},
        {"strategy": "loop"},
        {"dtype": "float64"},
    ],
)
def test_what_changes_the_work(values):
    assert not work(**values).equals(work())


def test_a_rate_counts_where_it_is_zero():
    prox = [work(algorithm={"name": "fedprox", "mu": mu}) for mu in (0.0, 0.1, 1.0)]
    assert prox[1].equals(prox[2])
    assert not prox[0].equals(prox[1])


def test_a_partition_counts_by_what_it_makes_of_a_round():
    """Clients that work for epochs do as much as they hold; with steps that is all the same."""
    epochs = {"client.steps": None, "client.epochs": 1, "participation.per_round": 20}
    mild, harsh = ({**epochs, "data.partition.alpha": a} for a in (100.0, 0.05))
    assert work(**mild).samples == pytest.approx(work(**harsh).samples)
    assert work(**harsh).room > 2 * work(**mild).room
    assert not work(**mild).equals(work(**harsh))
    steps = [work(**{"data.partition.alpha": a}) for a in (100.0, 1.0)]
    assert steps[0].equals(steps[1])


def test_an_asynchronous_pattern_counts_as_it_is():
    arriving = {"kind": "asynchronous", "concurrency": 8, "buffer": 4}
    one, other = (
        work(participation={**arriving, "jitter_sigma": spread}, algorithm={"name": "fedbuff"})
        for spread in (0.25, 0.5)
    )
    assert not one.equals(other)


def test_no_more_rounds_are_drawn_than_there_are():
    assert work(rounds=1).equals(work())
    assert ROUNDS < 60


SIZES = st.tuples(*[st.floats(0, 1e6)] * 4, *[st.integers(0, 10**6)] * 2)


@given(sizes=SIZES, factor=st.floats(1 - TOLERANCE + 1e-9, 1), kind=st.sampled_from("ab"))
def test_equal_work_is_mutual_and_allows_for_chance(sizes, factor, kind):
    one = Work("a", *sizes)
    other = Work(kind, *(size * factor for size in sizes))
    assert one.equals(one)
    assert one.equals(other) == other.equals(one) == (kind == "a")
    smaller = Work("a", *(size * (1 - 2 * TOLERANCE) for size in sizes))
    assert one.equals(smaller) == (not any(sizes))
