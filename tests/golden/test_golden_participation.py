"""Cohorts, probabilities and delays of ``participation.json``, from the samplers themselves.

The groups of ``cycp.json`` too, whose trajectories are in ``test_golden_fedcdr_baselines.py``. The
weights of FedAU are in ``test_golden_fedsum_scaffold.py``.
"""

import json
from pathlib import Path

import pytest
import torch

from fltune import theory
from fltune.participation.bernoulli import Bernoulli, Biased, Sine
from fltune.participation.cyclic import Cyclic, ReshuffledCyclic
from fltune.participation.groups import Groups
from fltune.participation.trace import Trace
from fltune.participation.trace import record as cohorts


def golden(name):
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))


GOLDEN, CYCP = golden("participation"), golden("cycp")["cases"]


class Recorded(ReshuffledCyclic):
    """The recorded permutations in the place of drawn ones."""

    def permutation(self, epoch):
        return torch.tensor(self.recorded[epoch])


@pytest.mark.parametrize("case", GOLDEN["deterministic_cyclic"], ids=lambda c: f"N{c['N']}")
def test_golden_deterministic_cyclic(case):
    sampler = Cyclic(per_round=case["S"]).bind(case["N"], 0)
    assert cohorts(sampler, len(case["rounds"])) == [sorted(r) for r in case["rounds"]]


@pytest.mark.parametrize(
    ("name", "permutations", "rounds"),
    [
        ("reshuffled_cyclic", "permutations", "rounds"),
        ("reshuffled_cyclic_remainder", "permutation", "drop_none"),
    ],
)
def test_golden_reshuffled_cyclic(name, permutations, rounds):
    case = GOLDEN[name]
    sampler = Recorded(per_round=case["S"]).bind(case["N"], 0)
    given = case[permutations]
    sampler.recorded = given if isinstance(given[0], list) else [given]
    assert cohorts(sampler, len(case[rounds])) == [sorted(r) for r in case[rounds]]


def test_golden_sine():
    case = GOLDEN["sine_P3"]
    sampler = Sine(per_round=case["S"]).bind(case["N"], 0)
    for round, p in case["p"].items():
        assert sampler.probabilities(int(round)).tolist() == pytest.approx([p] * 100, rel=1e-9)


def test_golden_biased():
    case = GOLDEN["biased_H8"]
    sampler = Biased().bind(case["N"], 0)
    assert sampler.probabilities(3).tolist() == pytest.approx(case["p"], rel=1e-9)
    larger = Biased().bind(200, 0).probabilities(0)
    assert float(larger.min()) == 0.05


def test_golden_with_replacement():
    case = GOLDEN["with_replacement"]
    n, rounds = case["K"], case["R"]
    draws = round(case["gamma"] * n)
    near = lambda value: pytest.approx(value, rel=1e-9)  # noqa: E731
    assert theory.visit_probability(1 / n, draws) == near(case["p_participate_once"])
    assert theory.expected_unseen(n, draws, rounds) == near(case["expected_uncovered"])
    assert n * theory.unseen_share(case["gamma"], rounds) == near(case["approx"])


@pytest.mark.parametrize("case", CYCP, ids=lambda c: c["id"])
def test_golden_groups(case):
    """Under a seed whose draws are the recorded ones: one in 64 is; whole groups need no luck."""
    groups, recorded = case["hyper"]["groups"], case["participation"]

    def drawn(seed):
        sampler = Groups(len(groups), case["hyper"]["N"], "contiguous").bind(4, seed)
        assert [group.tolist() for group in sampler.members] == groups
        return cohorts(sampler, len(recorded))

    seeds = range(1) if case["hyper"]["N"] == 2 else range(1000)
    assert any(drawn(seed) == recorded for seed in seeds)


@pytest.mark.parametrize("case", GOLDEN["delays"], ids=lambda c: f"{len(c['participation'])}rounds")
def test_golden_delays(case):
    sampler = Trace(case["participation"]).bind(case["N"], 0)
    for round, last in enumerate(case["a"]):
        next(iter(sampler))
        assert sampler.state_dict()["last"].tolist() == last
        assert round - min(last) == case["tau_t"][round]
    turns = sampler.turns
    assert (turns.tau_max, turns.tau_avg) == (case["tau_max"], pytest.approx(case["tau_avg"]))


def test_the_last_block_may_be_dropped_or_wrapped():
    dropped = Recorded(per_round=2, last_block="dropped").bind(5, 0)
    wrapped = Recorded(per_round=2, last_block="wrapped").bind(5, 0)
    dropped.recorded = wrapped.recorded = [[4, 1, 0, 3, 2], [0, 1, 2, 3, 4]]
    assert cohorts(dropped, 3) == [[1, 4], [0, 3], [0, 1]]
    assert cohorts(wrapped, 4) == [[1, 4], [0, 3], [2, 4], [0, 1]]


def test_reshuffling_visits_everybody_once_per_epoch_in_a_new_order():
    sampler = ReshuffledCyclic(per_round=3).bind(10, 7)
    epochs = [cohorts(sampler, 4) for _ in range(3)]
    for epoch in epochs:
        assert sorted(i for cohort in epoch for i in cohort) == list(range(10))
    assert epochs[0] != epochs[1] != epochs[2]


def test_bernoulli_takes_each_client_as_often_as_it_says():
    p = [0.0, 0.1, 0.5, 1.0]
    drawn = cohorts(Bernoulli(each=p).bind(4, 1), 4000)
    shares = [sum(i in cohort for cohort in drawn) / 4000 for i in range(4)]
    assert shares == pytest.approx(p, abs=0.04)  # 5 standard deviations
    assert any(len(cohort) == 1 for cohort in drawn)


def test_bernoulli_may_have_empty_rounds_or_toss_again():
    assert [] in cohorts(Bernoulli(probability=0.05).bind(5, 0), 50)
    assert [] not in cohorts(Bernoulli(probability=0.05, retry_if_empty=True).bind(5, 0), 50)
    with pytest.raises(ValueError, match="each has 2 probabilities for 3 clients"):
        Bernoulli(each=[0.1, 0.2]).bind(3, 0)
