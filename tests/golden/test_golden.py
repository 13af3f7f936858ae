"""Trajectories computed independently of this package, reproduced by its own round loop.

Every case is a problem, its draws and the numbers after each round (float64).
"""

import json
from pathlib import Path

import pytest
import torch
from quadratics import fit, quadratics, slope, slopes

from fltune.algorithms.fedavg import FedAvg
from fltune.federation import LocalSGD
from fltune.federation.schedules import Halving, Inverse, InverseSqrt, StepDecay
from fltune.federation.stragglers import Stragglers
from fltune.federation.work import WorkPerClient
from fltune.server.adaptive import FedAdagrad, FedAdam, FedYogi
from fltune.server.fedgm import FedAvgM, FedGM, FedNAG, FedSGD
from fltune.server.multistage import (
    MultistageFedGM,
    solve_betas,
    solve_nag_betas,
    solve_stage_ends,
)
from fltune.server.quasi_hyperbolic import NAG, PID, SHB, SNV, AccSGD, TripleMomentum

ADAPTIVE = {"fedadagrad": FedAdagrad, "fedadam": FedAdam, "fedyogi": FedYogi}
both = pytest.mark.parametrize("strategy", ["loop", "stacked"])


def golden(name):
    return json.loads((Path(__file__).parent / f"{name}.json").read_text())


def cases(name):
    return [pytest.param(c, id=c["id"]) for c in golden(name)["cases"]]


def assert_close(found, expected):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


class RecordedStragglers(Stragglers):
    """The recorded stragglers and their steps instead of draws."""

    def __init__(self, recorded, policy):
        super().__init__(policy=policy)
        self.recorded = recorded

    def late(self, round, clients):
        return torch.tensor([str(i) in self.recorded[round] for i in clients.tolist()]).bool()

    def part(self, round, clients):
        made = self.recorded[round]
        return torch.tensor([made.get(str(i), self.nominal) for i in clients.tolist()])


def work_of(case):
    steps = case["hyper"]["local_steps"]
    if isinstance(steps, list):
        return WorkPerClient(steps)
    inputs = case.get("inputs", {})
    if "straggler_steps" not in inputs:
        return None
    return RecordedStragglers(inputs["straggler_steps"], "drop" if "selected" in inputs else "keep")


def reproduce(case, server, strategy):
    hyper = case["hyper"]
    steps = hyper["local_steps"]
    weights = hyper.get("weights")
    recorded, _ = fit(
        quadratics(**case["problem"], counts=weights),
        server,
        x0=case["x0"],
        cohorts=case.get("inputs", {}).get("selected", case["participation"]),
        algorithm=FedAvg(weighting="samples" if weights else "uniform"),
        sgd=LocalSGD(
            hyper["local_lr"],
            steps=steps if isinstance(steps, int) else max(steps),
            batch_size=None,
        ),
        work=work_of(case),
        strategy=strategy,
    )
    assert_close(torch.stack(recorded.x), [r["x"] for r in case["trajectory"]])
    if "comm" in case:
        visits = torch.tensor([len(c) for c in case["participation"]]).cumsum(0)
        down, up = case["comm"]["down"], case["comm"]["up"]
        expected = [(32 * down * n, 32 * up * n) for n in visits.tolist()]
        assert recorded.bits == expected
    return recorded


@both
@pytest.mark.parametrize("case", cases("fedavg"))
def test_fedavg(case, strategy):
    reproduce(case, FedSGD(case["hyper"]["server_lr"]), strategy)


def server_of(case):
    """The server optimizer of a case, and the factor from its buffer to the recorded state."""
    name, _, _ = case["id"].partition("_")
    h = case["hyper"]
    if name == "fedgm":
        return FedGM(h["eta"], h["beta"], h["nu"]), {"d": ("d", 1.0)}
    if name in ("fedavgm", "fednag"):
        # undamped: their buffer sums D where d averages it, so d = (1 - beta) buffer
        cls, buffer = {"fedavgm": (FedAvgM, "v"), "fednag": (FedNAG, "buf")}[name]
        return cls(h["server_lr"], h["beta"]), {buffer: ("d", 1.0 / (1.0 - h["beta"]))}
    bias = h.get("bias_correction", False)
    server = ADAPTIVE[name](h["server_lr"], h["beta1"], h["beta2"], h["tau"], h["v0"], bias)
    return server, {"m": ("m", 1.0), "v": ("v", 1.0)}


@both
@pytest.mark.parametrize("case", cases("server_opt"))
def test_server_optimizers(case, strategy):
    server, states = server_of(case)
    recorded = reproduce(case, server, strategy)
    for t, row in enumerate(case["trajectory"]):
        for theirs, (ours, factor) in states.items():
            assert_close(factor * recorded.state[t][ours], row["server"][theirs])
        delta = row["server"].get("delta")
        if delta is not None and recorded.d[t] is not None:
            assert_close(recorded.d[t], delta)


@both
def test_multistage(strategy):
    (case,) = [c for c in golden("fedgm_multistage_autonomous")["cases"] if c["id"] == "multistage"]
    h = case["hyper"]
    given = MultistageFedGM(
        lrs=h["etas"], betas=h["betas"], nus=h["nus"], stage_ends=h["stage_ends"]
    )
    recorded = reproduce(case, given, strategy)
    for state, row in zip(recorded.state, case["trajectory"], strict=True):
        assert_close(state["d"], row["server"]["d"])
    solved = MultistageFedGM(lr=2.0, drop=0.5, stages=3, beta=h["betas"][0], nu=0.9)
    reproduce(case, solved, strategy)
    assert solved.ends == h["stage_ends"]


MAPS = golden("momentum_maps")
SCHEMES = {
    "sgd": lambda p: FedSGD(p["a"]),
    "shb": lambda p: SHB(p["a"], p["beta"]),
    "nag": lambda p: NAG(p["a"], p["beta"]),
    "snv": lambda p: SNV(p["a"], p["b1"], p["b2"]),
    "pid": lambda p: PID(p["kp"], p["ki"], p["kd"]),
    "accsgd": lambda p: AccSGD(p["delta"], p["kappa"], p["xi"], p["eps"]),
    "tm": lambda p: TripleMomentum(p["L"], p["kappa"]),
}


@both
@pytest.mark.parametrize("by", ["named", "fedgm"])
@pytest.mark.parametrize("row", [pytest.param(s, id=s["scheme"]) for s in MAPS["schemes"]])
def test_momentum_maps(row, by, strategy):
    """One client a round, whose gradient is the round's g_t, makes D = g_t."""
    gradients = MAPS["pseudo_gradients"]
    server = SCHEMES[row["scheme"]](row["params"])
    if by == "fedgm":
        server = FedGM(row["eta"], row["beta"], row["nu"])
    recorded, _ = fit(
        slopes(gradients),
        server,
        x0=MAPS["x0"],
        cohorts=[[t] for t in range(len(gradients))],
        sgd=LocalSGD(lr=1.0, steps=1, batch_size=None),
        losses=slope,
        strategy=strategy,
    )
    assert_close(torch.stack(recorded.d), gradients)
    assert_close(torch.stack(recorded.x), row["x"])
    assert server.coefficients(0) == pytest.approx((row["eta"], row["beta"], row["nu"]), rel=1e-9)


SCHEDULES = golden("schedules")


@pytest.mark.parametrize("name", ["eq113", "eq113_odd", "inv_sqrt"])
def test_schedules(name):
    case = SCHEDULES[name]
    schedule = InverseSqrt(period=10) if name == "inv_sqrt" else StepDecay()
    sgd = LocalSGD(lr=case.get("gamma0", case.get("eta0")), schedule=schedule)
    found = {t: sgd.rate(int(t), case.get("T", 2000)) for t in case["values"]}
    assert found == pytest.approx(case["values"], rel=1e-9)


def test_schedules_by_hand():
    """MIFA's 1 / (t + 1), and FedAU's half every so many rounds: the first ones have it whole."""
    assert [Inverse()(t, 9) for t in range(4)] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert [Halving(every=2)(t, 9) for t in range(5)] == [1, 1, 1 / 2, 1 / 2, 1 / 4]


def test_schedule_reaches_the_clients():
    """A linear loss moves the model by exactly the client rate of the round."""
    case = SCHEDULES["eq113_odd"]
    recorded, _ = fit(
        slopes([[1.0]]),
        x0=[0.0],
        rounds=case["T"],
        sgd=LocalSGD(lr=1.0, steps=1, batch_size=None, schedule=StepDecay()),
        losses=slope,
    )
    assert_close(torch.stack(recorded.d).flatten(), list(case["values"].values()))


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=f"T{c['T']}-nu{c['nus'][0]}") for c in SCHEDULES["multistage"]],
)
def test_multistage_constraints(case):
    betas = solve_betas(case["etas"], case["beta1"], case["nus"])
    assert betas == pytest.approx(case["betas"], rel=1e-9)
    assert solve_stage_ends(case["etas"], case["T"]) == case["stage_ends"]
    server = MultistageFedGM(lr=2.0, drop=0.5, stages=3, beta=case["beta1"], nu=case["nus"][0])
    server.prepare(case["T"])
    assert server.ends == case["stage_ends"]
    for eta, beta, nu in map(server.coefficients, (0, case["stage_ends"][0], case["T"] - 1)):
        assert eta * beta * nu / (1 - beta) == pytest.approx(case["W1"], rel=1e-9)


def test_multistage_nag():
    case = SCHEDULES["multistage_nag"]
    betas = solve_nag_betas(case["etas"], case["beta1"])
    assert betas == pytest.approx(case["betas_equal_nus"], rel=1e-9)
    w1 = [eta * b * b / (1 - b) for eta, b in zip(case["etas"], betas, strict=True)]
    assert w1 == pytest.approx([case["W1"]] * 3, rel=1e-9)


DUO = golden("duo_table")
DUO_SERVERS = {
    "fedavg": lambda h: FedSGD(),
    "fedavg server_lr": lambda h: FedSGD(h["server_lr"]),
    "fedgm": lambda h: FedGM(h["eta"], h["beta"], h["nu"]),
    "fedavgm": lambda h: FedAvgM(h["server_lr"], h["beta"]),
    "fednag": lambda h: FedNAG(h["server_lr"], h["beta"]),
    **{
        name: lambda h, cls=cls: cls(h["server_lr"], h["beta1"], h["beta2"], h["tau"], h["v0"])
        for name, cls in ADAPTIVE.items()
    },
}


@both
@pytest.mark.parametrize("name", [pytest.param(n, id=n.replace(" ", "_")) for n in DUO_SERVERS])
def test_worked_example(name, strategy):
    row = DUO["rows"][name]
    steps = [{"x": x if isinstance(x, list) else [x]} for x in row["x"]]
    case = {**DUO, "trajectory": steps}
    reproduce(case, DUO_SERVERS[name](row["hyper"]), strategy)
