"""Where methods end on three quadratics: at the minimiser, or at a known other point."""

import json
from pathlib import Path

import pytest
import torch
from quadratics import fit, quadratics

from fltune.algorithms.autonomous import Autonomous
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedbuff import FedBuff
from fltune.algorithms.fedcdr import FedCDR, FedDR
from fltune.algorithms.feddc import FedDC
from fltune.algorithms.fednova import FedNova
from fltune.algorithms.fedprox import FedProx
from fltune.federation import LocalSGD
from fltune.federation.work import WorkPerClient
from fltune.server.fedgm import FedSGD

GOLDEN = Path(__file__).parent.parent / "golden"
LIMITS = json.loads((GOLDEN / "limits.json").read_text())
DR_LIMITS = json.loads((GOLDEN / "fedcdr_feddr.json").read_text())["limits"]
A, B = LIMITS["problem"]["A"], LIMITS["problem"]["b"]
X_STAR = torch.tensor(LIMITS["x_star"], dtype=torch.float64)

FULL = [[0, 1, 2]]
PAIRS = [[0, 1], [1, 2], [0, 2]]  # clients t, t + 1 mod 3
SINGLES = [[0], [1], [2]]  # client t mod 3


def limit(algorithm, pattern, rounds=120, **options):
    sgd = {"lr": LIMITS["hyper"]["local_lr"], "steps": LIMITS["hyper"]["local_steps"]}
    work, server = options.pop("work", None), options.pop("server", None)
    recorded, _ = fit(
        quadratics(A, B),
        server,
        x0=LIMITS["x0"],
        cohorts=pattern * (rounds // len(pattern)),
        algorithm=algorithm,
        sgd=LocalSGD(**{**sgd, **options}, batch_size=None),
        work=work,
        strategy="stacked",
    )
    return recorded.x[-1]


def assert_limit(found, expected):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def row_of(name):
    return next(r for r in LIMITS["rows"] if r["algorithm"].startswith(name))


TWO_STEPS = {"lr": 0.1, "steps": 2, "rounds": 180}
REACH = {
    "fedcdr_exact_pairs": (FedCDR(eta=0.4, prox="exact"), PAIRS, {}),
    "fedcdr_exact_singles": (FedCDR(eta=0.4, prox="exact"), SINGLES, {}),
    "fedcdr_prox_mean": (FedCDR(eta=0.4, prox="exact", init="prox_mean"), SINGLES, {}),
    "feddr_exact": (FedDR(eta=0.4, alpha=1.5, prox="exact"), PAIRS, {}),
    "fedcdr_server_pairs": (FedCDR(eta=0.4), PAIRS, TWO_STEPS),
    "fedcdr_server_singles": (FedCDR(eta=0.4), SINGLES, TWO_STEPS),
    "fedcdr_local_singles": (FedCDR(eta=0.4, warm_start="local"), SINGLES, TWO_STEPS),
    "feddc_code_full": (FedDC(alpha=0.1), FULL, {}),
    "feddc_code_pairs": (FedDC(alpha=0.1), PAIRS, {}),
    # alpha = 0.1 gets there too, in thousands of rounds
    "feddc_paper_full": (FedDC(alpha=1.0, variant="paper"), FULL, {}),
    "feddc_paper_pairs": (FedDC(alpha=1.0, variant="paper"), PAIRS, {"rounds": 210}),
}


@pytest.mark.parametrize("name", REACH)
def test_reaches_the_minimiser(name):
    algorithm, pattern, options = REACH[name]
    assert_limit(limit(algorithm, pattern, **options), X_STAR)


class Misprint(FedCDR):
    """The y of FedCDR's appendix A: x_i + alpha (x - x_i)."""

    def center(self, x, client):
        return client["x"] + self.alpha * (x - client["x"])


ELSEWHERE = {
    "fedcdr_center": (
        FedCDR(eta=0.4, warm_start="center"),
        SINGLES,
        TWO_STEPS,
        DR_LIMITS["inexact_2_steps_start_center"],
    ),
    "fedcdr_prox_server_x0": (
        FedCDR(eta=0.4, prox="exact", init="prox_server_x0"),
        SINGLES,
        {},
        DR_LIMITS["init_prox_server_x0"],
    ),
    "fedcdr_misprint": (
        Misprint(eta=0.4, prox="exact"),
        SINGLES,
        {},
        DR_LIMITS["appendix_y_rule"],
    ),
    "fedprox_exact": (
        FedProx(mu=0.5, exact=True),
        FULL,
        {},
        row_of("fedprox exact mu=0.5")["limit"],
    ),
    "fednova_unequal": (
        FedNova(),
        FULL,
        {"steps": 6, "work": WorkPerClient([1, 3, 6])},
        row_of("fednova steps 1,3,6")["limit"],
    ),
    "fedavg_unequal": (
        FedAvg(),
        FULL,
        {"steps": 6, "work": WorkPerClient([1, 3, 6])},
        row_of("fedavg steps 1,3,6")["limit"],
    ),
    "fednova_equal": (FedNova(), FULL, {}, row_of("fedavg")["limit"]),
    "fedbuff_fresh": (FedBuff(), FULL, {}, row_of("fedavg")["limit"]),
    "autonomous_fresh": (Autonomous(), FULL, {"server": FedSGD(5.0)}, row_of("fedavg")["limit"]),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_stops_elsewhere(name):
    algorithm, pattern, options, expected = ELSEWHERE[name]
    found = limit(algorithm, pattern, **options)
    assert_limit(found, expected)
    assert (found - X_STAR).norm() > 1e-2


def test_fedprox_stops_where_the_closed_form_says():
    mu, matrices = 0.5, torch.tensor(A, dtype=torch.float64)
    inverse = torch.linalg.inv(matrices + mu * torch.eye(2, dtype=torch.float64))
    linear = torch.einsum("nij,njk,nk->i", inverse, matrices, torch.tensor(B).double()) / 3
    expected = torch.linalg.solve(torch.eye(2) - mu * inverse.mean(0), linear)
    assert_limit(limit(FedProx(mu=mu, exact=True), FULL), expected)


def test_fednova_stops_nearer_than_fedavg():
    far, near = (torch.tensor(ELSEWHERE[k][3]) for k in ("fedavg_unequal", "fednova_unequal"))
    assert (near - X_STAR).norm() < (far - X_STAR).norm()


def test_feddc_as_printed_diverges_and_active_stops_elsewhere():
    printed = limit(FedDC(alpha=0.1, variant="paper", drift_mean="active"), PAIRS, rounds=300)
    assert row_of("feddc paper drift_mean=active")["kind"] == "diverges"
    assert printed.abs().max() > 10
    active = limit(FedDC(alpha=0.1, drift_mean="active"), SINGLES)
    assert (active - X_STAR).norm() > 1e-2
