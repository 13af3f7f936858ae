"""Identities of FedCDR and FedDR, and the clients' rates that make methods warn."""

import pytest
import torch
from quadratics import A, B, fit, quadratics
from random_problems import path, property_test, prox, same

from fltune.algorithms.fedcdr import FedCDR, FedDR
from fltune.algorithms.feddc import FedDC
from fltune.algorithms.fednova import FedNova
from fltune.algorithms.fedprox import FedProx
from fltune.federation import LocalSGD
from fltune.federation.compression import Grid
from fltune.federation.schedules import Inverse

INEXACT = {"lr": 0.05, "steps": 3}
VARIANTS = [
    FedCDR(eta=0.5, prox="exact"),
    FedCDR(eta=0.5, alpha=1.6, warm_start="local"),
    FedCDR(eta=0.5, prox="exact", init="prox_mean"),
    FedCDR(eta=0.5, warm_start="center", init="prox_mean"),
    FedDR(eta=0.5),
    FedDR(eta=0.5, prox="exact", l1=0.1, l2=0.2),
    FedDR(eta=0.5, prox="exact", init="prox_mean", l1=0.1),
]
named = [pytest.param(a, id=f"{type(a).__name__}{k}") for k, a in enumerate(VARIANTS)]


@pytest.mark.parametrize("algorithm", named)
@property_test(6)
def test_the_model_is_the_mean_of_all_reflections(algorithm, problem):
    recorded = problem.run(algorithm, **INEXACT, eta_g=0.8)
    regularised = isinstance(algorithm, FedDR) and algorithm.regularised
    moved = algorithm.init != "consensus"
    for cohort, x, server, clients in zip(
        problem.cohorts, recorded.x, recorded.server, recorded.clients, strict=True
    ):
        mean = (2 * clients["x"] - clients["y"]).mean(0)
        if not regularised:
            same(x, mean)
            continue
        same(server["mean"], mean)
        moved |= bool(cohort)  # until then the model is x^0, though its prox would be sent
        same(x, algorithm.shrunk(mean) if moved else mean)


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
@property_test(4)
def test_feddr_with_a_regulariser_sends_the_prox_from_the_first_round_on(strategy, problem):
    """Section 3.12 of the rule, written out: xbar = prox_{eta r}(mean xhat), sent before it."""
    eta, alpha, l1, l2 = 0.4, 1.3, 0.6, 0.5
    algorithm = FedDR(eta=eta, alpha=alpha, prox="exact", l1=l1, l2=l2)
    cohorts = [[0, 1], [], [1], list(range(problem.clients))]
    recorded = problem.run(algorithm, cohorts, strategy=strategy)
    mean = torch.tensor(problem.x0, dtype=torch.float64)
    y, x = ([mean] * problem.clients for _ in range(2))
    for cohort, found, clients in zip(cohorts, recorded.x, recorded.clients, strict=True):
        sent = torch.sign(mean) * (mean.abs() - eta * l1).clamp(min=0) / (1 + eta * l2)
        for i in cohort:
            y[i] = y[i] + alpha * (sent - x[i])
            x[i] = prox(problem, i, y[i], eta)
        mean = sum(2 * a - b for a, b in zip(x, y, strict=True)) / problem.clients
        same(found, torch.sign(mean) * (mean.abs() - eta * l1).clamp(min=0) / (1 + eta * l2))
        same(clients["y"], torch.stack(y))
        same(clients["x"], torch.stack(x))


@property_test()
def test_an_exact_prox_leaves_y_at_x_plus_eta_times_the_gradient(problem):
    recorded = problem.run(FedCDR(eta=0.7, alpha=1.3, prox="exact"))
    seen = set()
    for cohort, clients in zip(problem.cohorts, recorded.clients, strict=True):
        seen |= set(cohort)
        found = clients["x"] + 0.7 * problem.gradients(clients["x"])
        for i in seen:
            same(clients["y"][i], found[i])


@property_test()
def test_all_clients_and_exact_proxes_are_douglas_rachford(problem):
    eta, alpha = 0.7, 1.3
    recorded = problem.run(FedCDR(eta=eta, alpha=alpha, prox="exact"), problem.everyone)
    x = torch.tensor(problem.x0, dtype=torch.float64)
    y = z = x.expand(problem.clients, -1)
    for found in recorded.x:
        y = y + alpha * (x - z)
        z = torch.stack([prox(problem, i, row, eta) for i, row in enumerate(y)])
        x = (2 * z - y).mean(0)
        same(found, x)


@pytest.mark.parametrize("warm_start", ["server", "local", "center"])
@property_test(3)
def test_many_inner_steps_are_an_exact_prox(warm_start, problem):
    rate = 1 / float(torch.linalg.matrix_norm(problem.A, 2).max() + 2)
    exact = problem.run(FedCDR(eta=0.5, prox="exact"))
    inexact = problem.run(
        FedCDR(eta=0.5, warm_start=warm_start), lr=rate, steps=150, strategy="stacked"
    )
    torch.testing.assert_close(path(inexact), path(exact), rtol=1e-7, atol=1e-7)


@property_test(4)
def test_the_server_rate_is_not_the_methods(problem):
    for algorithm in (FedCDR(eta=0.5), FedDR(eta=0.5, l1=0.1), FedDC()):
        runs = [path(problem.run(algorithm, eta_g=rate, lr=0.05)) for rate in (1.0, 0.3)]
        torch.testing.assert_close(*runs, rtol=1e-12, atol=1e-12)


def test_a_regulariser_of_weight_zero_is_none():
    recorded, _ = fit(quadratics(A, B), cohorts=[[0, 1]], algorithm=FedDR())
    assert recorded.server == [{}]


@property_test(4)
def test_feddr_reaches_the_minimiser_of_the_regularised_loss(problem):
    l1, l2 = 0.3, 0.2
    algorithm = FedDR(eta=0.3, alpha=1.0, prox="exact", l1=l1, l2=l2)
    x = problem.run(algorithm, [list(range(problem.clients))] * 150).x[-1]
    slope_at_x = problem.gradients(x.expand(problem.clients, -1)).mean(0) + l2 * x
    zero = x == 0
    assert (slope_at_x[zero].abs() <= l1).all()
    torch.testing.assert_close(slope_at_x[~zero], -l1 * torch.sign(x[~zero]), rtol=1e-6, atol=1e-6)


def test_douglas_rachford_refuses_compression_and_sample_weights():
    with pytest.raises(ValueError, match="needs exact differences; use compression: identity"):
        fit(quadratics(A, B), cohorts=[[0]], algorithm=FedCDR(), compressor=Grid())
    with pytest.raises(ValueError, match="weighting = 'samples' is not allowed"):
        FedCDR(weighting="samples")


def test_a_first_visit_by_all_is_paid_for():
    """With the client rate of round 0: 1 / (t + 1) has no value at t = -1."""
    algorithm = FedCDR(eta=0.5, init="prox_mean")
    sgd = LocalSGD(steps=2, batch_size=None, schedule=Inverse())
    recorded, module = fit(quadratics(A, B), cohorts=[[], [1]], algorithm=algorithm, sgd=sgd)
    assert recorded.bits == [(32 * 2 * n, 32 * 2 * n) for n in (3, 4)]
    assert module.client_samples == 4 * 2  # two local steps of one sample


@pytest.mark.parametrize(
    ("algorithm", "sgd", "count"),
    [
        (FedProx(mu=1.0), LocalSGD(lr=0.1), 0),
        (FedProx(mu=20.0), LocalSGD(lr=0.1), 1),
        (FedProx(mu=20.0), LocalSGD(lr=0.1, momentum=0.5), 0),
        (FedProx(mu=20.0, exact=True), LocalSGD(lr=0.1), 0),
        (FedNova(mu=20.0), LocalSGD(lr=0.1), 1),
        (FedCDR(), LocalSGD(lr=0.1), 0),
        (FedCDR(eta=0.05), LocalSGD(lr=0.1), 1),
        (FedCDR(eta=0.05, prox="exact"), LocalSGD(lr=0.1), 0),
        (FedCDR(warm_start="center", init="prox_server_x0"), LocalSGD(lr=0.1), 2),
        (FedDC(), LocalSGD(lr=0.1), 0),
        (FedDC(drift_mean="active"), LocalSGD(lr=0.1), 1),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, int) else str(v),
)
def test_warnings(algorithm, sgd, count):
    assert len(algorithm.warnings(sgd)) == count


def test_an_exact_fedprox_needs_a_pull():
    with pytest.raises(ValueError, match="exact = True needs mu > 0"):
        FedProx(mu=0.0, exact=True)
