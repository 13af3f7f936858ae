"""Methods that take values over from another one's winner."""

import functools

import pytest
from fake_workers import Disk, Night, config_of, disturbed, end_of, quality, well, whole
from hypothesis import given, settings
from hypothesis import strategies as st

RATES = {"server.lr": {"grid": [0.5, 1.0, 2.0]}, "client.lr": {"grid": [0.1, 0.2]}}
METHODS = {
    "Harsh": {"space": RATES, "inherit": {"from": "Mild"}},  # comes first, and waits
    "Mild": {"space": RATES},
    "Other": {
        "space": {**RATES, "server.beta": {"grid": [0.5, 0.9]}},
        "inherit": {"from": "Mild", "keys": ["server.lr"]},
    },
}


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


def searched(night, method):
    return [
        (job["number"], job["searched"])
        for job in night.jobs
        if job["method"] == method and job["kind"] == "trial"
    ]


def test_an_heir_waits_for_the_winner_and_searches_what_is_left(disk):
    night = Night(config_of(METHODS), disk, slots=3, end=well)
    campaign = night.work()
    best = campaign.lanes["Mild"].front[0].values
    assert best["server.lr"] == 0.5
    assert searched(night, "Harsh") == []  # its only config is confirmed right away
    assert [point["server.lr"] for _, point in searched(night, "Other")] == [0.5] * 4
    assert len({str(point) for _, point in searched(night, "Other")}) == 4
    order = [job["method"] for job in night.jobs if job["kind"] == "trial"]
    assert order[:6] == ["Mild"] * 6
    confirmed = [r for r in campaign.records if r.method == "Harsh"]
    assert [(r.kind, r.number, r.values) for r in confirmed] == [("confirmation", 0, best)] * 2


def test_an_heir_takes_over_what_is_reported_of_several_winners(disk):
    """The search and the fresh seeds disagree on the best rate; then the latter decide."""

    def end(values, seed):
        rate = values["server.lr"]
        worse = 0.5 if seed == 40 else 2.0
        return "complete", 4, 1.0 - quality(values) - (0.1 if rate == worse else 0.0)

    rates = {"server.lr": {"grid": [0.5, 2.0]}}
    heir = {"space": rates, "inherit": {"from": "Mild"}}
    config = config_of({"Mild": {"space": rates}, "Heir": heir}, confirm_top=2)
    night = Night(config, disk, slots=3, end=end)
    lanes = night.work().lanes
    assert lanes["Mild"].front[0].values == {"server.lr": 2.0}
    assert lanes["Mild"].chosen.values == {"server.lr": 0.5}
    assert lanes["Heir"].chosen.values == {"server.lr": 0.5}
    ran = {job["searched"]["server.lr"] for job in night.jobs if job["method"] == "Heir"}
    assert ran == {0.5}  # it has waited for the fresh seeds


def test_an_heir_plans_only_what_it_does_not_take_over(disk):
    night = Night(config_of(METHODS), disk, end=well)
    before = {name: lane.planned for name, lane in night.campaign.lanes.items()}
    assert before == {"Harsh": 0, "Mild": 6, "Other": 4}
    night.work()
    assert {name: lane.planned for name, lane in night.campaign.lanes.items()} == before


def test_an_heir_that_searches_nothing_runs_at_the_values_it_takes_over(disk):
    keys = list(RATES)
    bare = {"space": {}, "inherit": {"from": "Mild", "keys": keys}}
    night = Night(config_of({"Mild": {"space": RATES}, "Bare": bare}), disk, end=well)
    best = night.work().lanes["Mild"].front[0].values
    ran = [job["values"] for job in night.jobs if job["method"] == "Bare"]
    assert len(ran) == 2  # its confirmations
    assert all({key: values[key] for key in keys} == best for values in ran)


def test_an_heir_of_a_method_without_a_winner_has_nothing_to_do(disk):
    def hopeless(values, seed):
        return "diverged", 2, 0.0

    night = Night(config_of(METHODS), disk, end=hopeless)
    night.work()
    assert {job["method"] for job in night.jobs} == {"Mild"}


def test_an_heir_starts_anew_when_an_extension_finds_another_winner(disk):
    Night(config_of(METHODS), disk, end=well).work()
    wider = {"server.lr": {"grid": [0.5, 0.6, 1.0, 2.0]}, "client.lr": {"grid": [0.1, 0.2]}}
    more = {**METHODS, "Mild": {"space": wider}}
    night = Night(config_of(more, trials=8), disk, end=well)
    campaign = night.work()
    assert [point["server.lr"] for _, point in searched(night, "Mild")] == [0.6, 0.6]
    found = {"server.lr": 0.6, "client.lr": 0.1}
    harsh = [job for job in night.jobs if job["method"] == "Harsh"]
    assert [(job["number"], job["searched"]) for job in harsh] == [(1, found)] * 2
    assert [number for number, _ in searched(night, "Other")] == [4, 5, 6, 7]
    assert {c.values["server.lr"] for c in campaign.lanes["Other"].candidates.values()} == {0.6}
    again = Night(config_of(more, trials=8), disk)
    again.work()
    assert again.jobs == []
    assert set(again.campaign.lanes["Other"].candidates) == {4, 5, 6, 7}
    assert again.campaign.lanes["Harsh"].chosen.number == 1


def test_an_heir_of_a_search_whose_budget_is_spent_begins_nothing(disk):
    night = Night(config_of(METHODS, max_client_samples=6 * 800), disk, end=well)
    night.work()
    assert len(searched(night, "Mild")) == 6
    assert searched(night, "Other") == []


def test_an_heir_keeps_its_work_where_an_extension_changes_no_winner(disk):
    Night(config_of(METHODS), disk, end=well).work()
    night = Night(config_of(METHODS, confirm_seeds=3), disk, end=well)
    night.work()
    assert {job["kind"] for job in night.jobs} == {"confirmation"}


def test_the_entries_of_a_list_are_taken_over_whole(disk):
    staged = {
        "server": {"name": "multistage"},
        "rounds": 12,
        "space": {
            "server.stages": {"choice": [2, 3]},
            "server.lr": {"grid": [0.5, 1.0]},
            "server.drop": {"choice": [0.5]},
            "server.stage_ends": {"stages": "free"},
            "server.betas": {"stages": {"uniform": [0.5, 0.95]}},
        },
    }
    config = config_of({"Mild": staged, "Harsh": {**staged, "inherit": {"from": "Mild"}}})
    night = Night(config, disk, end=well)
    campaign = night.work()
    best = campaign.lanes["Mild"].front[0]
    expected = campaign.lanes["Mild"].method.space.readable(best.values)
    job = next(j for j in night.jobs if j["method"] == "Harsh")
    for name in ("server.stage_ends", "server.betas", "server.lr"):
        assert job["searched"][name] == expected[name]


CUTS = st.lists(st.tuples(st.sampled_from(["writes", "steps"]), st.integers(0, 80)), max_size=3)


@functools.cache
def config_and_truth():
    config = config_of(METHODS, deterministic=True, batch=2, seeds=2)
    return config, whole(config, end=mostly_well)


def mostly_well(values, seed):
    """Runs that differ in luck only, so that every method has a winner."""
    return "complete", 0, end_of(values, seed)[2]


@given(CUTS, st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=6)
def test_kills_leave_no_trace_in_what_is_inherited(cuts, slots, seed):
    config, truth = config_and_truth()
    found, repeated = disturbed(config, cuts, slots, seed, mostly_well)
    assert found == truth
    assert not repeated
    assert all(method["winners"] for method in truth.values())
