from pathlib import Path

import numpy as np
import pytest

from fltune.reproduce import rates
from fltune.reproduce.computed import COMPUTATIONS, Setup, compute
from fltune.reproduce.formulas import coverage, fair_rounds, unseen_share
from fltune.reproduce.rates import cyclic_rates

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
    assert fair_rounds(0.1, 0.95) == pytest.approx(1106.7, abs=0.05)


def test_cycles_of_all_groups_converge_at_a_faster_rate(monkeypatch):
    monkeypatch.setattr(rates, "ROUNDS", (50, 200, 800))
    monkeypatch.setattr(rates, "FEWEST_SEEDS", 8)
    found = cyclic_rates(Setup({}, {}, 1)).values
    slopes = {name: np.mean(values) for name, values in found.items()}
    assert slopes["slope, Kbar 20"] < -1.4 < -1.3 < slopes["slope, Kbar 1"]


def test_gradients_of_like_clients_point_the_same_way():
    path = PAPERS.parent / "mini" / "mini-fedcom-cosine.yaml"
    found = compute(path, "gradient_cosines", 2).values
    assert np.mean(found["iid: mean"]) > 0.35
    assert np.mean(found["two classes: mean"]) < 0.1
    assert all(0 <= share <= 1 for share in found["two classes: share above 0"])


def test_every_computation_can_be_loaded():
    assert all(callable(COMPUTATIONS.load(name)) for name in COMPUTATIONS)
