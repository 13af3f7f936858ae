import math

import pytest
import small_digits
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.algorithms.autonomous import Autonomous
from fltune.algorithms.fedbuff import FedBuff
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import LocalSGD
from fltune.federation.clock import ConstantClock, LognormalClock, Visit
from fltune.federation.delays import RecordedDelays
from fltune.federation.work import UniformWork
from fltune.participation.asynchronous import Asynchronous
from fltune.runner import run

ALIKE = {"speed_sigma": 0.0, "jitter_sigma": 0.0}


@st.composite
def patterns(draw):
    """(a fresh bound pattern on each call, number of clients)"""
    n = draw(st.integers(1, 12))
    options = {
        "concurrency": draw(st.integers(1, n)),
        "buffer": draw(st.integers(1, 8)),
        "seconds": draw(st.floats(0.01, 100)),
        "speed_sigma": draw(st.just(0.0) | st.floats(0, 2)),
        "jitter_sigma": draw(st.just(0.0) | st.floats(0, 2)),
        "max_delay": draw(st.none() | st.integers(0, 5)),
    }
    seed = draw(st.integers(0, 99))
    return lambda: Asynchronous(**options).bind(n, seed), n


def rounds_of(pattern, rounds):
    """(clients, delays, discarded, time) of the next rounds."""
    made = []
    for _ in range(rounds):
        (cohort,) = pattern
        now = pattern.arrivals
        made.append((cohort, now.delays.tolist(), now.discarded, now.seconds))
    return made


@settings(max_examples=60)
@given(patterns())
def test_buffers_are_full_and_delays_are_versions_that_there_were(drawn):
    make, n = drawn
    pattern = make()
    made = rounds_of(pattern, 10)
    torch.manual_seed(1)  # nobody's business
    assert rounds_of(make(), 10) == made
    times = [seconds for *_, seconds in made]
    assert times == sorted(times)
    assert times[0] > 0
    for t, (cohort, delays, discarded, _) in enumerate(made):
        assert len(cohort) == len(delays) == pattern.buffer
        assert cohort == sorted(cohort)
        assert all(type(i) is int and 0 <= i < n for i in cohort)
        most = t if pattern.max_delay is None else min(t, pattern.max_delay)
        assert all(0 <= delay <= most for delay in delays)
        assert discarded >= 0
        assert discarded == 0 or pattern.max_delay is not None
    assert pattern.report()["discarded"] == sum(discarded for *_, discarded, _ in made)
    jobs = pattern.state_dict()["jobs"]
    assert len({client for _, _, client, _ in jobs}) == len(jobs) == pattern.concurrency


@settings(max_examples=60)
@given(patterns(), st.integers(0, 8))
def test_resumes_in_the_middle(drawn, cut):
    make, _ = drawn
    whole, stopped, resumed = make(), make(), make()
    expected = rounds_of(whole, 8)
    start = rounds_of(stopped, cut)
    resumed.load_state_dict(stopped.state_dict())
    assert start + rounds_of(resumed, 8 - cut) == expected
    assert resumed.report() == whole.report()
    assert whole.bind(whole.num_clients, whole.seed) is whole
    assert rounds_of(whole, 8) == expected


@settings(max_examples=40)
@given(patterns(), st.integers(1, 30))
def test_delays_add_up(drawn, rounds):
    """Every round ages the M - 1 jobs at work by one; each job's age is counted once.

    So the delays of all arrivals, discarded ones too, plus the ages of the jobs still at work are
    rounds * (M - 1). Those taken cannot be more.
    """
    make, _ = drawn
    pattern = make()
    made = rounds_of(pattern, rounds)
    taken = sum(sum(delays) for _, delays, _, _ in made)
    at_work = sum(rounds - version for *_, version in pattern.state_dict()["jobs"])
    total = rounds * (pattern.concurrency - 1)
    if pattern.report()["discarded"]:
        assert taken + at_work < total
    else:
        assert taken + at_work == total


@pytest.mark.parametrize(("m", "z"), [(20, 5), (12, 12), (5, 10), (40, 1)])
def test_the_mean_delay_is_clients_at_work_by_buffer(m, z):
    """About M / Z: exactly (M - 1) / Z but for the M jobs at work in the end, under 5% of 4000."""
    pattern = Asynchronous(m, z, speed_sigma=0.0, jitter_sigma=0.3).bind(60, 0)
    delays = [delay for _, delays, _, _ in rounds_of(pattern, 4000 // z) for delay in delays]
    mean = sum(delays) / len(delays)
    assert 0 <= (m - 1) / z - mean <= 0.05 * (m - 1) / z


def test_equal_clients_are_drawn_equally_often():
    """4000 arrivals of 20 clients: counts are near binomial; five standard deviations are 69."""
    pattern = Asynchronous(4, 10, **ALIKE).bind(20, 0)
    rounds_of(pattern, 400)
    assert pattern.turns.counts.sum() == 4000
    assert ((pattern.turns.counts - 200).abs() < 69).all()


def test_slow_clients_arrive_less_often():
    """With everybody at work a client arrives as often as its speed allows."""
    pattern = Asynchronous(30, 10, speed_sigma=1.0, jitter_sigma=0.0).bind(30, 0)
    rounds_of(pattern, 500)
    clock = LognormalClock(speed_sigma=1.0).bind(30, 0)
    speed = 1 / clock.speeds(0, torch.arange(30)).step
    assert torch.corrcoef(torch.stack([speed, pattern.turns.counts.double()]))[0, 1] > 0.99


def test_time_passes_as_jobs_end():
    """M equal jobs a second at a time: R rounds of Z need ceil(R Z / M) of them."""
    pattern = Asynchronous(4, 3, seconds=2.0, **ALIKE).bind(10, 0)
    for t, (*_, seconds) in enumerate(rounds_of(pattern, 12)):
        assert seconds == 2.0 * math.ceil(3 * (t + 1) / 4)


def test_one_client_is_as_slow_as_under_the_clock():
    clock = LognormalClock(
        seconds_per_step=0.5, speed_sigma=0.8, down_mbps=None, up_mbps=None
    ).bind(1, 7)
    visit = Visit(0, torch.tensor([0]), torch.tensor([6]), torch.tensor([6]), 64, 64)
    pattern = Asynchronous(1, 1, seconds=6 * 0.5, speed_sigma=0.8, jitter_sigma=0.0).bind(1, 7)
    (first, second) = rounds_of(pattern, 2)
    assert first[3] == pytest.approx(clock.lasts(visit), rel=1e-12)
    assert second[3] == pytest.approx(2 * first[3], rel=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(0, 3))
def test_who_works_when_does_not_depend_on_what_is_discarded(seed, max_delay):
    """With a buffer of one, what is taken is part of what a server that takes all would see."""
    everything = rounds_of(Asynchronous(6, 1).bind(9, seed), 200)
    some = rounds_of(Asynchronous(6, 1, max_delay=max_delay).bind(9, seed), 20)
    arrivals = {(cohort[0], seconds) for cohort, _, _, seconds in everything}
    assert {(cohort[0], seconds) for cohort, _, _, seconds in some} <= arrivals
    assert sum(discarded for *_, discarded, _ in some) > 0


def test_the_method_says_what_is_too_old():
    pattern = Asynchronous(6, 1).bind(9, 0)
    pattern.admit(2)
    assert max(delays[0] for _, delays, _, _ in rounds_of(pattern, 50)) == 2
    with pytest.raises(ValueError, match="max_delay = 3 is more than 2, the age of the oldest"):
        Asynchronous(max_delay=3).admit(2)
    with pytest.raises(ValueError, match="the method keeps none"):
        Asynchronous().admit(0)
    with pytest.raises(ValueError, match="concurrency = 6 is more than the 5 clients there are"):
        Asynchronous(6).bind(5, 0)


FEW = [(10, 5, 4), (10, 10, 19), (50, 10, 19)]
MANY = [(20, 5, 4), (50, 5, 4), (150, 10, 19)]


@pytest.mark.parametrize(("m", "z", "oldest"), FEW + MANY)
def test_the_warning_foresees_what_is_discarded(m, z, oldest):
    """3% or less in the first cases, 14% or more in the others."""
    pattern = Asynchronous(m, z).bind(200, 0)
    pattern.admit(oldest)
    rounds_of(pattern, 2000 // z)
    discarded = pattern.report()["discarded"]
    many = discarded > 0.05 * (discarded + 2000)
    assert many == ((m, z, oldest) in MANY)
    found = pattern.warnings(oldest)
    assert len(found) == many
    assert all(f"older than {oldest} are discarded, which biases the mod" in text for text in found)


def test_the_warning_goes_by_max_delay_and_by_spread():
    assert Asynchronous(10, 5, max_delay=2).warnings(19)
    assert not Asynchronous(10, 5, max_delay=2, **ALIKE).warnings(19)  # 1.8 rounds old, all alike
    assert Asynchronous(10, 5, speed_sigma=3.0).warnings(19)


def test_fedbuff_keeps_nearly_all_updates_as_it_comes():
    """The paper's server takes all of them, with a buffer of 10."""
    assert Asynchronous().buffer == 10
    for m in (10, 50):
        pattern = Asynchronous(m).bind(200, 0)
        pattern.admit(FedBuff().oldest_start())
        rounds_of(pattern, 200)
        assert pattern.report()["discarded"] < 0.005 * 2000


A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]], [[3.0, -0.5], [-0.5, 1.0]]]
B = [[1.0, 0.1], [-1.0, 2.0], [0.5, -1.0]]


@pytest.mark.parametrize("algorithm", [FedBuff(window=8), Autonomous(window=8)], ids=str)
@pytest.mark.parametrize("strategy", ["loop", "stacked"])
def test_a_run_is_that_of_its_recorded_arrivals(algorithm, strategy):
    """The same cohorts as a trace and the same delays as a record give the same model."""
    pattern = Asynchronous(3, 2)
    options = {"algorithm": algorithm, "strategy": strategy, "x0": [3.0, 3.0]}
    own, _ = fit(quadratics(A, B), rounds=12, participation=pattern, **options)
    made = rounds_of(pattern.bind(3, 0), 12)
    assert any(len(set(cohort)) < 2 for cohort, *_ in made)  # a client stands twice
    traced, _ = fit(
        quadratics(A, B),
        cohorts=[cohort for cohort, *_ in made],
        repeats=True,
        delays=RecordedDelays([delays for _, delays, _, _ in made]),
        **options,
    )
    assert torch.equal(torch.stack(own.x), torch.stack(traced.x))
    assert own.bits == traced.bits
    assert [row["clock/seconds"] for row in own.totals] == [seconds for *_, seconds in made]
    assert "clock/seconds" not in traced.totals[0]


def test_discarded_updates_cost_their_traffic():
    """d = 2: 64 bits a way for each arrival, taken or not."""
    pattern = Asynchronous(3, 1, max_delay=0)
    recorded, _ = fit(
        quadratics(A, B), rounds=9, participation=pattern, algorithm=FedBuff(window=2)
    )
    discarded = recorded.totals[-1]["participation/discarded"]
    assert discarded > 0
    assert recorded.bits[-1] == (64 * (9 + discarded), 64 * (9 + discarded))
    assert recorded.totals[-1]["client_samples"] == 9 * 2  # full batches of one sample, two steps


def test_a_python_run_is_checked_as_a_config_is():
    data, options = quadratics(A, B), {"rounds": 1, "algorithm": FedBuff()}
    with pytest.raises(ValueError, match="has delays of its own; leave these out"):
        fit(data, participation=Asynchronous(2), delays=RecordedDelays([[0]]), **options)
    with pytest.raises(ValueError, match="has a time of its own; leave the clock out"):
        fit(data, participation=Asynchronous(2), clock=ConstantClock(), **options)
    with pytest.raises(ValueError, match="the method keeps none"):
        fit(data, participation=Asynchronous(2), rounds=1)


def experiment(**changes):
    raw = {
        "data": {"name": "digits", "clients": 40},
        "model": {"name": "mlp", "hidden": [32]},
        "participation": {"kind": "asynchronous", "concurrency": 10, "buffer": 5},
        "client": {"lr": 0.2, "epochs": 2, "batch_size": 16},
        "algorithm": {"name": "fedbuff", "window": 10},
        "rounds": 60,
        "eval_every": 15,
        "device": "cpu",
    }
    return Experiment.parse({**raw, **changes})


def test_fedbuff_learns_digits_and_resumes_in_the_middle(tmp_path):
    whole = run(experiment())
    assert whole.metrics["test/accuracy"] > 0.8
    times = [row["clock/seconds"] for row in whole.history]
    assert times == sorted(set(times))
    assert whole.metrics["clock/seconds"] == times[-1]
    assert whole.metrics["participation/discarded"] == whole.participation["discarded"]
    resumed = small_digits.cut_off_and_resumed(experiment(), 45, tmp_path / "run.ckpt")
    assert resumed.history == whole.history
    assert (resumed.metrics, resumed.participation) == (whole.metrics, whole.participation)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "fedavg"}, "participation: updates start from models of past rounds, and"),
        ({"algorithm": {"name": "fedbuff", "window": 1}}, "participation: updates start from mod"),
        (
            {"delays": {"kind": "uniform", "window": 2}},
            "delays: the participation pattern has delays of its own; leave these out",
        ),
        (
            {"clock": "constant"},
            "clock: the participation pattern has a time of its own; leave the clock out",
        ),
        (
            {"work": {"kind": "stragglers", "policy": "drop"}},
            "work: asynchronous clients are never late: none can be dropped",
        ),
        (
            {"compression": {"name": "topk", "k": 3, "error_feedback": True}},
            "compression: error feedback remembers one message of a client",
        ),
        (
            {"participation": {"kind": "asynchronous", "concurrency": 41}},
            "participation: concurrency = 41 is more than the 40 clients there are (data.clients)",
        ),
        (
            {"participation": {"kind": "asynchronous", "max_delay": 10}},
            "participation: max_delay = 10 is more than 9, the age of the oldest model that the",
        ),
        (
            {"participation": {"kind": "asynchronous", "concurency": 4}},
            "participation.concurency: unknown key; did you mean 'concurrency'?",
        ),
        (
            {"participation": "asynchronos"},
            "participation.kind: unknown participation pattern 'asynchronos'; did you mean",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_has_its_dotted_key(changes, message):
    with pytest.raises(ConfigError) as caught:
        experiment(**changes)
    (found,) = caught.value.problems
    assert found.startswith(message)


def test_kept_stragglers_and_own_amounts_go_with_asynchrony():
    experiment(work={"kind": "stragglers", "policy": "keep"})
    work = UniformWork(1, 40)
    _, module = fit(
        quadratics(A, B),
        rounds=4,
        participation=Asynchronous(1, 4),
        algorithm=FedBuff(),
        work=work,
        sgd=LocalSGD(steps=2, batch_size=None),
    )
    source = module.trainer.datamodule
    twice = source.cohort(3, [0, 0, 0, 1])
    assert len(set(twice.plan.steps[:3].tolist())) > 1  # own amounts in one buffer
