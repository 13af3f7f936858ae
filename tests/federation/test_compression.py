import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.algorithms.base import Algorithm, weighted_sum
from fltune.algorithms.fedavg import FedAvg
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import LocalProblem, LocalSGD
from fltune.federation.compression import (
    COMPRESSORS,
    QSGD,
    Affine,
    Compressor,
    Grid,
    NoisyAffine,
    RandK,
    TopK,
)
from fltune.randomness import client_keys, mix, step_keys, uniform

ALL = {
    "identity": Compressor(),
    "grid": Grid(0.25),
    "qsgd": QSGD(4),
    "qsgd_linf": QSGD(4, "linf"),
    "qsgd_bucket": QSGD(4, granularity="bucket", bucket=3),
    "affine": Affine(4),
    "affine_nearest": Affine(4, "nearest"),
    "noisy_affine": NoisyAffine(4, noise=2),
    "topk": TopK(2),
    "topk_tensor": TopK(1, granularity="tensor", sizes=(3, 4)),
    "randk": RandK(2),
    "randk_unscaled": RandK(2, scaled=False),
}
every = pytest.mark.parametrize("compressor", ALL.values(), ids=ALL)
LAST = 1 - 2.0**-24  # the largest uniform there is

numbers = st.floats(-100, 100, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
vectors = st.lists(numbers, min_size=1, max_size=12).map(
    lambda v: torch.tensor([v], dtype=torch.float64)
)


def keys(count, seed=0, round=0):
    return client_keys(seed, round, torch.arange(count))


def normal(rows, d, seed=0):
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def resolved(p):
    """Whether uniforms of 24 bits can tell a probability from 0 and 1."""
    return (p > 1e-6) & (p < 1 - 1e-6)


@given(vectors, st.sampled_from([1, 2, 4, 127]), st.sampled_from(["l2", "linf"]))
def test_qsgd_is_unbiased_with_the_variance_of_its_level_probabilities(v, s, norm):
    compressor = QSGD(s, norm)
    length = torch.linalg.vector_norm(v, 2.0 if norm == "l2" else math.inf)
    r = s * v.abs() / (length if length > 0 else 1.0)
    p = r - r.floor()
    clear = resolved(p)
    ends = [compressor.encode(v, torch.full_like(v, u)) for u in (LAST, 0.0)]
    low, high = (torch.where(clear, end, v) for end in ends)
    torch.testing.assert_close((1 - p) * low + p * high, v, rtol=1e-9, atol=1e-9)
    variance = (p * (1 - p) * (high - low) ** 2).sum()
    expected = (length / s) ** 2 * torch.where(clear, p * (1 - p), 0.0).sum()
    torch.testing.assert_close(variance, expected, rtol=1e-9, atol=1e-9)
    assert variance <= compressor.bound(v.shape[1]) * v.square().sum() * (1 + 1e-9)


@given(vectors, st.sampled_from([1, 2, 4, 8]))
def test_affine_is_unbiased_with_the_variance_of_its_code_probabilities(v, bits):
    d = v.shape[1]
    scale = (v.max() - v.min()) / (2**bits - 1)
    code = (v - v.min()) / (scale if scale > 0 else 1.0)
    p = code - code.floor()
    slack = 1e-9 * (1 + v.abs().max())
    for compressor in (Affine(bits), NoisyAffine(bits, noise=3)):
        middle = [torch.full((1, compressor.draws(d) - d), 0.5).double()]  # no noise
        ends = [
            compressor.encode(v, torch.cat([torch.full_like(v, u), *middle], 1)) for u in (0, LAST)
        ]
        low, high = (torch.where(resolved(p), end, v) for end in ends)
        assert max((end - v).abs().max() for end in ends) <= scale + slack
        torch.testing.assert_close((1 - p) * low + p * high, v, rtol=1e-9, atol=1e-9)
        variance = (p * (1 - p) * (high - low) ** 2).sum()
        if isinstance(compressor, NoisyAffine):
            variance = variance + d * scale**2 * 3 * 4 / 3
        assert variance <= compressor.bound(d) * v.square().sum() * (1 + 1e-6) + slack


@given(vectors, st.integers(1, 12))
def test_sparsifiers_lose_at_most_their_bound(v, k):
    total = v.square().sum()
    for compressor in (TopK(k), RandK(k, scaled=False)):
        decoded = compressor(v, keys(1))
        assert (decoded != 0).sum() <= compressor.kept(v.shape[1])
        assert torch.equal(decoded[decoded != 0], v[decoded != 0])
    assert (Grid(7.0)(v, keys(1)) - v).square().sum() <= Grid().bound(v.shape[1]) * total
    lost = (TopK(k)(v, keys(1)) - v).square().sum()
    assert lost <= TopK(k).bound(v.shape[1]) * total * (1 + 1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_randk_over_all_subsets(k):
    """Every subset is one outcome of the draws; their means are exact."""
    v = torch.tensor([[0.3, -1.2, 0.5, 2.5]], dtype=torch.float64)
    draws = torch.tensor([[float(i in chosen) for i in range(4)] for chosen in subsets(4, k)])
    for compressor in (RandK(k), RandK(k, scaled=False)):
        found = compressor.encode(v.expand(len(draws), 4), draws)
        assert ((found != 0).sum(1) == k).all()
        mean = found.mean(0)
        torch.testing.assert_close(mean, v[0] * (1.0 if compressor.scaled else k / 4))
        q = (found - v).square().sum(1).mean() / v.square().sum()
        assert q == pytest.approx(compressor.bound(4), abs=1e-12)


def subsets(n, k):
    return list(itertools.combinations(range(n), k))


@pytest.mark.parametrize("name", ["qsgd", "qsgd_linf", "qsgd_bucket", "affine", "noisy_affine"])
def test_means_of_many_draws(name):
    compressor, rows = ALL[name], 4000
    v = normal(1, 7).expand(rows, 7)
    found = compressor(v, keys(rows))
    tolerance = 5 * found.std(0) / math.sqrt(rows) + 1e-12
    assert ((found.mean(0) - v[0]).abs() <= tolerance).all()
    q = (found - v).square().sum(1).mean() / v[0].square().sum()
    assert q <= compressor.bound(7)


def test_randk_draws_every_index_alike():
    found = RandK(2, scaled=False)(torch.ones(6000, 5), keys(6000))
    share = found.mean(0)
    assert ((share - 0.4).abs() < 5 * math.sqrt(0.24 / 6000)).all()


@every
def test_the_zero_vector_stays_zero(compressor):
    assert not compressor(torch.zeros(3, 7), keys(3)).any()


@every
def test_not_a_number_shall_be_seen(compressor):
    v = normal(2, 7)
    v[1] = math.nan
    decoded = compressor(v, keys(2))
    assert decoded[0].isfinite().all()
    assert decoded[1].isnan().any()


def test_ties_go_to_the_lowest_index():
    v = torch.tensor([[1.0, -1.0, 1.0, 0.5], [0.0, 2.0, -2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    assert TopK(2)(v, keys(3)).tolist() == [[1, -1, 0, 0], [0, 2, -2, 0], [0, 0, 0, 0]]


def test_constant_vectors_are_sent_as_they_are():
    v = torch.full((1, 5), 0.1)
    for compressor in (Affine(2), NoisyAffine(2, noise=5)):
        assert torch.equal(compressor(v, keys(1)), v)


def test_bits():
    d = 1000
    assert Compressor().bits(d) == Grid().bits(d) == 32 * d
    assert QSGD(4).bits(d) == 32 + d * (1 + 3)
    assert [QSGD(s).bits(1) - 33 for s in (1, 2, 3, 4, 7, 8)] == [1, 2, 2, 3, 3, 4]
    assert QSGD(127, granularity="bucket", bucket=300).bits(d) == 4 * 32 + 8 * d
    assert Affine(6).bits(d) == NoisyAffine(6, noise=9).bits(d) == 64 + 6 * d
    assert TopK(10).bits(d) == 640
    assert TopK(10, packed=True).bits(d) == 10 * (32 + 10)
    assert RandK(10).bits(d) == 320 + 64
    assert TopK(5, granularity="tensor").bind([600, 3, 397]).bits(d) == 64 * (5 + 3 + 5)


def test_a_ratio_is_of_sizes_on_the_wire():
    for ratio, d in [(0.1, 1000), (0.29, 200), (1.0, 7), (0.001, 7)]:
        k = max(1, math.floor(round(ratio * d, 9) / 2))
        assert TopK(ratio=ratio).kept(d) == k
        assert TopK(ratio=ratio).bits(d) <= max(32 * ratio * d, 64) + 1e-6
    assert RandK(ratio=0.1).kept(1000) == 100
    assert TopK().kept(1000) == 50


def test_k_and_ratio_exclude_each_other():
    with pytest.raises(ValueError, match=r"k = 3 and ratio = 0\.5 are both set"):
        TopK(3, 0.5)


@pytest.mark.parametrize("make", [QSGD, Affine, TopK, RandK, NoisyAffine])
def test_blocks_are_compressed_on_their_own(make):
    v, sizes = normal(4, 11), [2, 5, 4]
    whole = make(granularity="tensor").bind(sizes)
    random = whole.uniforms(v, keys(4))
    parts = zip(v.split(sizes, 1), random.split([whole.draws(n) for n in sizes], 1), strict=True)
    expected = torch.cat([make().encode(part, u) for part, u in parts], 1)
    assert torch.equal(whole(v, keys(4)), expected)
    cut = [4, 4, 3]
    buckets = make(granularity="bucket", bucket=4)
    random = buckets.uniforms(v, keys(4))
    parts = zip(v.split(cut, 1), random.split([whole.draws(n) for n in cut], 1), strict=True)
    expected = torch.cat([make().encode(part, u) for part, u in parts], 1)
    assert torch.equal(buckets(v, keys(4)), expected)
    assert buckets.bound(11) == max(make().bound(4), make().bound(3))


def test_tensors_must_be_those_of_the_model():
    with pytest.raises(ValueError, match="the vector has 5 numbers, the model's tensors 4"):
        TopK(1, granularity="tensor").bind([3, 1])(torch.ones(1, 5), keys(1))


@every
def test_a_client_s_message_does_not_depend_on_the_cohort(compressor):
    v = normal(6, 7)
    whole = compressor(v, keys(6))
    some = torch.tensor([4, 1])
    assert torch.equal(compressor(v[some], client_keys(0, 0, some)), whole[some])
    assert torch.equal(compressor(v, keys(6)), whole)


@pytest.mark.parametrize("name", ["qsgd", "affine", "noisy_affine", "randk"])
def test_draws_differ_by_seed_round_and_client(name):
    compressor = ALL[name]
    v = normal(1, 50).expand(2, 50)
    found = [compressor(v, keys(2, seed, round)) for seed, round in [(0, 0), (1, 0), (0, 1)]]
    rows = torch.cat(found)
    assert len(rows.unique(dim=0)) == 6


def test_uniforms_are_those_of_single_keys():
    """One call for all clients gives what a call for each would."""
    many = uniform(keys(3), (2, 4))
    assert many.shape == (3, 2, 4)
    assert torch.equal(many, torch.stack([uniform(key, (2, 4)) for key in keys(3)]))
    assert torch.equal(many, torch.vmap(lambda key: uniform(key, (2, 4)))(keys(3)))
    single = uniform(mix(step_keys(keys(1), -2))[0], (5,))
    assert torch.equal(QSGD().uniforms(torch.ones(1, 5), keys(1))[0], single)


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


A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]], [[3.0, -0.5], [-0.5, 1.0]]]
B = [[1.0, 0.0], [-1.0, 2.0], [0.5, -1.0]]
PART = [[0, 1, 2], [0, 2], [1], [], [0, 1]]


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


def test_values_out_of_range():
    for make in (
        lambda: QSGD(0),
        lambda: QSGD(norm="l1"),
        lambda: Affine(0),
        lambda: NoisyAffine(noise=-1),
        lambda: TopK(ratio=1.5),
        lambda: TopK(0),
        lambda: RandK(granularity="layer"),
    ):
        with pytest.raises(ValueError, match="is not allowed; must be"):
            make()


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
