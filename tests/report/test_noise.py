"""Choices replayed with fewer clients: against enumeration, by hand, and in a search's table."""

import io
import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes import RAW, end, make_lanes, take
from rich.console import Console

from fltune.errors import ConfigError
from fltune.report import noise as module
from fltune.report.noise import DRAWS, Votes, noise, panel_sizes, replay


def votes_of(means, samples=None, clients=None):
    means = np.array(means, np.float64)
    count = means.shape[1]
    samples = np.ones(count) if samples is None else np.array(samples, np.float64)
    numbers = np.arange(count) if clients is None else np.array(clients)
    return Votes(numbers, samples, means * samples)


def test_panel_sizes():
    assert panel_sizes(1) == [1]
    assert panel_sizes(8) == [1, 2, 4, 8]
    assert panel_sizes(30) == [1, 2, 4, 8, 16, 30]


@given(
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_all_clients_always_choose_the_winner(configs, clients, seeds, maximize, seed):
    rng = np.random.default_rng(seed)
    votes = [
        votes_of(rng.integers(0, 3, (configs, clients)), rng.integers(1, 9, clients))
        for _ in range(seeds)
    ]
    best, score, found = replay(votes, maximize, draws=20)
    means = np.mean([v.totals.sum(1) / v.samples.sum() for v in votes], axis=0)
    assert score == pytest.approx(means.max() if maximize else means.min())
    assert means[best] == pytest.approx(score)
    last = found[-1]
    assert (last.clients, last.agreement, last.regret) == (clients, 1.0, 0.0)
    assert all(r.regret >= 0 and 0 <= r.agreement <= 1 for r in found)


def test_the_replay_approaches_the_enumeration_of_all_panels():
    # 4000 panels: a share is off by 0.04 with p < 6e-6 each (Hoeffding), a regret by 0.04 of its
    # range, which is below 1
    rng = np.random.default_rng(1)
    samples, means = rng.integers(1, 6, 9), rng.random((4, 9))
    best, _, found = replay([votes_of(means, samples)], True, draws=4000)
    full = means @ samples / samples.sum()
    assert best == full.argmax()
    for panel in found:
        chosen = []
        for who in map(list, combinations(range(9), panel.clients)):
            chosen.append(int((means[:, who] @ samples[who] / samples[who].sum()).argmax()))
        agreement = np.mean(np.array(chosen) == best)
        assert panel.agreement == pytest.approx(agreement, abs=0.04)
        assert panel.regret == pytest.approx((full[best] - full[chosen]).mean(), abs=0.04)


def test_a_fifth_of_the_clients_misleads():
    # By hand: config 0 is better for 8 of 10 clients (mean 0.8 against 0.2), so a panel of one
    # agrees in 80 % and costs 0.2 * 0.6. 1000 draws: off by 0.08 with p < 1e-5 (Hoeffding).
    first = np.array([1.0] * 8 + [0.0] * 2)
    for maximize in (True, False):
        means = [first, 1 - first] if maximize else [1 - first, first]
        best, score, found = replay([votes_of(means)], maximize)
        assert (best, score) == (0, pytest.approx(0.8 if maximize else 0.2))
        assert found[0].agreement == pytest.approx(0.8, abs=0.08)
        assert found[0].regret == pytest.approx(0.6 * (1 - found[0].agreement))
        regrets = [r.regret for r in found]
        assert regrets == sorted(regrets, reverse=True)
        assert regrets[0] > regrets[-1]


def test_a_client_judges_on_all_seeds_or_on_none():
    # config 1 is better for client 0 on both seeds: with the same panel on both, a panel of one
    # chooses config 0 or 1 outright; were they drawn apart, half would mix and tie
    one = votes_of([[0.0, 1.0], [1.0, 0.1]])
    _, _, found = replay([one, one], True)
    alone = replay([one], True)[2]
    assert found == alone


def test_clients_are_known_by_number_where_some_judge_on_one_seed_only():
    first = votes_of([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], clients=[0, 1, 2])
    second = votes_of([[1.0, 1.0], [0.0, 0.0]], clients=[1, 2])
    best, score, found = replay([first, second], True)
    assert (best, score) == (0, pytest.approx((2 / 3 + 1) / 2))
    assert [r.clients for r in found] == [1, 2, 3]


def test_blocks_of_draws_change_nothing(monkeypatch):
    votes = [votes_of(np.random.default_rng(0).random((5, 12)))]
    whole = replay(votes, True, draws=100)
    monkeypatch.setattr(module, "_BLOCK", 12 * 7)
    assert replay(votes, True, draws=100) == whole


@pytest.mark.parametrize(
    "bad",
    [
        (np.arange(3), np.ones(3), np.full((2, 3), np.nan)),
        (np.arange(3), np.ones(3), np.ones((2, 4))),
        (np.arange(2), np.ones(3), np.ones((2, 3))),
        (np.arange(3), np.ones(3), np.ones((0, 3))),
        (np.arange(3), np.array([1, 0, 1.0]), np.ones((2, 3))),
    ],
)
def test_refuses_what_it_cannot_judge(bad):
    with pytest.raises(ValueError, match="totals"):
        Votes(*bad)


def judged(correct, samples=(2, 2, 4)):
    """Three clients' table of one run."""
    loss = [1.0 - c / n for c, n in zip(correct, samples, strict=True)]
    clients, samples = [0, 1, 2], list(samples)
    return {"client": clients, "samples": samples, "correct": list(correct), "loss": loss}


def lanes_with(tables, **search):
    """FedGM's three configs judged so; FedAvg's two were not asked."""
    lanes = make_lanes(**search)
    for lane, own in (("FedGM", tables), ("FedAvg", [{}, {}])):
        for table in own:
            score = sum(table["correct"]) / sum(table["samples"]) if table else 0.5
            rows = [{"round": 4, "val/accuracy": score, "val/loss": 1 - score}]
            end(lanes[lane], take(lanes[lane]), score, rows=rows, by_client=table)
    return lanes


TABLES = [judged((1, 1, 1)), judged((2, 0, 4)), judged((0, 2, 2))]


def told(lanes, **changes):
    console = Console(file=io.StringIO(), width=100)
    search = make_lanes(**changes)["FedGM"].search
    found = noise("night", lanes, search, console)
    return found, console.file.getvalue()


def test_the_table_says_for_each_size_how_often_and_how_costly():
    found, text = told(lanes_with(TABLES))
    assert (found["search"], found["metric"]) == ("night", "val/accuracy")
    assert (found["draws"], found["seed"]) == (DRAWS, 0)
    assert list(found["methods"]) == ["FedGM"]
    method = found["methods"]["FedGM"]
    assert (method["configs"], method["clients"]) == (3, 3)
    assert (method["winner"], method["best"], method["score"]) == (1, 1, 0.75)
    assert [p["clients"] for p in method["panels"]] == [1, 2, 3]
    # clients 0 and 2 choose config 1, client 1 chooses config 2: 2/3, regret 1/4 a third of times
    alone = method["panels"][0]
    assert alone["agreement"] == pytest.approx(2 / 3, abs=0.07)  # p < 1e-4 (Hoeffding)
    assert alone["regret"] == pytest.approx(0.25 * (1 - alone["agreement"]))
    json.dumps(found, allow_nan=False)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "night: the same choice with fewer clients" in lines
    assert any(line.startswith("│ FedGM │ 3 │ 0.75 │ 1 │ ") for line in lines)
    assert "│ │ │ │ 3 │ 100.0% │ 0 │" in lines
    said = " ".join(lines)
    assert "1000 panels of each size, drawn with seed 0" in said
    assert "how much worse in val/accuracy, judged by all clients" in said
    assert "FedAvg: fewer than two completed configs were judged client by client" in said


def test_a_loss_is_better_where_it_is_lower():
    found, _ = told(lanes_with(TABLES, metric="val/loss"), metric="val/loss")
    method = found["methods"]["FedGM"]
    assert (method["best"], method["score"]) == (1, 0.25)


def test_a_winner_by_other_evaluations_is_named():
    lanes = lanes_with(TABLES, average_last=2)
    for candidate in lanes["FedGM"].candidates.values():
        candidate.runs[0].scores = [0.9 if candidate.number == 2 else 0.1]
    _, text = told(lanes, average_last=2)
    said = " ".join(text.split())
    assert "FedGM: the search chose #2; by the last evaluation alone it is #1" in said
    assert "The search judged otherwise: by a mean of several evaluations" in said


def test_configs_that_other_clients_judged_are_left_out():
    strangers = judged((2, 2, 4), samples=(2, 2, 5))
    found, _ = told(lanes_with([TABLES[0], strangers, TABLES[1]]))
    method = found["methods"]["FedGM"]
    assert (method["configs"], method["winner"], method["best"]) == (2, 1, 2)


def test_runs_are_compared_on_the_same_seed_in_whatever_order_they_ended():
    lanes = make_lanes(seeds=2)
    lane = lanes["FedGM"]
    while (run := take(lane)) is not None:  # other clients hold other samples on the other seed
        table = judged((1, 1, run.number), samples=(2, 2, 4 + run.seed))
        end(lane, run, 0.5, by_client=table)
    lane.candidates[1].runs.reverse()
    found, _ = told({"FedGM": lane}, seeds=2)
    assert (found["methods"]["FedGM"]["configs"], found["methods"]["FedGM"]["best"]) == (3, 2)


def test_a_search_that_asked_no_clients_is_told_how():
    with pytest.raises(ConfigError, match=r"judged client by client. Set data.val_from: clients"):
        told(lanes_with([{}, {}, {}]))


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"metric": "comm/up_bits"}, "the search chooses by comm/up_bits; what is kept client by"),
        (
            {"objectives": ["val/accuracy", "comm/up_bits"]},
            "several objectives, and so no single winner",
        ),
    ],
)
def test_what_clients_do_not_judge_is_refused(search, message):
    lanes = make_lanes(RAW, **search)
    with pytest.raises(ConfigError, match=message):
        noise("night", lanes, lanes["FedGM"].search, Console(file=io.StringIO()))
