"""Compression in a round: error feedback as client state, strategies, weights, the config."""

import pytest
import torch
from compressors import ALL, every, keys, normal
from hypothesis import given
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.algorithms.base import Algorithm, weighted_sum
from fltune.algorithms.fedavg import FedAvg
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import LocalProblem, LocalSGD
from fltune.federation.compression import COMPRESSORS, Compressor, Grid, RandK, TopK
from fltune.federation.compression.messages import send

A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]], [[3.0, -0.5], [-0.5, 1.0]]]
B = [[1.0, 0.0], [-1.0, 2.0], [0.5, -1.0]]
PART = [[0, 1, 2], [0, 2], [1], [], [0, 1]]


@given(st.sampled_from(sorted(ALL)), st.integers(1, 8), st.integers(0, 1000))
def test_error_feedback_loses_nothing(name, rounds, seed):
    compressor = ALL[name]
    inputs = normal(rounds * 3, 7, seed).view(rounds, 3, 7)
    memory = total = torch.zeros(3, 7, dtype=torch.float64)
    for t, v in enumerate(inputs):
        sent, memory = compressor.with_memory(v, memory, keys(3, seed, t))
        total = total + sent
    scale = 1 + memory.abs().max()  # of what cancels: randk's memory may grow
    torch.testing.assert_close((total + memory) / scale, inputs.sum(0) / scale, rtol=0, atol=1e-12)


class Watched(FedAvg):
    """Notes what clients want to send, and what the server gets."""

    def uplink(self, x, server, client, result, info):
        message, client = super().uplink(x, server, client, result, info)
        assert not any("memory" in name for name in client)
        self.log.append((info.clients, message["update"].clone()))
        return message, client

    def aggregate(self, x, server, message, info):
        self.log[-1] = (*self.log[-1], message["update"].clone())
        return super().aggregate(x, server, message, info)


def test_each_entry_of_a_message_has_draws_of_its_own():
    v = normal(4, 50)
    stored = {"memory@b": torch.zeros_like(v)}
    sent = send(RandK(5), ("a", "b"), {"a": v, "b": v}, stored, keys(4)).message
    assert torch.equal(sent["a"], RandK(5)(v, keys(4)))
    assert not any(torch.equal(*rows) for rows in zip(sent["a"], sent["b"], strict=True))


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
def test_memory_is_client_state(strategy):
    class Logged(Watched):
        log = []  # noqa: RUF012 - of this test

    recorded, module = fit(
        quadratics(A, B),
        x0=[1.0, -1.0],
        cohorts=PART,
        algorithm=Logged(),
        compressor=TopK(1, error_feedback=True),
        strategy=strategy,
    )
    wanted, got = torch.zeros(3, 2).double(), torch.zeros(3, 2).double()
    for clients, u, s in Logged.log:
        wanted[clients] += u
        got[clients] += s
    memory = recorded.clients[-1]["memory@update"]
    torch.testing.assert_close(got + memory, wanted)
    assert memory.any()
    for t in range(1, len(PART)):
        idle = [i for i in range(3) if i not in PART[t]]
        before, after = (recorded.clients[s]["memory@update"][idle] for s in (t - 1, t))
        assert torch.equal(before, after)
    assert "memory@update" in module.client_state.state_dict()["rows"]


class Started(Algorithm):
    """Every client solves a problem before round 0, and keeps its state in two steps."""

    def client_state(self, x):
        return {"start": x}

    def initial_problem(self, x):
        return LocalProblem(start=x)

    def initialise(self, x, result, info):
        return result.end.mean(0), {}, {"start": result.end}


def test_error_feedback_goes_with_an_initial_problem():
    compressor = TopK(1, error_feedback=True)
    recorded, _ = fit(
        quadratics(A, B), x0=[1.0, -1.0], cohorts=[[0]], algorithm=Started(), compressor=compressor
    )
    assert set(recorded.clients[0]) == {"start", "memory@update"}
    assert [row.any().item() for row in recorded.clients[0]["memory@update"]] == [
        True,
        False,
        False,
    ]


@every
def test_strategies_agree(compressor):
    runs = [
        fit(
            quadratics(A, B),
            x0=[1.0, -1.0],
            cohorts=PART,
            compressor=compressor.bind(()),
            strategy=strategy,
        )[0]
        for strategy in ("loop", "stacked")
    ]
    torch.testing.assert_close(
        torch.stack(runs[0].x), torch.stack(runs[1].x), rtol=1e-9, atol=1e-11
    )
    assert runs[0].bits == runs[1].bits
    assert runs[0].bits[-1][1] == 8 * compressor.bind((2,)).bits(2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_contraction_with_error_feedback_reaches_the_optimum(seed):
    target = normal(2, 4, seed)
    data = quadratics(torch.eye(4).expand(2, 4, 4).tolist(), target.tolist())
    recorded, _ = fit(
        data,
        rounds=150,
        x0=[0.0] * 4,
        sgd=LocalSGD(0.1, steps=1, batch_size=None),
        compressor=TopK(1, error_feedback=True),
        strategy="stacked",
    )
    late = torch.stack(recorded.x[-20:]).mean(0)
    torch.testing.assert_close(late, target.mean(0), rtol=0, atol=0.2)


@pytest.mark.parametrize("name", list(COMPRESSORS))
def test_configs(name):
    experiment = Experiment.parse({"compression": {"name": name, "error_feedback": True}})
    assert experiment.compression.build() == COMPRESSORS.load(name)(error_feedback=True)
    assert "sizes" not in experiment.as_dict()["compression"]


def test_a_second_memory_is_refused():
    compression = {"name": "topk", "error_feedback": True}
    with pytest.raises(ConfigError, match="compression: fedcomgate_sparse has a memory of its own"):
        Experiment.parse({"algorithm": "fedcomgate_sparse", "compression": compression})


def test_weights_act_on_what_was_decoded():
    recorded, _ = fit(
        quadratics(A, B, counts=[1, 2, 3]),
        x0=[1.0, -1.0],
        rounds=1,
        algorithm=FedAvg(weighting="samples"),
        compressor=Grid(0.25),
    )
    weights = torch.tensor([1.0, 2.0, 3.0]).double() / 6
    updates = [
        fit(quadratics([a], [b]), x0=[1.0, -1.0], rounds=1, compressor=Grid(0.25))[0].d[0]
        for a, b in zip(A, B, strict=True)
    ]
    torch.testing.assert_close(recorded.d[0], weighted_sum(weights, torch.stack(updates)))


@pytest.mark.parametrize("feedback", [False, True])
def test_a_round_says_how_much_of_its_messages_was_lost(feedback):
    class Logged(Watched):
        log = []  # noqa: RUF012 - of this test

    cohorts = [[0, 1, 2], [0, 2]]
    _, module = fit(
        quadratics(A, B),
        x0=[1.0, -1.0],
        cohorts=cohorts,
        algorithm=Logged(),
        compressor=TopK(1, error_feedback=feedback),
    )
    clients, wanted, got = Logged.log[-1]
    if feedback:  # what was left of round 0 goes along
        _, before, sent = Logged.log[0]
        wanted = wanted + (before - sent)[clients]
    q = (got - wanted).square().sum() / wanted.square().sum()
    torch.testing.assert_close(module.round_metrics["compression/q"], q)
    assert 0 < q <= module.round_metrics["compression/bound"] == 0.5


class Sign(Compressor):
    """Says nothing of what it loses."""

    def encode(self, v, uniforms):
        return v.abs().mean(-1, keepdim=True) * v.sign()


class BoundedSign(Sign):
    def block_bound(self, n):
        return 1 - 1 / n


@pytest.mark.parametrize(("compressor", "bound"), [(Sign(), None), (BoundedSign(), 0.5)])
def test_a_bound_that_nobody_has_said_is_not_reported(compressor, bound):
    _, module = fit(quadratics(A, B), x0=[1.0, -1.0], cohorts=[[0, 1]], compressor=compressor)
    assert module.round_metrics["compression/q"] > 0
    assert module.round_metrics.get("compression/bound") == bound


def test_what_is_decoded_has_the_shape_of_what_was_sent():
    class Mean(Compressor):
        def encode(self, v, uniforms):
            return v.mean(-1, keepdim=True)

    text = (
        r"^compression: Mean\.encode must return .* \[2, 1, 3\] like its blocks; found \[2, 1, 1\]"
    )
    with pytest.raises(ConfigError, match=text):
        Mean()(torch.ones(2, 3), torch.arange(2))


def test_without_compression_nothing_is_lost():
    for compressor in (Compressor(), Compressor(error_feedback=True)):
        _, module = fit(quadratics(A, B), x0=[1.0, -1.0], cohorts=[[0, 1]], compressor=compressor)
        assert module.round_metrics.get("compression/q", 0.0) == 0.0
        assert compressor.error_feedback == ("compression/q" in module.round_metrics)
