"""Identities of FedProx, FedNova and CyCP's two optimizers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, slope, slopes
from random_problems import of, path, positions, property_test, prox, same

from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fednova import FedNova, effective_steps
from fltune.algorithms.fedprox import FedProx
from fltune.federation import LocalSGD
from fltune.federation.work import WorkPerClient
from fltune.server.fedgm import FedSGD


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
@property_test(4)
def test_fedprox_without_a_pull_is_fedavg_to_the_last_bit(strategy, problem):
    runs = [path(problem.run(a, strategy=strategy)) for a in (FedProx(mu=0.0), FedAvg())]
    assert torch.equal(*runs)


@property_test(4)
def test_an_exact_fedprox_round_is_the_mean_of_proxes(problem):
    recorded = problem.run(FedProx(mu=0.4, exact=True), eta_g=1.0)
    before = positions(problem, recorded)
    for cohort, x, after in zip(problem.cohorts, before, recorded.x, strict=False):
        if cohort:
            same(after, torch.stack([prox(problem, i, x, 1 / 0.4) for i in cohort]).mean(0))


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}], ids=["plain", "momentum"])
@property_test(5)
def test_fednova_with_equal_steps_is_fedavg(options, problem):
    same(path(problem.run(FedNova(), **options)), path(problem.run(FedAvg(), **options)))


@given(st.integers(1, 40), st.floats(0.0, 0.95), st.floats(0.01, 1.0))
@settings(max_examples=30, deadline=None)
def test_effective_steps_are_the_papers(steps, momentum, pull):
    found = effective_steps(torch.tensor([steps]), momentum).item()
    powers = [(1 - momentum**k) / (1 - momentum) for k in range(1, steps + 1)]
    assert found == pytest.approx(sum(powers), rel=1e-12)
    pulled = effective_steps(torch.tensor([steps]), 0.0, pull).item()
    assert pulled == pytest.approx((1 - (1 - pull) ** steps) / pull, rel=1e-12)
    assert effective_steps(torch.tensor([steps, 0]), 0.0).tolist() == [steps, 0]


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}], ids=["plain", "momentum"])
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_fednova_undoes_unequal_steps_of_constant_gradients(mu, options):
    """Clients whose gradient is g_i everywhere: D = tau_eff eta_l mean(g_i), whatever K_i."""
    steps, g = [1, 3, 6], torch.tensor([[1.0, 2.0], [-3.0, 0.5], [0.2, 0.1]], dtype=torch.float64)
    recorded, _ = fit(
        slopes(g.tolist()),
        x0=[0.3, -0.4],
        rounds=1,
        algorithm=FedNova(mu=mu),
        sgd=LocalSGD(0.1, steps=6, batch_size=None, **options),
        work=WorkPerClient(steps),
        losses=slope,
    )
    made = torch.tensor(steps)
    if mu == 0:
        made = effective_steps(made, options.get("momentum", 0.0))
    same(recorded.d[0], made.double().mean() * 0.1 * g.mean(0))


@pytest.mark.parametrize("batches", ["shuffled", "fixed"])
@property_test(4)
def test_gd_is_one_step_of_sgd_and_shuffled_sgd_of_one_component(batches, problem):
    gd = problem.run(FedAvg(), steps=1)
    recorded, _ = fit(
        of(problem),
        FedSGD(0.8),
        x0=problem.x0,
        cohorts=problem.cohorts,
        sgd=LocalSGD(0.1, epochs=1, batch_size=None, batches=batches),
    )
    assert torch.equal(path(gd), path(recorded))
