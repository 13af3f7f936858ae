from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.work import WorkPerClient
from fltune.participation.full import Full
from fltune.randomness import client_keys

sizes_ = st.lists(st.integers(1, 12), min_size=1, max_size=5)
batch_sizes = st.none() | st.integers(1, 14)
quick = settings(deadline=None, max_examples=60)


def plan(sizes, amount, unit="epochs", batch_size=3, seed=0, round=0, clients=None, fixed=False):
    """The batches of some clients (all if left out); client i holds rows 100 i, 100 i + 1, ..."""
    ids = torch.arange(len(sizes)) if clients is None else torch.tensor(clients)
    size = torch.tensor(sizes)
    order = torch.cat([100 * i + torch.arange(n) for i, n in enumerate(sizes)])
    held = Holdings(order, (size.cumsum(0) - size)[ids], size[ids])
    amounts = torch.as_tensor(amount).expand(len(sizes))[ids]
    run = client_keys(seed, -7, ids) if fixed else None
    return plan_batches(held, client_keys(seed, round, ids), amounts, unit, batch_size, run)


def batches(plan, client):
    """The client's batches, as lists of rows."""
    rows = zip(plan.index[:, client].tolist(), plan.count[:, client].tolist(), strict=True)
    return [row[:count] for row, count in rows if count]


@quick
@given(sizes_, st.integers(1, 3), batch_sizes, st.integers(0, 99))
def test_each_epoch_visits_every_sample_once(sizes, epochs, batch_size, seed):
    made = plan(sizes, epochs, "epochs", batch_size, seed)
    for i, n in enumerate(sizes):
        cut = batches(made, i)
        per_pass = -(-n // (batch_size or n))
        assert len(cut) == made.steps[i] == epochs * per_pass
        for e in range(epochs):
            one = cut[e * per_pass : (e + 1) * per_pass]
            assert sorted(chain(*one)) == [100 * i + j for j in range(n)]
            assert all(len(b) == min(batch_size or n, n) for b in one[:-1])
            assert len(one[-1]) == n - (per_pass - 1) * (batch_size or n)
    assert made.samples == epochs * sum(sizes)


@quick
@given(sizes_, st.integers(1, 9), batch_sizes)
def test_steps_mode_makes_exactly_k_steps(sizes, steps, batch_size):
    made = plan(sizes, steps, "steps", batch_size)
    epochs = plan(sizes, steps, "epochs", batch_size)  # at least as many passes, the same ones
    assert made.steps.tolist() == [steps] * len(sizes)
    for i in range(len(sizes)):
        assert batches(made, i) == batches(epochs, i)[:steps]


@settings(quick, max_examples=300)
@given(sizes_, batch_sizes, st.integers(0, 99), st.integers(0, 99), st.data())
def test_batches_of_a_client_depend_on_seed_round_and_client_alone(
    sizes, batch_size, seed, round, data
):
    ids = list(range(len(sizes)))
    some = sorted(data.draw(st.sets(st.sampled_from(ids), min_size=1)))
    everyone = plan(sizes, 2, "epochs", batch_size, seed, round)
    cohort = plan(sizes, 2, "epochs", batch_size, seed, round, some)
    backwards = plan(sizes, 2, "epochs", batch_size, seed, round, some[::-1])
    for place, i in enumerate(some):
        assert batches(cohort, place) == batches(everyone, i)
        assert batches(backwards, len(some) - 1 - place) == batches(everyone, i)


def test_a_client_of_one_batch_keeps_its_order_in_every_cohort():
    """Shuffling it only where a larger client is near would pair samples with other masks."""
    for round in range(8):
        assert batches(plan([3, 9], 1, batch_size=4, round=round), 0) == [[0, 1, 2]]
        assert batches(plan([3], 1, batch_size=4, round=round), 0) == [[0, 1, 2]]


def test_passes_rounds_clients_and_seeds_are_shuffled_apart():
    base = plan([10, 10], 2)
    first, second = batches(base, 0)[:4], batches(base, 0)[4:]
    assert first != second
    assert [[row % 100 for row in b] for b in batches(base, 1)] != batches(base, 0)
    assert batches(plan([10, 10], 2, round=1), 0) != batches(base, 0)
    assert batches(plan([10, 10], 2, seed=1), 0) != batches(base, 0)
    assert first != [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        (
            False,
            [
                [[1, 0], [2, 3], [4], [3, 0], [4, 2], [1]],
                [[100, 101], [100, 101]],
                [[200, 201], [202, 203], [203, 200], [201, 202]],
            ],
        ),
        (
            True,
            [
                [[1, 2], [3, 4], [0], [3, 4], [0], [1, 2]],
                [[100, 101], [100, 101]],
                [[202, 201], [203, 200], [202, 201], [203, 200]],
            ],
        ),
    ],
)
def test_a_seed_keeps_its_batches_from_version_to_version(fixed, expected):
    """Written down in version 0.1: a run of old is to be run again."""
    made = plan([5, 2, 4], 2, batch_size=2, seed=1, round=3, fixed=fixed)
    assert [batches(made, i) for i in range(3)] == expected


def test_shuffles_are_uniform():
    """Each of the 3! orders of three samples comes up about as often as the others."""
    orders = {}
    for t in range(3000):
        key = tuple(plan([3], 1, batch_size=1, round=t).index[:, 0, 0].tolist())
        orders[key] = orders.get(key, 0) + 1
    assert len(orders) == 6
    assert max(abs(n - 500) for n in orders.values()) < 100  # 5 standard deviations


def test_a_batch_larger_than_the_client_is_the_whole_client():
    made = plan([2, 5], 1, batch_size=4)
    assert [len(b) for b in batches(made, 0)] == [2]
    assert [len(b) for b in batches(made, 1)] == [4, 1]


def test_places_beyond_a_batch_repeat_its_first_sample():
    made = plan([5], 1, batch_size=4)
    assert made.index[1, 0].tolist() == [batches(made, 0)[1][0]] * 4


def test_clients_may_do_no_work_at_all():
    made = plan([4, 4], [0, 2], "epochs", 4)
    assert made.steps.tolist() == [0, 2]
    assert batches(made, 0) == []
    assert len(batches(made, 1)) == 2


@quick
@given(sizes_, batch_sizes, st.integers(0, 99), st.data())
def test_fixed_batches_are_those_of_the_run_in_an_order_of_the_pass(sizes, batch_size, seed, data):
    ids = list(range(len(sizes)))
    some = sorted(data.draw(st.sets(st.sampled_from(ids), min_size=1)))
    first = plan(sizes, 1, "epochs", batch_size, seed, 0, fixed=True)
    later = plan(sizes, 3, "epochs", batch_size, seed, 5, some, fixed=True)
    for place, i in enumerate(some):
        components = batches(first, i)
        assert sorted(chain(*components)) == [100 * i + j for j in range(sizes[i])]
        visited, count = batches(later, place), len(components)
        assert later.steps[place] == len(visited) == 3 * count
        for k in range(3):
            assert sorted(visited[k * count : (k + 1) * count]) == sorted(components)


def test_the_order_of_fixed_batches_is_new_in_every_pass_round_and_client():
    base = plan([12, 12], 2, batch_size=2, fixed=True)
    first, second = batches(base, 0)[:6], batches(base, 0)[6:]
    assert first != second
    assert batches(plan([12, 12], 2, batch_size=2, round=1, fixed=True), 0) != batches(base, 0)
    other = [[row - 100 for row in b] for b in batches(base, 1)]
    assert sorted(other) != sorted(batches(base, 0))
    orders = {}
    for t in range(3000):
        made = plan([3], 1, batch_size=1, round=t, fixed=True)
        order = tuple(made.index[:, 0, 0].tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 6
    assert max(abs(n - 500) for n in orders.values()) < 100  # 5 standard deviations


def test_the_cohort_of_fixed_batches():
    split = Split(torch.arange(12.0).view(12, 1), torch.zeros(12, dtype=torch.int64))
    data = FederatedData.from_clients(split, split, split, [torch.arange(12)], 1)
    sgd = LocalSGD(epochs=1, batch_size=2, batches="fixed")

    def drawn(seed, round):
        return batches(
            FederatedDataModule(data, Full().bind(1, 0), sgd, seed).cohort(round, [0]).plan, 0
        )

    assert sorted(drawn(0, 0)) == sorted(drawn(0, 1))
    assert drawn(0, 0) != drawn(0, 1)
    assert sorted(drawn(0, 0)) != sorted(drawn(1, 0))


def test_cohort_carries_the_clients_of_the_round():
    split = Split(torch.arange(6.0).view(6, 1), torch.tensor([0, 1, 0, 1, 0, 1]))
    clients = [torch.tensor([1, 4]), torch.tensor([0]), torch.tensor([2, 3, 5])]
    data = FederatedData.from_clients(split, split, split, clients, 2)
    sgd = LocalSGD(epochs=1, batch_size=2)
    source = FederatedDataModule(data, Full().bind(3, 0), sgd, 7, work=WorkPerClient([1, 2, 3]))
    cohort = source.cohort(4, [0, 2])
    assert cohort.round == 4
    assert cohort.sizes.tolist() == [2, 3]
    assert cohort.keys.tolist() == client_keys(7, 4, torch.tensor([0, 2])).tolist()
    assert cohort.plan.steps.tolist() == [1, 6]
    assert sorted(chain(*batches(cohort.plan, 0))) == [1, 4]
    assert sorted(chain(*batches(cohort.plan, 1))) == sorted([2, 3, 5] * 3)
    empty = source.cohort(5, [])
    assert empty.plan is None
    assert len(empty.clients) == 0
