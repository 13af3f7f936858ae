import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.parameters import describe
from fltune.server import SERVERS
from fltune.server.adaptive import FedAdagrad, FedAdam, FedYogi
from fltune.server.fedgm import FedAvgM, FedGM, FedNAG, FedSGD
from fltune.server.multistage import (
    MultistageFedGM,
    solve_betas,
    solve_nag_betas,
    solve_stage_ends,
)
from fltune.server.quasi_hyperbolic import PID, SNV, AccSGD, RobustMomentum
from fltune.server.torch_optimizer import TorchServer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedGM(lr=0), "FedGM: lr = 0 is not allowed; must be > 0"),
        (lambda: FedGM(beta=1), r"FedGM: beta = 1 is not allowed; must be in \[0, 1\)"),
        (lambda: FedGM(beta=-0.1), r"beta = -0\.1 is not allowed"),
        (lambda: FedGM(nu=1.01), r"FedGM: nu = 1\.01 is not allowed; must be in \[0, 1\]"),
        (lambda: FedGM(lr=float("nan")), "lr = nan is not allowed"),
        (lambda: FedSGD(lr=-1), "FedSGD: lr = -1 is not allowed"),
        (lambda: FedAvgM(beta=1.0), r"FedAvgM: beta = 1\.0 is not allowed"),
        (lambda: FedNAG(lr=0.0), r"FedNAG: lr = 0\.0 is not allowed"),
        (lambda: FedAdam(beta2=1.0), r"FedAdam: beta2 = 1\.0 is not allowed"),
        (lambda: FedYogi(tau=0), "FedYogi: tau = 0 is not allowed"),
        (lambda: FedAdagrad(v0=-1), "FedAdagrad: v0 = -1 is not allowed"),
        (lambda: FedAdam(bias_correction=True), "bias_correction needs v0 = 0"),
        (lambda: SNV(beta1=0), r"SNV: beta1 = 0 is not allowed; must be in \(0, 1\)"),
        (lambda: PID(kp=0.1), r"PID: kp = 0\.1 is not allowed; must be < 0"),
        (lambda: AccSGD(eps=1.0), r"AccSGD: eps = 1\.0 is not allowed"),
        (lambda: AccSGD(kappa=1.0), r"kappa = 1: must be at least eps\^2 xi = 4\.9"),
        (
            lambda: RobustMomentum(rate=0.97),
            r"rate = 0\.97: with kappa = 10 it lies from .* to .*0\.9$",
        ),
        (lambda: RobustMomentum(rate=0.5), r"rate = 0\.5: with .* = 0\.683772 to"),
        (lambda: MultistageFedGM(drop=1.5), r"drop = 1\.5 is not allowed; must be in \(0, 1\]"),
        (lambda: MultistageFedGM(lrs=[1.0, 2.0]), "rates must not grow from stage to stage"),
        (lambda: MultistageFedGM(lrs=[1.0, 0.0]), r"lrs = \[1\.0, 0\.0\] is not allowed"),
        (lambda: MultistageFedGM(betas=[0.9]), "betas has 1 entries for 3 stages"),
        (lambda: MultistageFedGM(nus=[0.9, 0.0, 0.9]), r"no beta < 1 keeps W1 = 16\.2 at nu = 0"),
        (lambda: MultistageFedGM(stage_ends=[5, 5, 9]), r"stage_ends = \[5, 5, 9\]: must increase"),
        (
            lambda: MultistageFedGM(nesterov=True, nus=[0.9] * 3),
            "nus and nesterov are both set: .*; set nus to null, or nesterov to false",
        ),
        (
            lambda: MultistageFedGM(nesterov=True, betas=[0.9] * 3),
            "betas and nesterov are both set",
        ),
        (lambda: TorchServer(torch.optim.Adam, lr=-1.0), "Invalid learning rate: -1"),
        (lambda: TorchServer(torch.optim.SGD, nesterov=True), "Nesterov momentum requires"),
        (
            lambda: TorchServer(torch.optim.SparseAdam),
            r"SparseAdam cannot step by the pseudo-gradient, a dense vector \[d\]: SparseAdam does",
        ),
    ],
)
def test_values_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", SERVERS)
def test_conformance(name):
    """Every server: documented, a float vector in and out, its state new, inputs left alone."""
    cls = SERVERS.load(name)
    assert all(meta.doc for _, _, meta in describe(cls))
    server = cls()
    server.prepare(20)
    x, d = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0])
    kept = x.clone(), d.clone()
    state = server.start(x)
    before = {k: v.clone() for k, v in state.items()}
    moved, after = server.step(x, d, state, 0)
    assert torch.equal(x, kept[0])
    assert torch.equal(d, kept[1])
    assert all(torch.equal(state[k], before[k]) for k in state)
    assert after.keys() == state.keys()
    assert moved.dtype == x.dtype
    assert moved[0] < x[0]  # downhill
    assert moved[1] == x[1]  # a coordinate without slope rests
    assert server.learning_rate(0) > 0


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 5), st.floats(0, 0.99), st.floats(0, 1), st.integers(0, 99))
def test_fedgm_is_its_formula(lr, beta, nu, seed):
    torch.manual_seed(seed)
    x, d, momentum = torch.randn(3, 5, dtype=torch.float64)
    moved, state = FedGM(lr, beta, nu).step(x, d, {"d": momentum}, 0)
    new = (1 - beta) * d + beta * momentum
    torch.testing.assert_close(state["d"], new, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved, x - lr * ((1 - nu) * d + nu * new), rtol=1e-12, atol=1e-12)


def test_yogi_rests_where_the_square_equals_v():
    server = FedYogi(lr=1.0, beta1=0.0, beta2=0.5, tau=0.5)
    v = torch.tensor([4.0, 1.0, 9.0])
    moved, state = server.step(
        torch.zeros(3),
        torch.full((3,), 2.0),
        {"m": torch.zeros(3), "v": v, "k": torch.zeros(())},
        0,
    )
    assert state["v"].tolist() == [4.0, 3.0, 7.0]
    torch.testing.assert_close(moved, -2.0 / (state["v"].sqrt() + 0.5))


def test_adaptive_servers_start_at_tau_squared_unless_told():
    x = torch.zeros(2, dtype=torch.float64)
    assert FedAdam(tau=0.1).start(x)["v"].tolist() == pytest.approx([0.01, 0.01])
    assert FedAdam(tau=0.1, v0=0.0).start(x)["v"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("rounds", "ends"),
    [
        (500, [71, 214, 500]),
        (1000, [143, 429, 1000]),
        (1001, [143, 429, 1001]),
        (2000, [286, 857, 2000]),
        (7, [1, 3, 7]),
    ],
)
def test_stage_ends_of_the_papers(rounds, ends):
    server = MultistageFedGM(lr=2.0, drop=0.5, stages=3)
    server.prepare(rounds)
    assert solve_stage_ends([2.0, 1.0, 0.5], rounds) == server.ends == ends
    rates = [server.learning_rate(t) for t in range(rounds)]
    assert [rates.count(eta) for eta in (2.0, 1.0, 0.5)] == [
        ends[0],
        ends[1] - ends[0],
        ends[2] - ends[1],
    ]
    assert rates == sorted(rates, reverse=True)


rates_ = st.lists(st.floats(0.05, 5), min_size=1, max_size=5).map(lambda e: sorted(e, reverse=True))


@given(rates_, st.floats(0.01, 0.99), st.data())
def test_w1_is_kept_and_momentum_stays_below_one(etas, beta, data):
    size = {"min_size": len(etas), "max_size": len(etas)}
    nus = data.draw(st.lists(st.floats(0.05, 1), **size))
    betas = solve_betas(etas, beta, nus)
    assert betas[0] == pytest.approx(beta)
    assert all(0 < b < 1 for b in betas)
    w1 = [eta * b * nu / (1 - b) for eta, b, nu in zip(etas, betas, nus, strict=True)]
    assert w1 == pytest.approx([w1[0]] * len(etas), rel=1e-6)


@given(rates_, st.integers(5, 3000))
def test_stage_lengths_are_inverse_to_the_rates(etas, rounds):
    ends = solve_stage_ends(etas, rounds)
    assert ends[-1] == rounds
    assert sorted({0, *ends}) == [0, *ends]
    total = sum(1 / e for e in etas)
    exact = [rounds * sum(1 / e for e in etas[: s + 1]) / total for s in range(len(etas))]
    if rounds / etas[0] / total >= 1:  # nobody would be rounded away
        assert all(abs(a - b) <= 0.5 + 1e-6 for a, b in zip(ends, exact, strict=True))


def test_a_stage_too_short_for_a_round_lasts_one():
    """Its rate would otherwise be a parameter without effect."""
    assert solve_stage_ends([2.0, 0.2, 0.02], 50) == [1, 5, 50]
    assert solve_stage_ends([9.0, 9.0, 0.001], 4) == [1, 2, 4]
    assert solve_stage_ends([2.0, 1.0, 0.5], 3) == [1, 2, 3]
    with pytest.raises(ValueError, match="3 stages need as many rounds; there are 2"):
        MultistageFedGM().prepare(2)


def test_explicit_stages():
    server = MultistageFedGM(lrs=[2.0, 1.0], betas=[0.5, 0.7], nus=[0.8, 1.0], stage_ends=[4, 10])
    server.prepare(10)
    assert server.coefficients(3) == (2.0, 0.5, 0.8)
    assert server.coefficients(4) == server.coefficients(9) == (1.0, 0.7, 1.0)
    with pytest.raises(ValueError, match="stage_ends ends at 10, but the run has 12 rounds"):
        server.prepare(12)


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_multistage_nesterov_has_nu_equal_to_beta_and_keeps_w1(beta):
    """The recursion of FedNAG in every stage, d carried over, with the stage's momentum."""
    server = MultistageFedGM(beta=beta, nu=0.3, nesterov=True)
    server.prepare(70)
    assert server.ends == [10, 30, 70]
    stages = [server.coefficients(t) for t in (0, 10, 30)]
    betas = solve_nag_betas([2.0, 1.0, 0.5], beta)
    assert stages == [(eta, b, b) for eta, b in zip((2.0, 1.0, 0.5), betas, strict=True)]
    assert betas[0] == pytest.approx(beta)
    w1 = 2.0 * beta**2 / (1 - beta)
    assert [eta * b * nu / (1 - b) for eta, b, nu in stages] == pytest.approx([w1] * 3)
    x, d = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    expected, momentum, state = 0.0, 0.0, server.start(x)
    for t in range(70):
        x, state = server.step(x, d, state, t)
        eta, b, _ = stages[0 if t < 10 else 1 if t < 30 else 2]
        momentum = (1 - b) + b * momentum
        expected -= eta * ((1 - b) + b * momentum)
    assert x.item() == pytest.approx(expected, rel=1e-12)


def test_one_nesterov_stage_is_fednag():
    staged, plain = MultistageFedGM(stages=1, beta=0.8, nesterov=True), FedNAG(2.0, 0.8, True)
    staged.prepare(5)
    assert staged.coefficients(3) == pytest.approx(plain.coefficients(3))


def test_momentum_is_carried_over_the_border():
    server = MultistageFedGM(lrs=[2.0, 1.0], betas=[0.5, 0.5], nus=[1.0, 1.0], stage_ends=[1, 2])
    server.prepare(2)
    x, d = torch.zeros(1), torch.ones(1)
    x, state = server.step(x, d, server.start(x), 0)
    x, state = server.step(x, d, state, 1)
    assert state["d"].item() == 0.75
    assert x.item() == -(2.0 * 0.5 + 1.0 * 0.75)


def test_one_and_no_momentum_stage():
    one = MultistageFedGM(stages=1, lr=0.7, beta=0.8, nu=0.6)
    one.prepare(5)
    assert [one.coefficients(t) for t in range(5)] == [(0.7, pytest.approx(0.8), 0.6)] * 5
    assert solve_betas([2.0, 1.0], 0.0, [0.9, 0.9]) == [0.0, 0.0]


def test_torch_adam_is_adam_on_the_pseudo_gradient():
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    adam = torch.optim.Adam([w], lr=0.1, betas=(0.5, 0.9))
    server = TorchServer(torch.optim.Adam, lr=0.1, betas=(0.5, 0.9))
    x = w.detach().clone()
    for t in range(4):
        d = torch.tensor([0.5, -1.0]) * (t + 1)
        x, _ = server.step(x, d, {}, t)
        w.grad = d
        adam.step()
    assert torch.equal(x, w.detach())
    assert server.learning_rate(3) == 0.1
