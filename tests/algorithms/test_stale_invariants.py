"""Identities of methods that serve stale starts: FedBuff and Autonomous FedGM."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import A, B, fit, quadratics
from random_problems import of, path, problems, property_test, same, steps_from

from fltune.algorithms.autonomous import Autonomous
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedbuff import FedBuff
from fltune.algorithms.fedcdr import FedCDR
from fltune.algorithms.feddc import FedDC
from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.delays import RecordedDelays, UniformDelays
from fltune.federation.work import WorkPerClient
from fltune.participation.trace import Trace
from fltune.server.fedgm import FedGM, FedSGD


@st.composite
def stale(draw, problem):
    """Cohorts in which a client may stand twice, and how old its models are."""
    ids = st.lists(st.integers(0, problem.clients - 1), max_size=4).map(sorted)
    cohorts = draw(st.lists(ids, min_size=1, max_size=8))
    delays = [[draw(st.integers(0, min(t, 3))) for _ in cohort] for t, cohort in enumerate(cohorts)]
    return cohorts, delays


def run_stale(problem, algorithm, cohorts, delays, server, **options):
    return fit(
        of(problem),
        server,
        x0=problem.x0,
        cohorts=cohorts,
        algorithm=algorithm,
        sgd=LocalSGD(0.1, steps=3, batch_size=None),
        work=WorkPerClient(problem.steps),
        delays=RecordedDelays(delays),
        repeats=True,
        **options,
    )[0]


@pytest.mark.parametrize("exponent", [0.0, 0.5])
@pytest.mark.parametrize("strategy", ["loop", "stacked"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data(), problem=problems())
def test_fedbuff_is_the_rule(strategy, exponent, data, problem):
    cohorts, delays = data.draw(stale(problem))
    recorded = run_stale(
        problem, FedBuff("uniform", 4, exponent), cohorts, delays, FedSGD(0.7), strategy=strategy
    )
    history = [torch.tensor(problem.x0, dtype=torch.float64)]
    for t, (cohort, ages) in enumerate(zip(cohorts, delays, strict=True)):
        buffer = torch.zeros_like(history[0])
        for i, age in zip(cohort, ages, strict=True):
            x = history[t - age]
            moved = x - steps_from(problem, i, x, 0.1, problem.steps[i])
            buffer = buffer + (1 + age) ** -exponent * moved
        history.append(history[t] - 0.7 / max(len(cohort), 1) * buffer)
    same(path(recorded), torch.stack(history[1:]))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data(), problem=problems())
def test_autonomous_is_the_rule(data, problem):
    cohorts, delays = data.draw(stale(problem))
    recorded = run_stale(problem, Autonomous(window=4), cohorts, delays, FedSGD(0.7))
    history = [torch.tensor(problem.x0, dtype=torch.float64)]
    for t, (cohort, ages) in enumerate(zip(cohorts, delays, strict=True)):
        d = torch.zeros_like(history[0])
        for i, age in zip(cohort, ages, strict=True):
            x, count = history[t - age], problem.steps[i]
            d = d + (x - steps_from(problem, i, x, 0.1, count)) / count / len(cohort)
        history.append(history[t] - 0.7 * d)
    same(path(recorded), torch.stack(history[1:]))


@property_test(6)
def test_autonomous_with_fresh_models_and_equal_steps_is_fedgm_with_eta_over_k(problem):
    runs = [
        fit(
            of(problem),
            FedGM(eta, 0.9, 0.6),
            x0=problem.x0,
            cohorts=problem.cohorts,
            algorithm=algorithm,
            sgd=LocalSGD(0.1, steps=3, batch_size=None),
        )[0]
        for algorithm, eta in ((Autonomous(), 2.0), (FedAvg(), 2.0 / 3))
    ]
    same(*map(path, runs))


@property_test(6)
def test_fedbuff_with_all_clients_and_fresh_models_is_fedavg(problem):
    runs = [path(problem.run(a, problem.everyone)) for a in (FedBuff(window=1), FedAvg())]
    assert torch.equal(*runs)


def test_a_client_that_arrives_twice_draws_other_batches():
    split = Split(torch.zeros(30, 1, 2), torch.zeros(30, 1))
    data = FederatedData.from_clients(split, split, split, [torch.arange(30)], None)
    sgd = LocalSGD(epochs=1, batch_size=1)
    source = FederatedDataModule(data, Trace([[0, 0]], repeats=True).bind(1, 0), sgd, 0)
    first, second = source.cohort(0, [0, 0]).plan.index[:, :, 0].T.tolist()
    assert first != second
    assert sorted(first) == sorted(second) == list(range(30))


def test_a_trace_says_whether_a_client_may_stand_twice():
    with pytest.raises(ValueError, match=r"rounds\[1\] names a client twice: \[2, 2\]; allow it"):
        Trace([[0], [2, 2]]).bind(3, 0)
    pattern = Trace([[2, 0, 2]], repeats=True).bind(3, 0)
    assert next(iter(pattern)) == [0, 2, 2]


@pytest.mark.parametrize("algorithm", [FedCDR(), FedDC()], ids=["fedcdr", "feddc"])
def test_a_client_with_state_does_not_take_part_twice(algorithm):
    with pytest.raises(ValueError, match="methods with client state need distinct clients"):
        fit(quadratics(A, B), cohorts=[[1, 1]], algorithm=algorithm, repeats=True)


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (FedAvg(), "up to 4 rounds old; ignores delays"),
        (FedBuff(window=4), "up to 4 rounds old; keeps models up to 3 rounds old"),
    ],
    ids=["fedavg", "fedbuff"],
)
def test_delays_that_a_method_cannot_serve_are_refused(algorithm, says):
    with pytest.raises(ValueError, match=says):
        fit(quadratics(A, B), cohorts=[[0]], algorithm=algorithm, delays=UniformDelays(5))
    fit(quadratics(A, B), cohorts=[[0]], algorithm=FedBuff(window=5), delays=UniformDelays(5))


def test_delays_that_a_method_cannot_serve_are_an_error_of_the_config():
    raw = {"delays": {"kind": "uniform", "window": 3}}
    with pytest.raises(ConfigError, match=r"delays: .*ignores delays.*'fedavg'"):
        Experiment.parse(raw)
    Experiment.parse({**raw, "algorithm": {"name": "autonomous"}})
