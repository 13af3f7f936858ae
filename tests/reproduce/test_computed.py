from pathlib import Path

import numpy as np
import pytest
import yaml

from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.reproduce import clients, rates
from fltune.reproduce.catalogue import Entry
from fltune.reproduce.computed import COMPUTATIONS, Computed, Setup, compute
from fltune.reproduce.formulas import coverage
from fltune.reproduce.rates import cyclic_rates
from fltune.reproduce.reproduction import reproduce
from fltune.theory import unseen_share

PAPERS = Path(__file__).parents[2] / "search_spaces" / "papers"


@pytest.mark.parametrize(("table", "numbers"), [("coverage_table", 54), ("fairness_table", 16)])
def test_the_formulas_give_every_printed_number(table, numbers):
    found = compute(PAPERS / "fedcdr" / "_setup.yaml", table, 1)
    assert found.values == {"wrong numbers": [0], "numbers": [numbers]}
    assert len(found.rows) == numbers


def test_the_costs_give_every_number_but_the_misprint():
    found = compute(PAPERS / "fedcdr" / "fedcdr-tab7.yaml", "cost_table", 1)
    printed = {label: (theirs, ours) for label, theirs, ours in found.rows}
    assert found.values["wrong numbers"] == [1]
    assert printed["Comm. speedup, FedCDR"] == ("0.5", "1")
    assert printed["Total comm. cost, SCAFFOLD"] == ("16d", "16d")
    assert printed["Total comp. cost, FedCDR"] == ("10NG", "10NG")


def test_draws_leave_clients_unseen_and_reshuffling_none():
    """The mean of 20 draws of 25 x 20 of 500 clients: 0.368, its deviation 0.013 / sqrt(20)."""
    found = coverage(Setup({}, {}, 20)).values
    assert abs(np.mean(found["unseen, with replacement"]) - unseen_share(0.05, 20)) < 0.015
    assert set(found["unseen, reshuffled"]) == {0.0}


def test_cycles_of_all_groups_converge_at_a_faster_rate(monkeypatch):
    monkeypatch.setattr(rates, "ROUNDS", (50, 200, 800))
    monkeypatch.setattr(rates, "FEWEST_SEEDS", 8)
    found = cyclic_rates(Setup({}, {}, 1))
    slopes = {name: np.mean(values) for name, values in found.values.items()}
    assert found.seeds == 8
    assert slopes["slope, Kbar 20"] < -1.4 < -1.3 < slopes["slope, Kbar 1"]


def test_gradients_of_like_clients_point_the_same_way():
    path = PAPERS.parent / "mini" / "mini-fedcom-cosine.yaml"
    found = compute(path, "gradient_cosines", 2).values
    assert np.mean(found["iid: mean"]) > 0.35
    assert np.mean(found["two classes: mean"]) < 0.1
    assert all(0 <= share <= 1 for share in found["two classes: share above 0"])


def test_cosines_of_pairs_are_counted_once_and_nobody_is_like_itself(monkeypatch):
    one = np.array([[1.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    monkeypatch.setattr(clients, "cosines", lambda world, seed: one if seed == 0 else np.eye(3))
    found = clients.gradient_cosines(Setup({}, {"one": None}, 2)).values
    assert found["one: mean"] == pytest.approx([0.4 / 3, 0.0])
    assert found["one: smallest"] == [-0.3, 0.0]
    assert found["one: share above 0"] == pytest.approx([2 / 3, 0.0])
    assert found["one: most alike others"] == [2.0, 0.0]


def test_a_seed_is_that_of_the_initial_model_too():
    model = {"name": "mlp", "hidden": [4]}
    world = Experiment.parse({"data": {"name": "digits", "clients": 5}, "model": model})
    there = clients.cosines(world.with_values({"seed": 1}), 1)
    assert np.array_equal(clients.cosines(world, 1), there)


@pytest.mark.parametrize(("count", "shown"), [(7, 7), (20, 20), (39, 20), (45, 20)])
def test_no_more_clients_are_compared_than_the_papers_map_has(count, shown):
    model = {"name": "mlp", "hidden": [4]}
    world = Experiment.parse({"data": {"name": "digits", "clients": count}, "model": model})
    assert clients.cosines(world, 0).shape == (shown, shown)


def computed(tmp_path, name, **more):
    path = tmp_path / "my own.yaml"
    claims = {"one": {"says": "so", "statistic": "computed", "of": "numbers", "above": 0}}
    path.write_text(yaml.safe_dump({"computes": name, "claims": claims, **more}))
    return Entry.read(path)


def test_the_facts_say_the_seeds_that_were_used(tmp_path, monkeypatch):
    facts = reproduce(computed(tmp_path, "fairness_table"), seeds=5).facts
    assert (facts["seeds"], facts["command"]) == (0, "python -m fltune reproduce 'my own'")
    made = Computed({"numbers": [1.0] * 20}, seeds=20)
    monkeypatch.setattr("fltune.reproduce.reproduction.compute", lambda *args: made)
    facts = reproduce(computed(tmp_path, "cyclic_rates"), seeds=5).facts
    command = "python -m fltune reproduce 'my own' --seeds 20"
    assert (facts["seeds"], facts["command"]) == (20, command)


def test_a_setting_of_what_trains_nothing_is_refused(tmp_path):
    entry = computed(tmp_path, "fairness_table")
    with pytest.raises(ConfigError) as caught:
        reproduce(entry, settings=["rounds=20", "data.clients=9"])
    assert caught.value.problems == [
        "rounds: found 20; this file trains nothing, and of it data.root alone can be set",
        "data.clients: found 9; this file trains nothing, and of it data.root alone can be set",
    ]
    assert reproduce(entry, settings=["search.concurrent=1", "data.root=x"]).status == "judged"


def test_the_data_of_what_trains_nothing_may_lie_elsewhere(tmp_path, monkeypatch):
    looked = []

    def nowhere(worlds):
        looked.extend(world.data.root for world in worlds)
        return ["mnist"]

    monkeypatch.setattr("fltune.reproduce.reproduction.missing_data", nowhere)
    entry = computed(
        tmp_path,
        "label_histogram",
        experiment={"data": {"name": "mnist"}},
        methods={"Clients": {"space": {}}},
        scenarios={"data": {"one": {}}},
    )
    assert reproduce(entry, settings=["data.root=/elsewhere"]).status == "not run"
    assert looked == ["/elsewhere"]


def test_every_computation_can_be_loaded():
    assert all(callable(COMPUTATIONS.load(name)) for name in COMPUTATIONS)
