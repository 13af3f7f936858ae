"""Golden trajectories of FedCDR, FedDR, CyCP, FedProx, FedDC, FedNova, FedBuff, Autonomous FedGM.

Also the numbers of the theory helpers.
"""

from itertools import pairwise

import pytest
import torch
from quadratics import fit, quadratics
from test_golden import DUO, assert_close, both, cases, golden

from fltune import theory
from fltune.algorithms.autonomous import Autonomous
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedbuff import FedBuff
from fltune.algorithms.fedcdr import FedCDR, FedDR
from fltune.algorithms.feddc import FedDC
from fltune.algorithms.fednova import FedNova
from fltune.algorithms.fedprox import FedProx
from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.delays import RecordedDelays
from fltune.federation.work import LocalWork, WorkPerClient
from fltune.participation.full import Full
from fltune.server.fedgm import FedGM, FedSGD

BASELINES = golden("baselines")


def baselines(name):
    return [pytest.param(c, id=c["id"]) for c in BASELINES["cases"] if c["id"].startswith(name)]


def sgd_of(hyper):
    """The client optimizer of a case; exact proxes have none, and do not use this one."""
    steps = hyper.get("local_steps", 1)
    steps = steps if isinstance(steps, int) else max(steps)
    return LocalSGD(hyper.get("local_lr", 0.1), steps=steps, batch_size=None)


def reproduce(case, algorithm, strategy, extra=(0, 0, 0), **options):
    """Compare the models and the traffic of a case with a run.

    ``extra``: first visits by all clients before round 0, and floats down and up on each visit
    besides those that the case counts (scalars).
    """
    options = {"sgd": sgd_of(case["hyper"]), **options}
    cohorts = case["participation"]
    recorded, _ = fit(
        options.pop("data", None) or quadratics(**case["problem"]),
        options.pop("server", None),
        x0=case["x0"],
        cohorts=cohorts,
        algorithm=algorithm,
        strategy=strategy,
        **options,
    )
    assert_close(torch.stack(recorded.x), [r["x"] for r in case["trajectory"]])
    if "comm" in case:
        before, down, up = extra
        visits = (before + torch.tensor([len(c) for c in cohorts]).cumsum(0)).tolist()
        down, up = 32 * (case["comm"]["down"] + down), 32 * (case["comm"]["up"] + up)
        assert recorded.bits == [(down * n, up * n) for n in visits]
    return recorded


def assert_states(case, recorded, server, clients):
    """Compare states: their name -> the function of ours that gives it."""
    for t, row in enumerate(case["trajectory"]):
        for name, of in server.items():
            assert_close(of(recorded.server[t]), row["server"][name])
        for name, of in clients.items():
            assert_close(of(recorded.clients[t]), row["clients"][name])


PROX = {"exact": "exact", "gd": "inexact"}


@both
@pytest.mark.parametrize("case", cases("fedcdr_feddr"))
def test_douglas_rachford(case, strategy):
    h = case["hyper"]
    method = FedDR if case["id"].startswith("feddr") else FedCDR
    algorithm = method(
        eta=h["eta"],
        alpha=h["alpha"],
        prox=PROX[h["prox"]],
        warm_start=h.get("warm_start", "server"),
        init=h["init"],
    )
    first = 0 if h["init"] == "consensus" else 3
    recorded = reproduce(case, algorithm, strategy, extra=(first, 0, 0))
    states = {
        "y": lambda c: c["y"],
        "x_local": lambda c: c["x"],
        "x_hat": lambda c: 2 * c["x"] - c["y"],
    }
    assert_states(case, recorded, {}, states)


@both
@pytest.mark.parametrize("case", baselines("fedprox"))
def test_fedprox(case, strategy):
    h = case["hyper"]
    reproduce(case, FedProx(mu=h["mu"], exact=h.get("exact_prox", False)), strategy)


@both
@pytest.mark.parametrize("case", baselines("feddc"))
def test_feddc(case, strategy):
    h = case["hyper"]
    algorithm = FedDC(alpha=h["alpha"], variant=h["variant"], drift_mean=h["drift_mean"])
    recorded = reproduce(case, algorithm, strategy)
    states = {"h": lambda c: c["h"], "g_i": lambda c: c["g"]}
    assert_states(case, recorded, {"g": lambda s: s["g"]}, states)


@both
@pytest.mark.parametrize("case", baselines("fednova"))
def test_fednova(case, strategy):
    """The case counts vectors; K_i is a number more on each uplink."""
    h = case["hyper"]
    reproduce(
        case,
        FedNova(),
        strategy,
        extra=(0, 0, 1),
        server=FedSGD(h["server_lr"]),
        work=WorkPerClient(h["local_steps"]),
    )


class RecordedWork(LocalWork):
    """The recorded steps of every client of every round."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds

    def amount(self, round, clients):
        return torch.tensor(self.rounds[round])


def jobs_of(rounds):
    """Cohorts, delays and steps of (client, delay, steps) jobs, by ascending id."""
    return zip(*(map(list, zip(*sorted(jobs), strict=True)) for jobs in rounds), strict=True)


def autonomous(case, jobs, strategy):
    h = case["hyper"]
    cohorts, delays, steps = map(list, jobs_of(jobs))
    return reproduce(
        {**case, "participation": cohorts},
        Autonomous(window=5),
        strategy,
        server=FedGM(h["eta"], h["beta"], h["nu"]),
        delays=RecordedDelays(delays),
        work=RecordedWork(steps),
    )


@both
def test_autonomous(strategy):
    (case,) = (c for c in golden("fedgm_multistage_autonomous")["cases"] if c["id"] == "autonomous")
    recorded = autonomous(case, case["inputs"]["jobs_client_delay_steps"], strategy)
    for t, row in enumerate(case["trajectory"]):
        assert_close(recorded.state[t]["d"], row["server"]["d"])
        assert_close(recorded.d[t], row["server"]["delta"])


def buffers_of(events, size):
    """Rounds of (client, staleness) from arrivals (client, version); an unfilled buffer is left."""
    full = [events[k : k + size] for k in range(0, len(events) - size + 1, size)]
    return [sorted((i, now - version) for i, version in b) for now, b in enumerate(full)]


def fedbuff(case, events, size, exponent, strategy):
    rounds = buffers_of(events, size)
    return reproduce(
        {**case, "participation": [[i for i, _ in b] for b in rounds]},
        FedBuff(staleness_exponent=exponent),
        strategy,
        delays=RecordedDelays([[age for _, age in b] for b in rounds]),
        repeats=True,
    )


@both
@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in BASELINES["fedbuff"]])
def test_fedbuff(case, strategy):
    h = case["hyper"]
    steps = [{"x": e["x"]} for e in case["events"] if e["server_step"]]
    exponent = {"none": 0.0, "sqrt": 0.5}[h["staleness"]]
    arrivals = case["inputs"]["events_client_startversion"]
    case = {**case, "trajectory": steps, "comm": {"down": 2, "up": 2}}
    recorded = fedbuff(case, arrivals, h["buffer"], exponent, strategy)
    assert len(recorded.x) == len(steps)


CYCP = {c["id"]: c for c in golden("cycp")["cases"]}


@both
@pytest.mark.parametrize("name", ["gd", "sgd_tau3", "sgd_all_of_group"])
def test_cycp(name, strategy):
    reproduce(CYCP[name], FedAvg(), strategy)


def components(case):
    """Every client holds one sample for each of its components."""
    parts = [pair for pairs in case["inputs"]["components_A_b"].values() for pair in pairs]
    A, b = (torch.tensor(v, dtype=torch.float64) for v in zip(*parts, strict=True))
    x = torch.linalg.cholesky(A).mT
    split = Split(x, torch.einsum("nkd,nd->nk", x, b))
    held = list(torch.arange(len(x)).split(case["hyper"]["B"]))
    return FederatedData.from_clients(split, split, split, held, None)


@both
def test_cycp_ssgd(strategy):
    """Under a seed whose draws are the recorded permutations: one in 64 is."""
    case = CYCP["ssgd"]
    data, size = components(case), case["hyper"]["B"]
    sgd = LocalSGD(case["hyper"]["local_lr"], epochs=1, batch_size=1, batches="fixed")

    def drawn(seed):
        source = FederatedDataModule(data, Full().bind(data.num_clients, 0), sgd, seed)
        for t, cohort in enumerate(case["participation"]):
            yield (source.cohort(t, cohort).plan.index[:, :, 0].T % size).tolist()

    wanted = case["inputs"]["permutations"]
    seed = next(s for s in range(1000) if list(drawn(s)) == wanted)
    reproduce(case, FedAvg(), strategy, data=data, sgd=sgd, seed=seed)


def test_cycp_end_of_cycle():
    """The state after each cycle converges to a point that is not the minimiser."""
    case = CYCP["sgd_all_of_group"]
    recorded, _ = fit(
        quadratics(**case["problem"]),
        x0=case["x0"],
        cohorts=case["hyper"]["groups"] * 50,
        sgd=sgd_of(case["hyper"]),
    )
    assert_close(recorded.x[-1], case["end_of_cycle_fixed_point"])
    assert (recorded.x[-1] - torch.tensor(case["x_star"])).norm() > 1e-2


def duo(name, **changes):
    row = DUO["rows"][name]
    steps = [{"x": [x]} for x in row["x"]]
    case = {**DUO, "trajectory": steps, **changes}
    return {**case, "hyper": {**DUO["hyper"], **row["hyper"]}}


DUO_METHODS = {
    "fedcdr exact": FedCDR(eta=0.5, alpha=1.0, prox="exact"),
    "fedcdr inexact": FedCDR(eta=0.5, alpha=1.0, prox="inexact", warm_start="server"),
    "feddr alpha1.9": FedDR(eta=0.5, alpha=1.9, prox="exact"),
    "fedprox": FedProx(mu=0.5),
    "feddc code all": FedDC(alpha=0.1),
    "feddc paper all": FedDC(alpha=0.1, variant="paper"),
}


@both
@pytest.mark.parametrize("name", [pytest.param(n, id=n.replace(" ", "_")) for n in DUO_METHODS])
def test_worked_example(name, strategy):
    reproduce(duo(name), DUO_METHODS[name], strategy)


@both
def test_worked_example_cycp(strategy):
    reproduce(duo("cycp sgd", participation=[[0], [1], [0]]), FedAvg(), strategy)


@both
def test_worked_example_fednova(strategy):
    case = duo("fednova steps 2,1")
    reproduce(case, FedNova(), strategy, work=WorkPerClient(case["hyper"]["local_steps"]))


@both
def test_worked_example_autonomous(strategy):
    case = duo("autonomous fedgm")
    autonomous(case, case["hyper"]["jobs_client_delay_steps"], strategy)


@both
def test_worked_example_fedbuff(strategy):
    case = duo("fedbuff Z2")
    fedbuff(case, case["hyper"]["events"], case["hyper"]["buffer"], 0.0, strategy)


THEORY = golden("theory")


def rows(name):
    return pytest.mark.parametrize(
        "row", [pytest.param(r, id=f"{k}") for k, r in enumerate(THEORY[name])]
    )


def near(value):
    return pytest.approx(value, rel=1e-9)


@rows("cycp")
def test_cycp_rates(row):
    given = {"num_clients": row["M"], "groups": row["Kbar"], "rounds": row["T"], "mu": row["mu"]}
    rate = theory.cycp_rate(**given, steps=row["tau"])
    assert rate == near(row["eta_algorithm"])
    assert rate / row["N"] == near(row["eta_printed"])
    for case, expected in (("gd", "T_min_gd"), ("sgd", "T_min_sgd")):
        assert theory.cycp_min_rounds(**given, L=row["L"], case=case) == near(row[expected])
    one = theory.cycp_rate(**given, steps=1, case="gd")
    assert theory.cycp_rate(**given, steps=1, case="ssgd") == one
    assert theory.cycp_rate(**given, steps=4, case="ssgd") > one / 4


def test_cycp_rate_of_an_unknown_case():
    with pytest.raises(ValueError, match="case = 'adam' is not allowed"):
        theory.cycp_rate(10, 2, 100, 0.1, case="adam")


@rows("fedsum")
def test_fedsum_rates(row):
    given = [row[k] for k in ("N", "K", "T", "L", "Delta_f", "sigma2", "tau_max", "tau_avg")]
    assert theory.fedsum_rates(*given) == near((row["eta_g"], row["eta_l"]))
    given[5] = 0.0
    first = 1 / (10 * max(1, row["tau_max"]) ** 0.5 * row["K"] * row["L"])
    assert theory.fedsum_rates(*given)[1] == near(first)


@rows("fedcom_fedcomgate")
def test_fedcom_rates(row):
    L, tau, gamma, q = (row[k] for k in ("L", "tau", "gamma", "q"))
    assert theory.fedcom_max_rate(L, tau, gamma, q, row["m"]) == near(row["eta_max_fedcom"])
    most = theory.fedcomgate_max_rate(L, tau, gamma, q)
    assert most == near(row["eta_max_fedcomgate"])
    enough = theory.fedcomgate_sufficient_rate(L, tau, gamma, q)
    assert enough == near(row["eta_sufficient_fedcomgate"])
    assert enough <= theory.fedcomgate_max_rate(L, tau, gamma, q, mu=0.01 * L) <= most


@rows("fedcdr")
def test_fedcdr_rates(row):
    L, alpha, g = row["L"], row["alpha"], row["gamma"]
    assert theory.fedcdr_max_eta(L, alpha) == near(row["eta_max_exact"])
    assert theory.fedcdr_max_eta(L, alpha, g) == near(row["eta_max_inexact"])
    assert theory.fedcdr_margin(row["eta_max_exact"], L, alpha) == pytest.approx(0, abs=1e-12)
    assert theory.fedcdr_margin(row["eta_max_inexact"], L, alpha, g) == pytest.approx(0, abs=1e-12)
    assert theory.fedcdr_margin(row["eta0_as_printed"], L, alpha, g) < -1e-3
    with pytest.raises(ValueError, match="must be below"):
        theory.fedcdr_max_eta(L, alpha, (2 - alpha) / (2 * alpha))


def test_fedcdr_accuracy_falls_from_visit_to_visit():
    eps = [theory.fedcdr_accuracy(8, 4, t, r) for t in range(3) for r in range(4)]
    assert eps[0] == 2.0
    assert all(b < a for a, b in pairwise(eps))
    assert theory.fedcdr_accuracy(2, 4, 1, 3) == near(1 / (3 + 5 + 1))
    assert theory.fedcdr_bound(2.0, 3.0, 10) == near(125 / 4 * 2 * 3 / 10)


@rows("fedgm")
def test_fedgm_rates(row):
    L, K, etas, w1 = (row[k] for k in ("L", "K", "etas", "W1"))
    assert theory.fedgm_max_rate(L, K, etas, w1) == near(row["eta_l_max_full"])
    found = theory.autonomous_max_rate(L, K, etas, row["tau"])
    assert found == near(row["eta_l_max_autonomous"])
    slower = theory.autonomous_max_rate(L, K, etas, row["tau"], uniform_arrival=False)
    assert slower == near(found * (120 / 180) ** 0.5 if row["tau"] else found)


def test_fedgm_rate_with_some_of_the_clients():
    """By hand: S = 2, C = 2, mean eta = 0.75, so the left side is 2 (1 + 0.75 + 4) 2 K eta_l."""
    left = 2 * (1 + 0.75 + 4) * 2 * 3
    one = theory.fedgm_max_rate_partial(1.0, 3, [1.0, 0.5], 2.0, 1, 10)
    assert one == near(17 / 282 / left)
    most = theory.fedgm_max_rate_partial(1.0, 3, [1.0, 0.5], 2.0, 9, 10)
    assert most == near(min(9 * 9 / (10 * 8), 17 * 9 / 282) / left)
    assert theory.fedgm_max_rate_partial(1.0, 300, [1.0], 0.0, 100, 100) == near(1 / 2400)
