"""FedSUM, SCAFFOLD and the memory methods against trajectories computed independently of fltune."""

import pytest
import torch
from quadratics import fit, quadratics
from test_golden import assert_close, both, golden

from fltune.algorithms.fedau import FedAU
from fltune.algorithms.fedawe import FedAWE
from fltune.algorithms.fedsum import FedSUM, FedSUMB, FedSUMCR
from fltune.algorithms.fedvarp import FedVARP
from fltune.algorithms.mifa import MIFA
from fltune.algorithms.scaffold import Scaffold
from fltune.federation import LocalSGD
from fltune.federation.schedules import InverseSqrt
from fltune.server.fedgm import FedSGD

METHODS = {
    "fedsum_b": lambda h: FedSUMB(),
    "fedsum_cr": lambda h: FedSUMCR(),
    "fedsum": lambda h: FedSUM(),
    "option": lambda h: Scaffold(option="I" * h["option"]),
    "scaffold I": lambda h: Scaffold(option="I"),
    "scaffold II": lambda h: Scaffold(option="II"),
    "fedau": lambda h: FedAU(cutoff=h.get("cutoff", 50)),
    "fedawe": lambda h: FedAWE(),
    "fedvarp": lambda h: FedVARP(),
    "mifa": lambda h: MIFA(),
}
BASELINES = ("fedau", "fedawe", "fedvarp", "mifa")
CASES = [
    *golden("fedsum")["cases"],
    *golden("scaffold")["cases"],
    *[c for c in golden("baselines")["cases"] if c["id"].startswith(BASELINES)],
]
STATES = {  # recorded name -> ours, among the clients' states
    "h": "h",
    "z": "z",
    "a": "a",
    "c_i": "c",
    "x_local": "x",
    "last": "last",
}


def method_of(case):
    return next(make for name, make in METHODS.items() if case["id"].startswith(name))(
        case["hyper"]
    )


def run(case, algorithm, strategy):
    h = case["hyper"]
    lr = h.get("local_lr", h.get("eta_l"))
    decaying = isinstance(lr, list)
    sgd = LocalSGD(
        lr[0] if decaying else lr,
        steps=h["local_steps"],
        batch_size=None,
        schedule=InverseSqrt(period=10) if decaying else None,
    )
    recorded, _ = fit(
        quadratics(**case["problem"]),
        FedSGD(h.get("server_lr", h.get("eta_g", 1.0))),
        x0=case["x0"],
        cohorts=case["participation"],
        algorithm=algorithm,
        sgd=sgd,
        strategy=strategy,
    )
    return recorded


@both
@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in CASES])
def test_trajectory(case, strategy):
    recorded = run(case, method_of(case), strategy)
    assert_close(torch.stack(recorded.x), [row["x"] for row in case["trajectory"]])
    for t, row in enumerate(case["trajectory"]):
        server, clients = recorded.server[t], recorded.clients[t]
        for name, expected in row.get("clients", {}).items():
            assert_close(clients[STATES[name]].double(), expected)
        for name, expected in row.get("server", {}).items():
            if name == "omega_used":  # that of before the round
                found = recorded.server[t - 1]["omega"] if t else torch.ones(3).double()
                assert_close(found, expected)
            elif case["id"].startswith(BASELINES):  # a server that remembers all clients
                memory = clients["G" if name == "G" else "Y"]
                assert_close(memory, expected)
                assert_close(server["sum"], memory.sum(0))
            else:
                assert_close(server[name], expected)
    visits = torch.tensor([len(c) for c in case["participation"]]).cumsum(0).tolist()
    floats = case["comm"]
    assert recorded.bits == [(32 * floats["down"] * n, 32 * floats["up"] * n) for n in visits]


@both
@pytest.mark.parametrize("ending", ["full", "partial"])
def test_exact_rate_is_literal_for_constant_rates(ending, strategy):
    (case,) = [c for c in CASES if c["id"] == f"fedsum_cr_{ending}"]
    recorded = run(case, FedSUMCR(exact_rate=True), strategy)
    assert_close(torch.stack(recorded.x), [row["x"] for row in case["trajectory"]])


DUO = golden("duo_table")
NAMES = [name for name in DUO["rows"] if name in METHODS]


@both
@pytest.mark.parametrize("name", [pytest.param(n, id=n.replace(" ", "_")) for n in NAMES])
def test_worked_example(name, strategy):
    row = DUO["rows"][name]
    case = {**DUO, "hyper": {**DUO["hyper"], **row["hyper"]}}
    if "eta_l" in row["hyper"]:
        del case["hyper"]["local_lr"]
    recorded = run(case, METHODS[name](case["hyper"]), strategy)
    assert_close(torch.stack(recorded.x).flatten(), row["x"])


INTERVALS = golden("participation")["fedau_weights"]


@pytest.mark.parametrize(
    "row", [pytest.param(r, id=f"cutoff{r['cutoff']}-{i}") for i, r in enumerate(INTERVALS)]
)
def test_fedau_weights(row):
    visits = row["participated"]
    recorded, _ = fit(
        quadratics([[[1.0]], [[1.0]]], [[0.0], [0.0]]),
        cohorts=[[0] * visit for visit in visits],
        algorithm=FedAU(cutoff=row["cutoff"]),
    )
    found = [1.0, *(server["omega"][0].item() for server in recorded.server)]
    assert found == pytest.approx([*row["weight_used_in_round"], row["weight_after"]], rel=1e-9)


LIMITS = golden("limits")
REACHED = [r for r in LIMITS["rows"] if r["algorithm"] in METHODS]


@pytest.mark.parametrize(
    "row", [pytest.param(r, id=r["algorithm"].replace(" ", "_")) for r in REACHED]
)
def test_limit(row):
    """Clients t and t + 1 mod 3: SCAFFOLD and FedSUM reach x*, MIFA and FedVARP FedAvg's point."""
    assert row["pattern"] == "clients t, t+1 mod 3"
    rounds = 300
    case = {**LIMITS, "participation": [sorted({t % 3, (t + 1) % 3}) for t in range(rounds)]}
    recorded = run(case, METHODS[row["algorithm"]]({}), "stacked")
    torch.testing.assert_close(
        recorded.x[-1], torch.tensor(row["limit"], dtype=torch.float64), rtol=0, atol=1e-7
    )
    assert (row["kind"] == "x_star") == (row["limit"] == LIMITS["x_star"])
