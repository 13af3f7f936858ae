"""Which jobs run as one computation."""

import pytest
from fake_workers import DRAWN, GRID, Disk, Night, config_of, well
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.lane import Lane
from fltune.search.packer import Packer, pack_size

EPOCHS = {"space": {"server.lr": {"grid": [0.5, 1.0, 2.0]}, "client.epochs": {"grid": [1, 2]}}}


def lane_of(method, **search):
    config = config_of({"A": method}, **search)
    return Lane(config.method("A"), config.settings.search, [].append)


def pack_of(lane, workers=1):
    """Take one pack out of a lane, as (number, seed)."""
    job = lane.next()
    fellows = Packer(lane.search, workers).fellows(lane, job)
    return [(j["number"], j["seed"]) for j in (job, *fellows)]


@pytest.mark.parametrize(
    ("search", "workers", "worth", "runs", "size"),
    [
        ({}, 2, 16, 90, 15),  # three packs a worker, all alike
        ({}, 2, 16, 12, 3),  # two packs a worker rather than one
        ({}, 4, 16, 12, 2),
        ({}, 2, 16, 3, 1),
        ({}, 2, 1, 90, 1),  # gains nothing
        ({}, 2, 16, 0, 1),
        ({"deterministic": True}, 2, 16, 90, 4),  # half a batch of eight,
        ({"deterministic": True}, 4, 16, 90, 4),  # however many workers
        ({"deterministic": True, "batch": 40}, 4, 16, 90, 16),
        ({"pack": 5}, 4, 1, 3, 5),  # as the user says
        ({"pack": 1}, 2, 16, 90, 1),
    ],
)
def test_as_many_go_together_as_pay_and_no_worker_waits(search, workers, worth, runs, size):
    lane = lane_of(GRID, **{"pack": "auto", "trials": 8, **search})
    assert pack_size(lane.method, lane.search, workers, worth, runs) == size


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "nsga2", "random", "qmc"])
@given(trials=st.integers(1, 200), workers=st.integers(1, 8), worth=st.integers(1, 64))
def test_a_sampler_that_learns_has_a_fifth_of_its_trials_in_flight(sampler, trials, workers, worth):
    method = config_of({"A": DRAWN}).method("A")
    search = config_of(
        {"A": DRAWN}, pack="auto", trials=trials, sampler=sampler, sampler_options={}
    ).settings.search
    size = pack_size(method, search, workers, worth)
    assert 1 <= size <= worth
    assert size == 1 or 2 * workers * (size - 1) < trials  # two packs a worker, or nearly
    if sampler not in ("random", "qmc") and size > 1:
        assert size * workers <= trials / 5


def test_a_pack_is_taken_in_the_order_of_the_numbers_and_the_next_one_goes_on():
    lane = lane_of(GRID, trials=8, pack=3)
    taken = [pack_of(lane) for _ in range(3)]
    assert taken == [[(n, 40) for n in own] for own in ((0, 1, 2), (3, 4, 5), (6, 7))]
    assert lane.next() is None


def test_what_has_other_shapes_or_more_work_goes_into_other_packs_and_nothing_is_lost():
    lane = lane_of(EPOCHS, trials=6, pack=3)
    taken = [[n for n, _ in pack_of(lane)] for _ in range(2)]
    assert taken == [[0, 2, 4], [1, 3, 5]]
    assert {n: c.values["client.epochs"] for n, c in lane.candidates.items()} == {
        n: n % 2 + 1 for n in range(6)
    }


def test_a_point_without_a_value_runs_alone():
    space = {
        "client.lr": {"int": [1, 3]},
        "server.lr": {"tied": "1 / (client.lr - 2) ** 2"},
    }
    lane = lane_of({"space": space}, trials=3, pack=3)
    taken = [[n for n, _ in pack_of(lane)] for _ in range(2)]
    lrs = [[lane.candidates[n].values["client.lr"] for n in own] for own in taken]
    assert sorted(map(sorted, lrs)) == [[1, 3], [2]]


def test_seeds_are_different_work():
    lane = lane_of(DRAWN, trials=1, pack=4, seeds=1, confirm_seeds=3, confirm_top=1)
    assert pack_of(lane) == [(0, 40)]


def test_a_sampler_that_learns_is_not_asked_in_search_of_fellows_beyond_its_share():
    space = {"server.lr": {"loguniform": [0.1, 10.0]}, "client.steps": {"int": [1, 999]}}
    lane = lane_of({"space": space}, trials=40, pack=2)
    pack_of(lane, workers=2)
    assert lane.in_flight == 8  # a fifth: hardly two of them have the same number of steps


def test_a_job_that_was_parted_runs_alone():
    lane = lane_of(GRID, trials=8, pack=3)
    packer = Packer(lane.search, 1)
    job = lane.next()
    fellows = packer.fellows(lane, job)
    packer.part(fellows[0])
    lane.put_back([job, *fellows])
    first = lane.next()
    assert [j["number"] for j in packer.fellows(lane, first)] == [2, 3]
    assert packer.fellows(lane, lane.next()) == []


@pytest.mark.parametrize("how", [{}, {"seeds": 2, "confirm_top": 3}])
def test_the_packs_of_a_deterministic_search_do_not_depend_on_the_workers(tmp_path, how):
    config = config_of(
        {"A": DRAWN, "B": EPOCHS}, deterministic=True, batch=4, pack=2, trials=6, **how
    )
    found = []
    for slots in (1, 4):
        disk = Disk(tmp_path / f"{slots}")
        disk.folder.mkdir()
        night = Night(config, disk, slots=slots, end=well)
        night.work()
        found.append(set(night.packs))
    assert found[0] == found[1]
    assert max(map(len, found[0])) == 2
