import math

import pytest
from made_by_hand import claim, run, series

from fltune.reproduce.readings import read

CURVE = (0.1, 0.5, 0.7, 0.6)


def one(made, *runs, budget=math.inf, **options):
    return read(series("A", runs, **options), made, [1, 2], budget)


@pytest.mark.parametrize(
    ("take", "expected"),
    [
        ({"take": "last", "metric": "test/accuracy"}, 0.8),
        ({"take": "mean", "over": 2}, 0.65),
        ({"take": "sd", "over": 2}, 0.1 / math.sqrt(2)),
        ({"take": "best"}, 0.7),
        ({"take": "best", "over": 1}, 0.6),
        ({"take": "rounds", "target": 0.5}, 2),
        ({"take": "rounds", "target": 0.9}, 11),
        ({"take": "last", "metric": "comm/up_bits"}, 100),
        ({"take": "last", "metric": "participation/coverage"}, 1),
        ({"take": "last", "metric": "participation/dropped"}, 3),
        ({"take": "last", "metric": "client_samples"}, 70),
        ({"take": "setting", "metric": "server.lr"}, 0.5),
    ],
)
def test_one_number_is_read_from_a_run(take, expected):
    made = claim(**{"metric": "val/accuracy", **take})
    ended = run(1, curve=CURVE, values={"server.lr": 0.5}, **{"participation/dropped": 3})
    ended.client_samples = 70
    assert one(made, ended) == {1: pytest.approx(expected)}


@pytest.mark.parametrize(
    ("take", "expected"),
    [
        ({"metric": "test/accuracy"}, 0.0),
        ({"metric": "test/loss"}, math.inf),
        ({"metric": "val/accuracy", "take": "sd"}, math.inf),
        ({"metric": "val/accuracy", "take": "rounds", "target": 0.1}, 11),
    ],
)
def test_a_run_that_diverged_has_the_worst_there_is(take, expected):
    assert one(claim(**take), run(1, status="diverged", curve=CURVE)) == {1: expected}
    assert one(claim(**take), lost=True) == {1: expected, 2: expected}


def test_bits_are_counted_up_and_down_or_up_alone():
    ended = run(1, curve=CURVE, bits=10)
    both = claim(metric="val/accuracy", take="equal_bits")
    up = claim(metric="val/accuracy", take="equal_uplink")
    assert one(both, ended, budget=45) == {1: 0.5}  # two rounds of 20 bits
    assert one(up, ended, budget=45) == {1: 0.6}  # four rounds of 10 bits
    assert math.isnan(one(both, ended, budget=5)[1])


def test_a_round_without_clients_has_no_training_loss():
    ended = run(1, curve=CURVE, bits=10)
    for row, loss in zip(ended.rows[:2], (2.0, 1.0), strict=True):
        row["train/loss"] = loss
    for take in ("equal_bits", "equal_uplink", "best"):
        assert one(claim(metric="train/loss", take=take), ended, budget=65) == {1: 1.0}
    for take in ("mean", "sd", "best", "equal_bits"):  # none of the module's own, or one alone
        assert math.isnan(one(claim(metric="val/own", take=take), ended)[1])
    ended.rows[0]["val/own"] = 1.0
    assert math.isnan(one(claim(metric="val/own", take="sd"), ended)[1])


def test_a_loss_reaches_its_target_from_above():
    ended = run(1)
    ended.rows = [{"round": r, "val/loss": v} for r, v in ((5, 2.0), (10, 0.9))]
    assert one(claim(metric="val/loss", take="rounds", target=1.0), ended) == {1: 10}
