"""Clients as a second fidelity: few judge a trial's first rung, all judge its end."""

import json
import math
import shlex

import pytest
import yaml
from fake_workers import GRID, Disk, Night, config_of, row_at, well
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from fltune.data.validation import check_growth
from fltune.errors import ConfigError, DataError
from fltune.experiment import Experiment
from fltune.report.explain import explain
from fltune.search.config import SearchConfig
from fltune.search.jobs import experiment_of
from fltune.search.panels import trial_panel
from fltune.search.preparation import check_data
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.recorder import _own_config
from fltune.search.rungs import make_rungs
from fltune.search.search import _refuse_other_trials
from fltune.search.settings import SearchSettings

OWNED = {**GRID, "data": {"val_from": "clients"}}
ASHA = {"scheduler": "asha", "grace": 2, "reduction": 2, "first_panel": 2}
PANEL = {1: 2, 4: 4, 5: None}
"""Of 8 rounds and 10 clients: rungs at 2 and 4; all are asked once the last one is judged."""


def panel(first=5, clients=50, rounds=100, every=1, val_from="clients", **search):
    settings = {"scheduler": "asha", "grace": 10, "reduction": 3, **search}
    data = {"name": "synthetic", "clients": clients, "val_from": val_from}
    experiment = Experiment.parse({"data": data, "rounds": rounds, "eval_every": every})
    chosen = SearchSettings.model_validate({**settings, "first_panel": first})
    return trial_panel(chosen, experiment, rounds)


@pytest.mark.parametrize(
    ("given", "growth"),
    [
        ({}, {1: 5, 30: 15, 90: 45, 91: None}),
        ({"scheduler": "hyperband"}, {1: 5, 30: 15, 90: 45, 91: None}),
        ({"first": None}, None),
        ({"grace": 100}, None),  # no rung
        ({"rounds": 30}, {1: 5, 11: None}),  # one rung
        ({"clients": 20}, {1: 5, 30: 15, 90: None}),  # 45 would be more than there are
        ({"clients": 20, "val_from": "pool"}, {1: 5, 30: 15, 90: 45, 91: None}),
        ({"every": 4}, {1: 5, 30: 15, 90: 45, 93: None}),  # the last rung is judged after round 92
        ({"every": 60}, {1: 5, 30: 15, 90: 45, 100: None}),  # with the end
        ({"first": 1, "reduction": 1.5, "rounds": 40}, {1: 1, 23: 2, 34: 3, 35: None}),
    ],
    ids=str,
)
def test_who_judges_by_round(given, growth):
    assert panel(**given) == growth


@given(
    first=st.integers(1, 40),
    clients=st.integers(1, 60),
    rounds=st.integers(1, 120),
    every=st.integers(1, 130),
    grace=st.integers(1, 130),
    reduction=st.floats(1.01, 6),
    scheduler=st.sampled_from(["asha", "hyperband"]),
)
@example(  # where powers and repeated products round differently
    first=1, clients=8, rounds=9, every=1, grace=1, reduction=1.125, scheduler="hyperband"
)
def test_each_rung_is_judged_by_its_own_and_the_end_by_all(first, clients, rounds, every, **own):
    growth = panel(first, clients, rounds, every, **own)
    settings = SearchSettings.model_validate(own)
    rungs = make_rungs(settings, rounds)
    tables = rungs.brackets if own["scheduler"] == "hyperband" else [rungs]
    places = sorted({rung for table in tables for rung in table.rungs})
    if not places:
        assert growth is None
        return
    check_growth(growth)
    assert growth[max(growth)] is None
    assert max(growth) <= rounds  # so that the end is judged by all
    for place, rung in enumerate(places):
        evaluated = min(math.ceil(rung / every) * every, rounds)
        asked = growth[max(r for r in growth if r <= evaluated)]
        own_share = int(first * own["reduction"] ** place)
        shared = evaluated == rounds or any(rung < other <= evaluated for other in places)
        if not shared:
            assert min(asked or clients, clients) == min(own_share, clients)


def test_trials_have_it_and_confirmations_do_not(tmp_path):
    night = Night(config_of({"A": OWNED}, pack=3, **ASHA), Disk(tmp_path), end=well)
    campaign = night.work()
    asked = {TRIAL: [], CONFIRMATION: []}
    for job in night.jobs:
        asked[job["kind"]].append(experiment_of(job).data.val_clients)
    assert asked[TRIAL]
    assert asked[CONFIRMATION] == [None] * 2
    assert all(panel == PANEL for panel in asked[TRIAL])
    assert not any("data.val_clients" in record.values for record in campaign.records)


def test_it_is_worked_out_from_the_rounds_of_a_trial():
    config = config_of({"A": OWNED}, rounds=4, **ASHA)
    beside = config.method("A").of_trials(config.settings.search)
    assert beside == {"rounds": 4, "data.val_clients": {1: 2, 3: None}}


def test_a_search_that_goes_on_asks_the_same(tmp_path):
    config = config_of({"A": OWNED}, **ASHA)
    Night(config, Disk(tmp_path), end=well).work(9)
    frozen = SearchConfig.parse(yaml.safe_load(config.as_yaml()))
    night = Night(frozen, Disk(tmp_path), end=well)
    night.work()
    again = [job for job in night.jobs if job["kind"] == TRIAL]
    assert 0 < len(again) < 8
    assert all(experiment_of(job).data.val_clients == PANEL for job in again)


@pytest.mark.parametrize("key", ["first_panel", "grace", "reduction"])
def test_an_extension_cannot_change_it(key):
    config = config_of({"A": OWNED}, **ASHA)
    with pytest.raises(ConfigError, match=rf"search\.{key}: an extension cannot change"):
        _refuse_other_trials(config, config_of({"A": OWNED}, **{**ASHA, key: 3}))
    _refuse_other_trials(config, config_of({"A": OWNED}, **ASHA, confirm_seeds=9))


def problems_of(method, **search):
    with pytest.raises(ConfigError) as caught:
        config_of({"A": method}, **search)
    return caught.value.problems


@pytest.mark.parametrize(
    ("method", "search", "problem"),
    [
        (
            GRID,
            ASHA,
            "methods.A: in a trial of search.first_panel: data.val_clients: whose the validation "
            "samples are is not known; set data.val_from to clients",
        ),
        (
            OWNED,
            {**ASHA, "first_panel": 11},
            "methods.A: in a trial of search.first_panel: data.val_clients: found 11; there are 10 "
            "clients (data.clients)",
        ),
        (
            {**OWNED, "data": {"val_from": "clients", "val_clients": 5}},
            ASHA,
            "methods.A: data.val_clients: found 5; search.first_panel says how many clients judge "
            "a trial; drop one",
        ),
        (
            {**OWNED, "space": {"eval_every": {"grid": [1, 2]}}},
            ASHA,
            "methods.A.space.eval_every: search.first_panel needs it to be the same for all "
            "trials; drop one",
        ),
        *(
            (
                {**OWNED, "data": {"val_from": "clients", "val_clients": {1: 2, 5: 4}}},
                search,
                "methods.A: data.val_clients: found {1: 2, 5: 4}; scores of different rounds are "
                "compared, and fewer clients judge the early ones. Take one number of clients",
            )
            for search in (
                {"scheduler": "median"},
                {"select": "best"},
                {"average_last": 2},
                {"objectives": [{"metric": "val/accuracy", "target": 0.9}]},
            )
        ),
    ],
)
def test_a_panel_that_cannot_be_is_refused(method, search, problem):
    assert problems_of(method, **search) == [problem]


def test_a_panel_by_hand_is_for_trials_and_confirmations_alike(tmp_path):
    own = {**OWNED, "data": {"val_from": "clients", "val_clients": {1: 2, 5: 4}}}
    night = Night(config_of({"A": own}, scheduler="asha", grace=2), Disk(tmp_path), end=well)
    night.work()
    assert {job["kind"] for job in night.jobs} == {TRIAL, CONFIRMATION}
    assert all(experiment_of(job).data.val_clients == {1: 2, 5: 4} for job in night.jobs)


def test_too_few_clients_with_samples_stop_a_search_before_it_starts():
    sparse = {**OWNED, "data": {"val_from": "clients", "clients": 1400}}
    config = config_of({"A": sparse}, **{**ASHA, "first_panel": 1390})
    with pytest.raises(DataError, match=r"1390 clients is asked for; \d+ hold validation samples"):
        check_data(config)


def test_a_trial_that_was_stopped_says_by_how_many_it_was_judged(tmp_path):
    config = config_of({"A": OWNED}, **ASHA)
    lane = Night(config, Disk(tmp_path), end=well).work().lanes["A"]
    run = lane.candidates[0].runs[0]
    counts = {2: 2, 4: 4, 6: 10, 8: 10}
    run.rows = [row_at(r, 0.5) | {"val/clients": float(k)} for r, k in counts.items()]
    console = Console(record=True, width=80)
    found = explain(lane, lane.candidates[0], tmp_path / "frozen.yaml", console)
    assert found["clients_by_round"] == {2: 2, 4: 4, 6: 10}
    assert "clients by round  2: 2  4: 4  6: 10" in console.export_text()
    stopped = TrialRecord("A", TRIAL, 0, {}, 40, rows=run.rows[:2])
    stopped.stop_early()
    assert stopped.message == "stopped early by the scheduler after 4 rounds, judged by 4 clients"


def test_a_trial_run_alone_is_judged_by_the_same(tmp_path):
    config = config_of({"A": OWNED}, **ASHA)
    lane = Night(config, Disk(tmp_path), end=well).work().lanes["A"]
    frozen = tmp_path / "frozen.yaml"
    frozen.write_text(config.as_yaml())
    command = explain(lane, lane.candidates[0], frozen, Console(quiet=True))["command"]
    words = shlex.split(command)
    sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    assert f"data.val_clients={json.dumps(PANEL)}" in sets
    again = SearchConfig.read(frozen, sets).method("A").experiment({})
    assert again.data.val_clients == PANEL
    trial, winner = lane.candidates[0].runs[0], lane.reported[0]
    for record, beside, panel in ((trial, lane.beside, PANEL), (winner, None, None)):
        text = _own_config(config.method("A"), record, beside)
        assert Experiment.parse(yaml.safe_load(text)).data.val_clients == panel
