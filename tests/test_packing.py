"""Configs run as one computation are what they are alone; which can, and when it pays."""

import itertools
import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import small_digits
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fltune.algorithms.fedavg import FedAvg
from fltune.errors import ConfigError, DataError
from fltune.federation import StopReason
from fltune.packing import pack_key, run_pack, worth_packing
from fltune.runner import RunResult, run


def experiment(**changes):
    return small_digits.experiment(**{"dtype": "float64", **changes})


def assert_same_result(packed, alone, relative=1e-6):
    """All that a result says, the time apart; meters count in float32."""
    if isinstance(packed, Exception):
        raise packed
    for name in ("stop_reason", "message", "rounds", "comm", "participation", "client_samples"):
        assert getattr(packed, name) == getattr(alone, name), name
    for name in ("strategy", "data", "processes"):
        assert getattr(packed, name) == getattr(alone, name), name
    assert packed.metrics == pytest.approx(alone.metrics, rel=relative, nan_ok=True)
    assert len(packed.history) == len(alone.history)
    for one, other in zip(packed.history, alone.history, strict=True):
        assert one == pytest.approx(other, rel=relative, nan_ok=True)
    assert packed.by_client.keys() == alone.by_client.keys()
    for name, column in alone.by_client.items():
        assert packed.by_client[name] == pytest.approx(column, rel=1e-5, nan_ok=True)
    assert packed.seconds > 0


NUMBERS = [
    {"client": {"lr": 0.1}, "server": {"name": "fedgm", "lr": 1.0, "beta": 0.5}},
    {"client": {"lr": 0.2, "momentum": 0.5}, "server": {"name": "fedavg", "lr": 0.8}},
    {
        "client": {"lr": 0.05, "weight_decay": 0.01, "schedule": {"name": "inverse_sqrt"}},
        "server": {"name": "multistage", "stages": 2},
        "algorithm": {"name": "fedprox", "mu": 0.1},
    },
    {"algorithm": {"name": "scaffold"}, "server": {"name": "fedadam", "lr": 0.01}},
    {"algorithm": {"name": "fedavg", "weighting": "samples"}, "compression": {"name": "qsgd"}},
    {"compression": {"name": "topk", "ratio": 0.1, "error_feedback": True}},
    {"server": {"name": "torch.optim:Adam", "lr": 0.01}, "max_loss": 50.0},
    {"client": {"lr": 0.2, "clip_norm": 0.3}},
    {"client": {"lr": 0.3, "clip_norm": 0.3, "momentum": 0.5}},
    {"client": {"lr": 0.2, "clip_norm": 0.1}},
]
"""Runs that share who works when, and nothing else."""

WORLDS = {
    "uniform": {},
    "bernoulli": {"participation": {"kind": "bernoulli", "probability": 0.05}, "rounds": 8},
    "clock": {"clock": {"kind": "lognormal"}, "work": {"kind": "uniform", "low": 1, "high": 3}},
    "stragglers": {"work": {"kind": "stragglers"}, "clock": {"kind": "constant"}},
    "repeats": {"participation": {"kind": "with_replacement", "per_round": 6}},
    "by_client": {"data": {"clients": 12, "val_from": "clients"}},
    "dropout": {"model": {"name": "mlp", "hidden": [8], "dropout": 0.3}},
    "stacked": {"strategy": "stacked", "eval_every": 3},
    "loop": {"strategy": "loop"},
    "own_batches": {"client": {"batches": "fixed", "steps": 3}},
    "batch_norm": {"model": {"name": "mlp_fedtorch", "hidden": [8]}},
}


def world(name):
    """Experiments of one world; those that it does not allow are left out."""
    found = []
    for numbers in NUMBERS:
        changes = {**WORLDS[name], **numbers}
        client = {**WORLDS[name].get("client", {}), **numbers.get("client", {})}
        try:
            found.append(experiment(**{**changes, "client": client}))
        except ConfigError:
            continue
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_packed_is_alone(name):
    configs = world(name)
    assert len(configs) > 4
    assert len({pack_key(config) for config in configs}) == 1
    packed = run_pack(configs, test=True)
    for config, result in zip(configs, packed, strict=True):
        assert_same_result(result, run(config))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pack_of_one_is_the_run(dtype):
    config = experiment(dtype=dtype, **NUMBERS[2])
    (packed,) = run_pack([config], test=True)
    alone = run(config)
    assert packed.history == alone.history
    assert packed.metrics == alone.metrics


def test_single_precision():
    configs = [experiment(dtype="float32", **numbers) for numbers in NUMBERS[:5]]
    for config, result in zip(configs, run_pack(configs), strict=True):
        assert_same_result(result, run(config, test=False), 1e-4)


def test_nothing_to_run():
    assert run_pack([]) == []


# who leaves, and how


def test_a_diverged_run_is_a_result_like_any_other():
    configs = [experiment(client={"lr": lr}, rounds=6) for lr in (0.1, 1e6, 0.2)]
    results = run_pack(configs, test=True)
    assert [r.stop_reason for r in results] == [
        StopReason.COMPLETED,
        StopReason.DIVERGED,
        StopReason.COMPLETED,
    ]
    alone = run(configs[1])
    assert (results[1].rounds, results[1].participation) == (alone.rounds, alone.participation)
    assert not any(name.startswith("test/") for name in results[1].metrics)
    for place in (0, 2):
        assert_same_result(results[place], run(configs[place]))


def test_on_row_stops_a_run():
    configs = [experiment(client={"lr": lr}, rounds=6, eval_every=2) for lr in (0.1, 0.15, 0.2)]
    seen = []

    def on_row(place, row):
        seen.append((place, row["round"]))
        return place == 1 and row["round"] == 4

    results = run_pack(configs, test=[False, True, True], on_row=on_row)
    assert seen == [(0, 2), (1, 2), (2, 2), (0, 4), (1, 4), (2, 4), (0, 6), (2, 6)]
    stopped = results[1]
    assert (stopped.stop_reason, stopped.message) == (StopReason.STOPPED, "stopped after 4 rounds")
    assert stopped.rounds == 4
    whole = [run(config) for config in configs]
    for one, other in zip(stopped.history, whole[1].history, strict=False):
        assert one == pytest.approx(other, rel=1e-6)
    assert stopped.participation != whole[1].participation  # counted when it left
    tested = [any(name.startswith("test/") for name in r.metrics) for r in results]
    assert tested == [False, True, True]
    assert_same_result(results[2], whole[2])


def test_on_round_stops_runs_after_all_rows():
    configs = [experiment(client={"lr": lr}) for lr in (0.1, 0.15, 0.2)]
    rows, ended = [], []

    def on_round():
        return [0, 2] if rows[-1][1] == 2 else []

    run_pack(
        configs,
        on_row=lambda place, row: rows.append((place, row["round"])),
        on_round=on_round,
        on_end=lambda place, result: ended.append((place, result.rounds)),
    )
    assert rows == [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2), (1, 3), (1, 4)]
    assert ended == [(0, 2), (2, 2), (1, 4)]


def test_a_run_may_be_stopped_before_its_first_row():
    configs = [experiment(client={"lr": lr}, eval_every=3) for lr in (0.1, 0.2)]
    early, late = run_pack(configs, on_round=lambda: [0])
    assert (early.stop_reason, early.rounds, early.history) == (StopReason.STOPPED, 1, [])
    assert (late.rounds, len(late.history)) == (4, 2)


def test_a_pack_whose_last_run_is_stopped_makes_no_more_rounds():
    rounds = []

    def on_row(place, row):
        rounds.append(row["round"])
        return True

    results = run_pack([experiment(), experiment(client={"lr": 0.2})], on_row=on_row)
    assert rounds == [1, 1]
    assert [r.stop_reason for r in results] == [StopReason.STOPPED] * 2


@dataclass(frozen=True)
class FailsInRoundTwo(FedAvg):
    def aggregate(self, x, server, message, info):
        if info.round == 2:
            raise ArithmeticError("cannot aggregate")
        return super().aggregate(x, server, message, info)


def test_what_a_run_raises_stands_in_its_place():
    fine, other = experiment(), experiment(client={"lr": 0.2})
    failing = experiment(algorithm={"name": f"{__name__}:FailsInRoundTwo"})
    first, error, last = run_pack([fine, failing, other])
    assert_same_result(first, run(fine, test=False))
    assert isinstance(error, ArithmeticError)
    assert_same_result(last, run(other, test=False))

    def on_row(place, row):
        if place == 0 and row["round"] == 2:
            raise KeyError("lost")

    broken, whole = run_pack([fine, other], on_row=on_row)
    assert isinstance(broken, KeyError)
    assert_same_result(whole, run(other, test=False))


def test_a_run_that_cannot_be_built_stands_in_its_place():
    fine = experiment(algorithm={"name": "fedavg"})
    unfit = experiment(clock={"kind": "per_client", "seconds_per_step": [1.0] * 12})
    object.__setattr__(unfit.clock, "seconds_per_step", [1.0])  # as no config can be
    result, error = run_pack([fine, unfit])
    assert_same_result(result, run(fine, test=False))
    assert isinstance(error, ConfigError)
    assert "1 entries for 12 clients" in str(error)


def test_data_that_nobody_can_have():
    configs = [experiment(data={"name": "digits", "clients": 5000})] * 2
    with pytest.raises(DataError, match="5000 clients cannot share"):
        run_pack(configs)


# which can be packed

OTHER = {
    "data": {"name": "digits", "clients": 13},
    "model": {"name": "mlp", "hidden": [9]},
    "loss": "torch.nn.functional:cross_entropy",
    "participation": {"kind": "uniform", "per_round": 5},
    "client": {"steps": 2},
    "work": {"kind": "uniform"},
    "rounds": 5,
    "eval_every": 2,
    "seed": 1,
    "strategy": "loop",
    "batch_norm": "average",
    "dtype": "float32",
}


@pytest.mark.parametrize("section", OTHER)
def test_what_runs_must_share(section):
    other = experiment(**{section: OTHER[section]})
    assert pack_key(other) != pack_key(experiment())
    with pytest.raises(ValueError, match=f"experiments 0 and 1 differ in {section}: all runs"):
        run_pack([experiment(), other])


def test_delays_must_be_the_same():
    """The cohort says them, and a pack has one."""
    stale = {"algorithm": {"name": "fedbuff"}, "delays": {"kind": "uniform", "window": 2}}
    fresh = experiment(algorithm={"name": "fedbuff"})
    with pytest.raises(ValueError, match="experiments 0 and 1 differ in delays: all runs"):
        run_pack([fresh, experiment(**stale)])


@pytest.mark.parametrize("client", [{"epochs": 2}, {"batch_size": 8}, {"batches": "fixed"}])
def test_local_work_must_be_the_same(client):
    assert pack_key(experiment(client=client)) != pack_key(experiment())


def test_ways_to_write_the_same_work():
    assert pack_key(experiment(client={"epochs": 1})) == pack_key(experiment())
    full = [experiment(client={"batch_size": size}) for size in ("full", None)]
    assert pack_key(full[0]) == pack_key(full[1])


def test_an_asynchronous_pattern_discards_what_the_method_does_not_keep():
    settings = {"participation": {"kind": "asynchronous", "concurrency": 4, "buffer": 2}}
    short, long = (
        experiment(algorithm={"name": "fedbuff", "window": window}, **settings) for window in (2, 5)
    )
    assert pack_key(short) != pack_key(long)


@given(
    st.floats(1e-4, 1.0),
    st.floats(0.0, 0.9),
    st.floats(0.0, 0.1),
    st.floats(0.1, 3.0),
    st.sampled_from(["fedavg", "fedprox", "scaffold", "fedsum", "mifa"]),
)
def test_numbers_never_matter(lr, momentum, decay, server, algorithm):
    client = {"lr": lr, "momentum": momentum, "weight_decay": decay}
    other = experiment(client=client, server={"lr": server}, algorithm=algorithm)
    assert pack_key(other) == pack_key(experiment())


def test_one_word_on_test_for_each():
    with pytest.raises(ValueError, match="test has 1 entries for 2 experiments"):
        run_pack([experiment(), experiment()], test=[True])


# when it pays


def test_small_models_are_worth_packing():
    assert worth_packing(experiment()) == 64


class Conv(nn.Sequential):
    def __init__(self, input_shape, num_classes):
        convolution = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()]
        super().__init__(*convolution, nn.Linear(144, num_classes))


def test_convolutions_are_not():
    assert worth_packing(experiment(model=f"{__name__}:Conv")) == 1


def test_exact_solutions_are_not():
    linear = {"data": "synthetic", "model": "linear", "loss": "squared_error"}
    for algorithm in ({"name": "fedprox", "mu": 1.0, "exact": True}, {"name": "fedcdr"}):
        named = {**algorithm, "prox": "exact"} if algorithm["name"] == "fedcdr" else algorithm
        assert worth_packing(experiment(algorithm=named, **linear)) == 1


def test_client_states_must_fit(monkeypatch):
    feedback = {"name": "topk", "ratio": 0.1, "error_feedback": True}
    few = {"fedavg": 64, "scaffold": 3, "fedcdr": 1}  # states of 0, 1 and 2 vectors of each client
    vector = 8 * 12 * (64 * 8 + 8 + 8 * 10 + 10)
    monkeypatch.setattr("fltune.packing.MEMORY", 3 * vector + 1)
    for name, expected in few.items():
        assert worth_packing(experiment(algorithm=name)) == expected
    assert worth_packing(experiment(compression=feedback)) == 3


def test_the_loop_is_not():
    assert worth_packing(experiment(strategy="loop")) == 1


def test_large_models_are_not():
    large = {"name": "mlp", "hidden": [1024, 1024]}
    assert worth_packing(experiment(model=large)) == 1


def test_the_larger_the_fewer():
    worth = [
        worth_packing(experiment(model={"name": "mlp", "hidden": [size]}))
        for size in (16, 64, 256, 1024, 4096)
    ]
    assert worth == sorted(worth, reverse=True)
    assert worth[0] > worth[-1]


def test_a_pack_pays_for_the_time_it_shares(monkeypatch):
    """Shares add up to what the pack took, a second a round here, and all have some."""
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("fltune.federation.pack.time", clock)
    results = run_pack([experiment(client={"lr": 0.1 + 0.01 * i}) for i in range(3)])
    assert all(isinstance(r, RunResult) and 0 < r.seconds < math.inf for r in results)
    assert results[0].seconds == pytest.approx(results[2].seconds)
    assert sum(r.seconds for r in results) == pytest.approx(results[0].rounds)
