"""Identities and limits of FedCDR, FedDR, FedProx, FedDC, FedNova, FedBuff, Autonomous and CyCP."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics, slope, slopes
from test_fedsum_scaffold_invariants import (
    path,
    positions,
    problems,
    property_test,
    same,
)

from fltune.algorithms.autonomous import Autonomous
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedbuff import FedBuff
from fltune.algorithms.fedcdr import FedCDR, FedDR
from fltune.algorithms.feddc import FedDC
from fltune.algorithms.fednova import FedNova, effective_steps
from fltune.algorithms.fedprox import FedProx
from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.compression import Grid
from fltune.federation.delays import RecordedDelays, UniformDelays
from fltune.federation.schedules import Inverse
from fltune.federation.work import WorkPerClient
from fltune.participation.trace import Trace
from fltune.server.fedgm import FedGM, FedSGD


def of(problem):
    return quadratics(problem.A.tolist(), problem.b.tolist())


def grad(problem, i, w):
    return problem.A[i] @ (w - problem.b[i])


def prox(problem, i, y, eta):
    """argmin_z f_i(z) + |z - y|^2 / (2 eta)."""
    A = problem.A[i]
    eye = torch.eye(len(y), dtype=y.dtype)
    return torch.linalg.solve(eye + eta * A, y + eta * A @ problem.b[i])


def steps_from(problem, i, w, lr, count, extra=lambda w: 0.0):
    for _ in range(count):
        w = w - lr * (grad(problem, i, w) + extra(w))
    return w


# FedCDR and FedDR

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
    for cohort, x, server, clients in zip(
        problem.cohorts, recorded.x, recorded.server, recorded.clients, strict=True
    ):
        mean = (2 * clients["x"] - clients["y"]).mean(0)
        if not regularised:
            same(x, mean)
            continue
        same(server["mean"], mean)
        if cohort:
            same(x, algorithm.shrunk(mean))


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


# FedProx, FedNova


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


# FedDC

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


# Stale starts


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


# CyCP


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


# Warnings


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


# Limits on three quadratics

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
