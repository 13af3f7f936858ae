"""The benchmark measures what it says: fltune and the plain loop do the same work."""

import dataclasses
import json

import pytest
import torch


@pytest.fixture(scope="module")
def rounds(load_program):
    return load_program("rounds")


@pytest.fixture
def small(rounds):
    """W3 with fewer clients, and batches so large that no shuffle can matter."""
    return dataclasses.replace(rounds.WORKLOADS["W3"], clients=20, per_round=5, batch_size=50)


def test_json_line_has_every_workload_and_strategy(run_program):
    records = json.loads(run_program("rounds", "--workload", "W3", "--rounds", "2", "--json")[-1])
    assert [(r["workload"], r["strategy"]) for r in records] == [
        ("W3", "plain"),
        ("W3", "loop"),
        ("W3", "stacked"),
        ("W3", "dense"),
    ]
    for record in records:
        assert set(record) == {"workload", "strategy", "seconds"}
        assert record["seconds"] > 0


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_product_and_plain_loop_train_the_same_model(rounds, small, strategy):
    data = small.data()
    plain, product = rounds.PlainLoop(small, data), rounds.Product(small, data, strategy)
    assert len(plain.time_rounds(2)) == len(product.time_rounds(2)) == 2
    assert plain.samples == product.module.client_samples > 0
    start = small.initial_network()
    for expected, got, initial in zip(
        plain.network.parameters(), product.network.parameters(), start.parameters(), strict=True
    ):
        torch.testing.assert_close(got, expected)
        assert not torch.equal(got, initial)


def test_product_goes_on_where_its_last_block_ended(rounds, small):
    data = small.data()
    blocks, whole = (rounds.Product(small, data, "stacked") for _ in range(2))
    blocks.time_rounds(1)
    blocks.time_rounds(1)
    whole.time_rounds(3)
    for expected, got in zip(whole.network.parameters(), blocks.network.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "steps"), [("W1", 19), ("W2", 10)])
def test_workloads_make_the_steps_they_were_published_with(rounds, name, steps):
    workload = rounds.WORKLOADS[name]
    (size,) = set(workload.samples)
    assert -(size // -workload.batch_size) * workload.epochs == steps


def test_a_round_that_plans_others_shares_its_seconds_with_them(rounds):
    seconds = [9.0, *[1.0] * 7, 2.0, 4.0]
    assert rounds.evened(seconds) == [2.0] * 8 + [3.0] * 2
    assert rounds.evened([]) == []
