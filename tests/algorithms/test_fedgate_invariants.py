"""Identities of the compressed and gradient-tracking methods, on random quadratics."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.algorithms import ALGORITHMS
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedcom import FedCOM
from fltune.algorithms.fedcomgate import FedCOMGATE
from fltune.algorithms.fedcomgate_sparse import SparseFedCOMGATE
from fltune.algorithms.fedgate import FedGATE
from fltune.algorithms.fedpaq import FedPAQ
from fltune.algorithms.scaffold import Scaffold
from fltune.errors import ConfigError
from fltune.federation import LocalSGD
from fltune.federation.compression import QSGD, Affine, Compressor, Grid, NoisyAffine, RandK, TopK
from fltune.federation.work import WorkPerClient
from fltune.server.fedgm import FedGM, FedSGD

LIMITS = json.loads((Path(__file__).parents[1] / "golden" / "limits.json").read_text())
GATE = [FedGATE(), FedCOMGATE(), SparseFedCOMGATE(tracker="sent")]
LOSSY = [QSGD(3), Affine(4), NoisyAffine(4), Grid(0.25), TopK(1), RandK(1)]


@dataclass(frozen=True)
class Case:
    """A random federated quadratic problem, and who takes part in which round."""

    A: list
    b: list
    x0: list
    cohorts: list
    steps: int
    gamma: float
    seed: int

    def run(self, algorithm, compressor=None, **options):
        recorded, _ = fit(
            quadratics(self.A, self.b),
            FedSGD(options.pop("gamma", self.gamma)),
            x0=self.x0,
            cohorts=options.pop("cohorts", self.cohorts),
            algorithm=algorithm,
            sgd=LocalSGD(0.1, steps=self.steps, batch_size=None),
            compressor=compressor,
            strategy="stacked",
            seed=self.seed,
            **options,
        )
        return recorded


@st.composite
def problems(draw, full=False):
    n, d = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    M = torch.randn(n, d, d, generator=random, dtype=torch.float64)
    A = M @ M.mT / d + 0.2 * torch.eye(d)
    b, x0 = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in [(n, d), (d,)])
    cohort = st.just(list(range(n)))
    if not full:
        cohort = st.sets(st.integers(0, n - 1)).map(sorted)
    return Case(
        A.tolist(),
        b.tolist(),
        x0.tolist(),
        draw(st.lists(cohort, min_size=1, max_size=5)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([0.5, 1.0, 1.3])),
        draw(st.integers(0, 100)),
    )


few = settings(max_examples=12, deadline=None)


def assert_same(a, b):
    x, y = torch.stack(a.x), torch.stack(b.x)
    torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-10)


def sums_of_delta(recorded):
    return torch.stack([clients["delta"].sum(0) for clients in recorded.clients])


@few
@given(problems())
def test_without_compression(case):
    """Invariant 11."""
    assert_same(case.run(FedPAQ()), case.run(FedAvg()))
    assert_same(case.run(FedCOM()), case.run(FedAvg()))
    assert_same(case.run(FedCOMGATE()), case.run(FedGATE()))
    assert_same(case.run(FedCOMGATE(quantise_downlink=True)), case.run(FedGATE()))
    assert_same(case.run(FedCOMGATE(tracker="own")), case.run(FedGATE()))
    assert_same(case.run(SparseFedCOMGATE()), case.run(FedGATE()))


@few
@given(problems(), st.sampled_from([QSGD(3), QSGD(2, "linf"), TopK(1), RandK(1)]))
def test_a_compressor_that_scales_with_its_input(case, compressor):
    """Invariant 12, and the same for the FedGATE family."""
    fedcom = case.run(FedCOM(), compressor, gamma=1.0)
    assert_same(fedcom, case.run(FedPAQ(), compressor, gamma=1.0))
    assert_same(case.run(FedCOMGATE(), compressor), case.run(FedGATE(), compressor))


def test_a_grid_does_not_scale_with_its_input():
    case = Case([[[1.0]], [[3.0]]], [[-1.0], [1.0]], [2.0], [[0, 1]], 2, 1.0, 0)
    fedcom, fedpaq = (case.run(method, Grid(0.25)).x[0].item() for method in (FedCOM(), FedPAQ()))
    assert (fedcom, fedpaq) == (pytest.approx(1.4625), pytest.approx(1.5))


@few
@given(problems(), st.sampled_from(GATE), st.sampled_from([Compressor(), *LOSSY]))
def test_deltas_sum_to_zero(case, algorithm, compressor):
    """Invariant 13, for whoever takes part; inactive clients keep delta to the last bit."""
    recorded = case.run(algorithm, compressor)
    sums = sums_of_delta(recorded)
    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-10)
    for t in range(1, len(case.cohorts)):
        idle = [i for i in range(len(case.b)) if i not in case.cohorts[t]]
        before, after = recorded.clients[t - 1], recorded.clients[t]
        assert all(torch.equal(before[name][idle], after[name][idle]) for name in after)


@few
@given(problems(), st.data())
def test_deltas_sum_to_zero_with_unequal_steps(case, data):
    steps = [data.draw(st.integers(1, 5)) for _ in case.b]
    for algorithm, compressor in [(FedGATE(), None), (FedCOMGATE(), QSGD(3))]:
        sums = sums_of_delta(case.run(algorithm, compressor, work=WorkPerClient(steps)))
        torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-10)


@few
@given(problems(full=True))
def test_fedgate_is_scaffold_two(case):
    """Invariant 13: delta_j = c_j - c."""
    gate, scaffold = case.run(FedGATE()), case.run(Scaffold(option="II"))
    assert_same(gate, scaffold)
    for t in range(len(case.cohorts)):
        expected = scaffold.clients[t]["c"] - scaffold.server[t]["c"]
        torch.testing.assert_close(gate.clients[t]["delta"], expected, rtol=1e-9, atol=1e-9)


@few
@given(problems(full=True))
def test_option_one_is_option_two(case):
    one, two = case.run(FedGATE(option="I")), case.run(FedGATE())
    assert all(map(torch.equal, one.x, two.x))
    assert [2 * down for down, _ in one.bits] == [down for down, _ in two.bits]


@few
@given(problems(), st.data())
def test_one_client_a_round_is_sequential_fedavg(case, data):
    """Invariant 13: delta never moves."""
    cohorts = [[data.draw(st.integers(0, len(case.b) - 1))] for _ in range(4)]
    recorded = case.run(FedGATE(), cohorts=cohorts)
    assert_same(recorded, case.run(FedAvg(), cohorts=cohorts))
    assert not recorded.clients[-1]["delta"].any()
    assert FedGATE.fewest_clients == 2


@few
@given(problems(), st.sampled_from(["ef", "mean"]))
def test_keeping_everything_is_fedgate(case, feedback):
    """Invariant 14; the memory then is 0, or sums to 0 over a full cohort."""
    everything = TopK(len(case.x0))
    cohorts = [list(range(len(case.b)))] * 3
    recorded = case.run(SparseFedCOMGATE(feedback=feedback), everything, cohorts=cohorts[:1])
    assert_same(recorded, case.run(FedGATE(), cohorts=cohorts[:1]))
    memory = recorded.clients[-1]["memory"]
    torch.testing.assert_close(memory.sum(0), torch.zeros_like(memory[0]), rtol=0, atol=1e-12)
    if feedback == "ef":
        partial = case.run(SparseFedCOMGATE(), everything)
        assert_same(partial, case.run(FedGATE()))
        assert partial.clients[-1]["memory"].abs().max() < 1e-12


class Watched(SparseFedCOMGATE):
    """Adds up what clients had to send, and what they sent."""

    def uplink(self, x, server, client, result, info):
        message, client = super().uplink(x, server, client, result, info)
        self.wanted[info.clients] += client["own"]
        return message, client

    def aggregate(self, x, server, message, info):
        self.sent[info.clients] += message["update"]
        return super().aggregate(x, server, message, info)


@few
@given(problems(), st.sampled_from([TopK(1), QSGD(2), RandK(1, scaled=False)]))
def test_what_was_not_sent_is_in_the_memory(case, compressor):
    """Invariant 14."""
    shape = len(case.b), len(case.x0)

    class Summed(Watched):
        wanted, sent = torch.zeros(shape).double(), torch.zeros(shape).double()

    memory = case.run(Summed(), compressor).clients[-1]["memory"]
    torch.testing.assert_close(Summed.sent + memory, Summed.wanted, rtol=1e-9, atol=1e-10)


@few
@given(problems(full=True))
def test_the_run_s_error_feedback_is_ef_with_tracker_sent(case):
    """Two ways to the same method: a compressor with memory, or the method's own."""
    run = case.run(FedGATE(), TopK(1, error_feedback=True))
    assert_same(run, case.run(SparseFedCOMGATE(tracker="sent"), TopK(1)))


TRI = Case(LIMITS["problem"]["A"], LIMITS["problem"]["b"], LIMITS["x0"], [], 5, 1.0, 0)
PAIRS = [[t % 3, (t + 1) % 3] for t in range(120)]
FULL = [[0, 1, 2]] * 120


def test_the_printed_divisor_breaks_the_zero_sum():
    """Invariant 13."""
    recorded = TRI.run(FedCOMGATE(divide_by="all"), cohorts=[[0, 1]] * 3)
    assert sums_of_delta(recorded)[-1].abs().max() > 1e-3
    full = TRI.run(FedCOMGATE(divide_by="all"), cohorts=FULL[:3])
    assert_same(full, TRI.run(FedCOMGATE(), cohorts=FULL[:3]))


def test_a_quantised_downlink_reaches_everyone():
    """Server and clients use the mean update as it went down; it is counted as compressed."""
    compressor = Grid(0.5)
    recorded = TRI.run(FedCOMGATE(quantise_downlink=True), compressor, cohorts=FULL[:1])
    v = recorded.d[0] / 0.1
    torch.testing.assert_close(v, torch.round(v / 0.5) * 0.5, rtol=0, atol=1e-12)
    plain = TRI.run(FedCOMGATE(), compressor, cohorts=FULL[:1])
    shift = (plain.d[0] - recorded.d[0]) / (0.1 * TRI.steps)
    found = recorded.clients[0]["delta"] - plain.clients[0]["delta"]
    torch.testing.assert_close(found, shift.expand(3, 2), rtol=1e-9, atol=1e-12)
    bits = TRI.run(FedCOMGATE(quantise_downlink=True), QSGD(4), cohorts=[[0, 1]]).bits
    message = QSGD(4).bits(2)
    assert bits == [(2 * (64 + message), 2 * message)]


def reached(algorithm, compressor=None, cohorts=FULL, gamma=1.0, lr=None, **options):
    recorded, _ = fit(
        quadratics(**LIMITS["problem"]),
        FedSGD(gamma),
        x0=LIMITS["x0"],
        cohorts=cohorts,
        algorithm=algorithm,
        sgd=LocalSGD(lr or LIMITS["hyper"]["local_lr"], steps=5, batch_size=None),
        compressor=compressor,
        strategy="stacked",
        **options,
    )
    return recorded.x[-1]


def limit(name):
    return next(row for row in LIMITS["rows"] if row["algorithm"].startswith(name))


def assert_at(x, target, tolerance=1e-7):
    expected = torch.tensor(target, dtype=torch.float64)
    torch.testing.assert_close(x, expected, rtol=0, atol=tolerance)


def test_limits():
    """Section 10: who reaches the optimum, and who stops elsewhere."""
    optimum = LIMITS["x_star"]
    for method in (FedPAQ(), FedCOM()):
        assert_at(reached(method), limit("fedpaq identity")["limit"])
    assert_at(reached(FedGATE(), cohorts=PAIRS), optimum)
    assert_at(reached(FedCOMGATE()), optimum)
    assert_at(reached(SparseFedCOMGATE(), TopK(1), gamma=0.5), optimum, 1e-6)


def test_unequal_steps_reach_the_optimum():
    assert_at(reached(FedGATE(), work=WorkPerClient([1, 3, 6])), LIMITS["x_star"])
    assert_at(reached(FedGATE(), work=WorkPerClient([1, 3, 6]), cohorts=PAIRS), LIMITS["x_star"])


def test_unbiased_messages_reach_the_neighbourhood_of_the_optimum():
    """A quantiser scaled by the message's norm makes no noise where updates vanish."""
    assert_at(reached(FedCOMGATE(), QSGD(64)), LIMITS["x_star"], 1e-6)


@pytest.mark.parametrize("feedback", ["mean", "literal"])
def test_wrong_memories_stop_elsewhere(feedback):
    x = reached(SparseFedCOMGATE(feedback=feedback), TopK(1), gamma=0.5)
    assert (x - torch.tensor(LIMITS["x_star"])).norm() > 0.1
    expected = limit(f"fedcomgate top1 memory={feedback}")["reached"]
    assert_at(x, expected)


def test_a_compressed_method_works_with_any_server_optimizer():
    recorded, _ = fit(
        quadratics(**LIMITS["problem"]),
        FedGM(1.0, 0.5, 0.5),
        x0=LIMITS["x0"],
        cohorts=FULL,
        algorithm=FedGATE(),
        sgd=LocalSGD(0.05, steps=5, batch_size=None),
        strategy="stacked",
    )
    assert_at(recorded.x[-1], LIMITS["x_star"])


def test_option_one_refuses_partial_participation():
    with pytest.raises(ConfigError, match="2 of 3 clients take part in round 0"):
        TRI.run(FedGATE(option="I"), cohorts=[[0, 2]])


@pytest.mark.parametrize("name", ["fedgate", "fedcomgate", "fedcomgate_sparse"])
def test_what_breaks_the_correction_is_said(name):
    method = ALGORITHMS.load(name)
    with pytest.raises(ValueError, match="weighting = 'samples' is not allowed"):
        method(weighting="samples")
    assert method().warnings(LocalSGD()) == []
    (text,) = method().warnings(LocalSGD(momentum=0.9))
    assert text.startswith("client.momentum = 0.9")


def test_empty_rounds_and_metadata():
    for name in ("fedpaq", "fedcom", "fedgate", "fedcomgate", "fedcomgate_sparse"):
        method = ALGORITHMS.load(name)
        assert method.paper
        recorded = TRI.run(method(), QSGD(4), cohorts=[[0, 1], [], [2, 1]])
        assert torch.equal(recorded.x[0], recorded.x[1])
        assert recorded.bits[0] == recorded.bits[1]
        assert recorded.d[1] is None
