"""What a compressor does to a vector: mean, variance, bound, bits, and whose draws it takes."""

import itertools
import math

import pytest
import torch
from compressors import ALL, every, keys, normal
from hypothesis import given
from hypothesis import strategies as st

from fltune.federation.compression import (
    QSGD,
    Affine,
    Compressor,
    Grid,
    NoisyAffine,
    RandK,
    TopK,
)
from fltune.randomness import client_keys, mix, step_keys, uniform

LAST = 1 - 2.0**-24  # the largest uniform there is

numbers = st.floats(-100, 100, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
vectors = st.lists(numbers, min_size=1, max_size=12).map(
    lambda v: torch.tensor([v], dtype=torch.float64)
)


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
    assert [TopK(1, packed=True).bits(n) - 32 for n in (1, 2, 3, 1024, 1025)] == [0, 1, 2, 10, 11]
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


@pytest.mark.parametrize("make", [QSGD, TopK, RandK, Grid, Affine], ids=lambda c: c.__name__)
def test_the_quality_of_messages_is_the_share_of_them_that_is_lost(make):
    """Over all rows; unbiased draws reach the bound on average, and 64 rows are near it."""
    compressor = make()
    v = normal(64, 40)
    decoded = compressor(v, keys(64))
    q = compressor.quality(v, decoded)
    lost = sum(float((a - b).square().sum()) for a, b in zip(v, decoded, strict=True))
    assert float(q) == pytest.approx(lost / sum(float(a.square().sum()) for a in v))
    assert 0 < q <= compressor.bound(40) * 1.1


TWO_ENDS = [1.0, -1.0, *[0.0] * 98]


@pytest.mark.parametrize(
    ("compressor", "v", "bound"),
    [
        (QSGD(levels=1), [1.0] * 100, 10.0),  # each becomes 0 or 10: q = 9
        (QSGD(levels=127), [1.0] * 100, 100 / 127**2),
        (Affine(width=1), TWO_ENDS, 50.0),  # each 0 becomes 1 or -1: q = 49
        (Affine(width=4), TWO_ENDS, 50 / 15**2),
        (NoisyAffine(width=4, noise=2), TWO_ENDS, 50 / 15**2 + 4 * 100 / 15**2),
        (RandK(10), [1.0] * 100, 9.0),
    ],
)
def test_what_is_lost_at_worst_comes_near_the_bound(compressor, v, bound):
    """A bound that is far above what is lost would warn where nothing is wrong."""
    assert compressor.bound(100) == pytest.approx(bound)
    sent = torch.tensor([v], dtype=torch.float64).expand(4000, 100)
    assert 0.1 * bound < compressor.quality(sent, compressor(sent, keys(4000))) <= 1.05 * bound


def test_the_quality_of_nothing_is_zero_and_a_nan_is_seen():
    zero, one = torch.zeros(2, 3), torch.ones(2, 3)
    assert QSGD().quality(zero, QSGD()(zero, keys(2))) == 0
    assert Compressor().quality(one, Compressor()(one, keys(2))) == 0
    assert TopK().quality(torch.tensor([[3.0, 4.0], [0, 0]]), torch.tensor([[0, 4.0], [0, 0]])) == (
        pytest.approx(9 / 25)
    )
    assert QSGD().quality(one * math.nan, one).isnan()
