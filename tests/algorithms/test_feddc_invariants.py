"""Identities of FedDC."""

import pytest
import torch
from quadratics import fit, slope, slopes
from random_problems import path, property_test, same, steps_from

from fltune.algorithms.feddc import FedDC
from fltune.federation import LocalSGD
from fltune.federation.compression import Grid
from fltune.federation.work import WorkPerClient

FORMS = [(v, m) for v in ("code", "paper") for m in ("all", "active")]


def feddc(problem, cohorts, lr, alpha, variant, drift_mean):
    """The rule as it is written, one client after another, each with its own K_i."""
    x = torch.tensor(problem.x0, dtype=torch.float64)
    N, g = problem.clients, torch.zeros_like(x)
    h, gi, found = torch.zeros(N, len(x)).double(), torch.zeros(N, len(x)).double(), []
    for cohort in cohorts:
        ends, new = {}, gi.clone()
        for i in cohort:
            unit = lr * problem.steps[i]
            c = g - gi[i] if variant == "code" else (gi[i] - g) / unit

            def extra(w, i=i, c=c, x=x):
                return alpha * (w + h[i] - x) + c

            z = ends[i] = steps_from(problem, i, x, lr, problem.steps[i], extra)
            new[i] = gi[i] - g + (x - z) / unit if variant == "code" else z - x
        for i, z in ends.items():
            h[i] = h[i] + z - x
        g, gi = g + (new - gi).sum(0) / N, new
        if ends and drift_mean == "all":
            x = sum(ends.values()) / len(ends) + h.mean(0)
        elif ends:
            x = sum(z + h[i] for i, z in ends.items()) / len(ends)
        found.append(x)
    return torch.stack(found)


@pytest.mark.parametrize(("variant", "drift_mean"), FORMS)
@property_test(5)
def test_feddc_with_unequal_steps_is_the_rule(variant, drift_mean, problem):
    algorithm = FedDC(alpha=0.3, variant=variant, drift_mean=drift_mean)
    recorded = problem.run(algorithm, lr=0.05, unequal=True)
    expected = feddc(problem, problem.cohorts, 0.05, 0.3, variant, drift_mean)
    torch.testing.assert_close(path(recorded), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_feddc_infers_constant_gradients_whatever_the_momentum(momentum):
    g = torch.tensor([[1.0, 2.0], [-3.0, 0.5], [0.2, 0.1]], dtype=torch.float64)
    recorded, _ = fit(
        slopes(g.tolist()),
        x0=[0.3, -0.4],
        rounds=3,
        algorithm=FedDC(alpha=1e-14),
        sgd=LocalSGD(0.1, steps=6, batch_size=None, momentum=momentum),
        work=WorkPerClient([1, 3, 6]),
        losses=slope,
    )
    for clients in recorded.clients:
        same(clients["g"], g)


@pytest.mark.parametrize("compressor", [None, Grid(0.25)], ids=["plain", "compressed"])
@pytest.mark.parametrize(("variant", "drift_mean"), FORMS)
@property_test(4)
def test_feddc_knows_the_means(variant, drift_mean, compressor, problem):
    algorithm = FedDC(variant=variant, drift_mean=drift_mean)
    recorded = problem.run(algorithm, lr=0.05, compressor=compressor)
    for server, clients in zip(recorded.server, recorded.clients, strict=True):
        same(server["g"], clients["g"].mean(0))
        assert ("h" in server) == (drift_mean == "all")
        if drift_mean == "all":
            same(server["h"], clients["h"].mean(0))


@property_test(5)
def test_feddc_drift_means_agree_with_all_clients(problem):
    runs = {
        form: path(problem.run(FedDC(variant=form[0], drift_mean=form[1]), problem.everyone))
        for form in FORMS
    }
    for variant in ("code", "paper"):
        same(runs[variant, "all"], runs[variant, "active"])
    same(runs["code", "all"][0], runs["paper", "all"][0])
