import math

import pytest
import small_digits
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import A, B, fit, quadratics

from fltune.algorithms.fedcdr import FedCDR
from fltune.algorithms.scaffold import Scaffold
from fltune.errors import ConfigError
from fltune.federation import LocalSGD
from fltune.federation.clock import (
    Clock,
    ClockPerClient,
    ConstantClock,
    LognormalClock,
    Visit,
)
from fltune.federation.stragglers import Stragglers
from fltune.randomness import client_normals
from fltune.runner import run


def totals_of(clock, cohorts=None, **options):
    options = {"sgd": LocalSGD(epochs=2, batch_size=1), **options}
    recorded, _ = fit(quadratics(A, B, [1, 2, 4]), cohorts=cohorts, clock=clock, **options)
    return recorded.totals


def test_rounds_bytes_and_seconds_by_hand():
    """Three clients of 1, 2, 4 samples; two epochs of single samples; d = 2, so 64 bits a way.

    client 0: 0.5  + 64/64 + 2 * 0.5  + 2 * 0.1 + 64/32 =  4.7
    client 1: 0    + 64/32 + 4 * 0.25 + 4 * 0.1 + 64/64 =  4.4
    client 2: 0.25 + 64/16 + 8 * 1    + 8 * 0   + 64/64 = 13.25
    and 0.125 for the server, in the empty round too.
    """
    clock = ClockPerClient(
        server_seconds=0.125,
        seconds_per_step=[0.5, 0.25, 1.0],
        seconds_per_sample=[0.1, 0.1, 0.0],
        down_mbps=[64e-6, 32e-6, 16e-6],
        up_mbps=[32e-6, 64e-6, 64e-6],
        latency_seconds=[0.5, 0.0, 0.25],
    )
    rows = totals_of(clock, [[0, 1], [], [2], [0, 1, 2]])
    assert [row["comm/up_bits"] / 8 for row in rows] == [16, 16, 24, 48]
    assert [row["comm/down_bits"] / 8 for row in rows] == [16, 16, 24, 48]
    assert [row["client_samples"] for row in rows] == [6, 6, 14, 28]
    lasts = [4.825, 0.125, 13.375, 13.375]
    expected = [sum(lasts[: t + 1]) for t in range(4)]
    assert [row["clock/seconds"] for row in rows] == pytest.approx(expected, rel=1e-12)


def test_a_full_gradient_before_the_steps_is_a_pass_over_all_samples():
    """Clients of 1, 2 and 4 samples, two epochs; SCAFFOLD I makes a third pass, in one go."""
    clock = ClockPerClient(seconds_per_step=0.0, seconds_per_sample=[1.0, 1.0, 1.0])
    for option, passes in (("I", 3), ("II", 2)):
        rows = totals_of(clock, [[0, 1], [2], [0, 2]], algorithm=Scaffold(option=option))
        assert [row["client_samples"] for row in rows] == [3 * passes, 7 * passes, 12 * passes]
        slowest = [2 * passes, 6 * passes, 10 * passes]
        assert [row["clock/seconds"] for row in rows] == pytest.approx(slowest, rel=1e-12)


def test_without_a_clock_there_is_no_time():
    assert all("clock/seconds" not in row for row in totals_of(None, [[0], []]))
    assert Clock().bind(3, 0).lasts(None) == 0.0


def visit(clients, steps, round=0):
    """Ten samples a step, a megabit down and two up."""
    clients, steps = torch.tensor(clients), torch.tensor(steps)
    return Visit(round, clients, steps, 10 * steps, 1e6, 2e6)


steps_of = st.lists(st.integers(1, 50), min_size=1, max_size=8)
positive = st.floats(1e-3, 1e3)


@settings(max_examples=60)
@given(steps_of, positive, positive, positive, positive, positive, positive)
def test_a_constant_round_is_its_formula(steps, step, sample, down, up, latency, server):
    clock = ConstantClock(server, step, sample, down, up, latency).bind(len(steps), 0)
    k = max(steps)
    expected = latency + 1 / down + k * step + 10 * k * sample + 2 / up + server
    assert clock.lasts(visit(range(len(steps)), steps)) == pytest.approx(expected, rel=1e-12)
    assert clock.lasts(None) == server


def test_null_bandwidth_takes_no_time():
    clock = ConstantClock(seconds_per_step=1.0, down_mbps=None, up_mbps=None).bind(1, 0)
    assert clock.lasts(visit([0], [3])) == 3.0
    assert ClockPerClient().bind(1, 0).lasts(visit([0], [3])) == 0.0


@settings(max_examples=40)
@given(st.integers(0, 99), st.integers(0, 20), st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
def test_one_more_client_never_shortens_a_round(seed, t, speed, bandwidth, jitter):
    clock = LognormalClock(speed_sigma=speed, bandwidth_sigma=bandwidth, jitter_sigma=jitter)
    clock.bind(8, seed)
    lasts = [clock.lasts(visit(range(n), [5] * n, t)) for n in range(1, 9)]
    assert lasts == sorted(lasts)
    alone = [clock.lasts(visit([i], [5], t)) for i in range(8)]
    assert lasts[-1] == max(alone)
    assert clock.lasts(visit(range(7, -1, -1), [5] * 8, t)) == lasts[-1]


def test_clients_alike_are_the_constant_clock():
    one = LognormalClock(0.5, 0.02, 0.001, 8.0, 2.0, 0.3, 0.0, 0.0, 0.0).bind(4, 3)
    other = ConstantClock(0.5, 0.02, 0.001, 8.0, 2.0, 0.3).bind(4, 3)
    assert one.lasts(visit(range(4), [1, 2, 3, 4])) == other.lasts(visit(range(4), [1, 2, 3, 4]))


def test_speeds_are_lognormal_and_drawn_once_per_client():
    """4000 clients: mean and sd of the logarithm within five standard errors of the median's."""
    n, sigma = 4000, 0.7
    clock = LognormalClock(
        seconds_per_step=0.02,
        seconds_per_sample=0.01,
        speed_sigma=sigma,
        bandwidth_sigma=0.3,
        up_mbps=4.0,
    ).bind(n, 0)
    one, later = (clock.speeds(t, torch.arange(n)) for t in (0, 7))
    assert torch.equal(one.step, later.step)
    assert torch.equal(one.up, later.up)
    for values, median, spread in ((one.step, 0.02, sigma), (one.up, 4e6, 0.3)):
        logs = (values / median).log()
        assert abs(logs.mean()) < 5 * spread / math.sqrt(n)
        assert abs(logs.std() - spread) < 5 * spread / math.sqrt(2 * n)
    quicker = (0.3 * client_normals(0, "bandwidth", 0, torch.arange(n))).exp()
    assert torch.equal(one.up, 4e6 * quicker)
    assert torch.equal(one.down, 20e6 * quicker)
    assert torch.equal(2 * one.sample, one.step)
    together = torch.corrcoef(torch.stack([one.step.log(), one.up.log()]))[0, 1]
    assert abs(together) < 5 / math.sqrt(n)
    assert torch.equal(clock.speeds(3, torch.tensor([17])).step, one.step[[17]])
    other = LognormalClock(speed_sigma=sigma).bind(n, 1).speeds(0, torch.arange(n))
    assert not torch.equal(other.step, one.step)


def test_jitter_is_drawn_for_every_round_and_visit():
    """1000 rounds of one client: the logarithm's mean and sd within five standard errors."""
    clock = LognormalClock(jitter_sigma=0.4).bind(2, 0)
    logs = torch.cat([clock.speeds(t, torch.tensor([1])).slowness.log() for t in range(1000)])
    assert abs(logs.mean()) < 5 * 0.4 / math.sqrt(1000)
    assert abs(logs.std() - 0.4) < 5 * 0.4 / math.sqrt(2000)
    twice = clock.speeds(0, torch.tensor([1, 1]))
    assert twice.slowness[0] == clock.speeds(0, torch.tensor([1])).slowness
    assert twice.slowness[0] != twice.slowness[1]
    assert twice.step[0] == twice.step[1]  # one client, one machine


def test_jitter_is_a_factor_on_the_whole_time_of_a_client():
    calm, wild = (
        LognormalClock(latency_seconds=0.3, jitter_sigma=sigma).bind(2, 0) for sigma in (0.0, 0.4)
    )
    factor = float((0.4 * client_normals(0, "jitter", 5, torch.tensor([1]))).exp())
    assert wild.lasts(visit([1], [3], 5)) == pytest.approx(factor * calm.lasts(visit([1], [3], 5)))


def test_dropped_stragglers_hold_nobody_up():
    clock = ClockPerClient(seconds_per_step=[1.0, 2.0, 4.0])
    work, everyone = Stragglers(1 / 3), torch.arange(3)
    sgd = LocalSGD(steps=1, batch_size=None)
    rows = totals_of(clock, rounds=6, work=work, sgd=sgd)
    late = [int(work.late(t, everyone).nonzero()) for t in range(6)]
    assert 2 in late  # else nothing is tested
    expected = [2.0 if i == 2 else 4.0 for i in late]
    assert rows[-1]["clock/seconds"] == sum(expected)


def test_kept_stragglers_are_sooner_done():
    sgd = LocalSGD(steps=6, batch_size=None)
    clock = ConstantClock(seconds_per_step=1.0, down_mbps=None, up_mbps=None)
    work = Stragglers(1.0, "keep")
    rows = totals_of(clock, rounds=3, work=work, sgd=sgd)
    most = [int(work.amount(t, torch.arange(3)).max()) for t in range(3)]
    assert rows[-1]["clock/seconds"] == sum(most) < 18


def test_the_initial_visit_takes_time():
    clock = ConstantClock(seconds_per_step=1.0, down_mbps=None, up_mbps=None)
    sgd = LocalSGD(steps=2, batch_size=None)
    rows = totals_of(clock, [[0]], sgd=sgd, algorithm=FedCDR(eta=0.5, init="prox_mean"))
    assert rows[0]["clock/seconds"] == 4.0


def experiment(**changes):
    clock = {"kind": "lognormal", "jitter_sigma": 0.3}
    return small_digits.experiment(**{"clock": clock, "rounds": 6, "eval_every": 2, **changes})


def test_time_is_in_the_history_and_a_resumed_run_goes_on(tmp_path):
    whole = run(experiment())
    times = [row["clock/seconds"] for row in whole.history]
    assert times == sorted(set(times))
    assert whole.metrics["clock/seconds"] == times[-1]
    resumed = small_digits.cut_off_and_resumed(experiment(), 6, tmp_path / "run.ckpt")
    assert resumed.history == whole.history
    assert resumed.metrics == whole.metrics


def test_a_clock_changes_no_other_number():
    timed, plain = run(experiment()), run(experiment(clock="none"))
    assert [{k: v for k, v in row.items() if k != "clock/seconds"} for row in timed.history] == (
        plain.history
    )


@pytest.mark.parametrize(
    ("clock", "message"),
    [
        ("lognormall", "clock.kind: unknown clock 'lognormall'; did you mean 'lognormal'?"),
        ({"kind": "constant", "up_mbs": 1}, "clock.up_mbs: unknown key; did you mean 'up_mbps'?"),
        ({"kind": "constant", "down_mbps": 0}, "clock.down_mbps: found 0; should be greater than"),
        ({"kind": "lognormal", "speed_sigma": -1}, "clock.speed_sigma: found -1; should be"),
        (
            {"kind": "per_client", "up_mbps": [1.0, 2.0]},
            "clock: up_mbps has 2 entries for 12 clients",
        ),
        ({"kind": "none", "server_seconds": 1}, "clock.server_seconds: unknown key"),
    ],
    ids=str,
)
def test_what_is_wrong_has_its_dotted_key(clock, message):
    with pytest.raises(ConfigError) as caught:
        experiment(clock=clock)
    (found,) = caught.value.problems
    assert found.startswith(message)


def test_a_clock_may_be_set_by_its_dotted_name():
    timed = experiment(clock="constant").with_values({"clock.seconds_per_step": 2.0})
    assert timed.clock.build().seconds_per_step == 2.0
    assert timed.as_params()["clock.kind"] == "constant"
