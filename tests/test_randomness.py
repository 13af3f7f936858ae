import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.randomness import (
    client_keys,
    derive_seed,
    generator,
    kept,
    kept_rows,
    mix,
    mix_keys,
    step_keys,
    uniform,
    uniform_rows,
)


def test_mix_is_splitmix64():
    """The first outputs of the public reference generator seeded with 0 and with 1234567."""
    first = mix(torch.tensor([0, 1234567]))
    assert [v % 2**64 for v in first.tolist()] == [16294208416658607535, 6457827717110365317]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_keys_are_mixed_on_the_host_as_they_are_anywhere(values):
    z = torch.tensor(values, dtype=torch.int64)
    assert torch.equal(mix_keys(z), mix(z))
    table = z.unsqueeze(1).expand(-1, 3)  # no memory of its own, as keys of passes and steps have
    assert torch.equal(mix_keys(table), mix(table))
    assert z.tolist() == values
    for one in z:  # a scalar, whose arithmetic NumPy would check
        assert torch.equal(mix_keys(one), mix(one))


def test_mix_flips_half_of_the_bits():
    z = torch.arange(2000)
    for bit in (0, 17, 62):
        changed = mix(z) ^ mix(z ^ (1 << bit))
        flips = sum(bin(v % 2**64).count("1") for v in changed.tolist()) / len(z)
        assert flips == pytest.approx(32, abs=0.5)


def test_uniform_is_uniform():
    u = uniform(torch.tensor(3), (200, 200))
    assert u.dtype == torch.float32
    assert 0 <= u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    counts = torch.histc(u, 20, 0, 1)
    assert float((counts - 2000).abs().max()) < 5 * 2000**0.5
    neighbours = torch.stack([u[:, :-1].flatten(), u[:, 1:].flatten()])
    assert abs(float(torch.corrcoef(neighbours)[0, 1])) < 0.02


def test_uniform_under_vmap_is_one_call_per_key():
    keys = client_keys(0, 0, torch.arange(5))
    stacked = torch.vmap(lambda key: uniform(key, (3, 4)))(keys)
    assert torch.equal(stacked, torch.stack([uniform(key, (3, 4)) for key in keys]))
    assert len(stacked.unique()) == stacked.numel()


@pytest.mark.parametrize(
    ("rows", "count"), [(1, 1), (3, 0), (0, 5), (40, 7), (7, 5000), (3, 2**15), (2, 100_001)]
)
def test_rows_in_blocks_are_the_same_numbers(rows, count):
    keys = client_keys(1, 2, torch.arange(rows))
    assert torch.equal(uniform_rows(keys, count), uniform(keys, (count,)))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.2, 0.5, 0.9, 1 - 2**-24, 1 - 2**-26])
@pytest.mark.parametrize(("rows", "count"), [(1, 1), (3, 0), (7, 5000), (2, 100_001)])
def test_what_is_kept_is_what_the_numbers_say(rows, count, p):
    keys = client_keys(1, 2, torch.arange(rows))
    assert torch.equal(kept_rows(keys, count, p), uniform(keys, (count,)) >= p)


def test_one_key_keeps_the_same_inside_vmap_and_outside():
    keys = client_keys(0, 0, torch.arange(5))
    stacked = torch.vmap(lambda key: kept(key, (3, 4), 0.3))(keys)
    assert torch.equal(stacked, torch.stack([kept(key, (3, 4), 0.3) for key in keys]))


def test_uniform_rows_do_not_depend_on_the_rows_after_them():
    key = torch.tensor(11)
    assert torch.equal(uniform(key, (2, 7)), uniform(key, (5, 7))[:2])


def test_every_purpose_has_its_own_seed():
    purposes = [(), ("model",), ("partition",), ("client", 0), ("client", 1), (0, "client")]
    seeds = [derive_seed(s, *p) for s in range(50) for p in purposes]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)
    assert derive_seed(7, "model") == derive_seed(7, "model")


def test_generators_are_fresh():
    first = torch.rand(4, generator=generator(0, "a", 1))
    assert torch.equal(first, torch.rand(4, generator=generator(0, "a", 1)))
    assert not torch.equal(first, torch.rand(4, generator=generator(0, "a", 2)))


def test_keys_of_clients_rounds_seeds_and_steps_are_apart():
    clients = torch.arange(100)
    keys = torch.stack([client_keys(s, t, clients) for s in range(5) for t in range(20)])
    steps = torch.stack([step_keys(keys[0], k) for k in range(20)])
    everything = torch.cat([keys.flatten(), steps.flatten()])
    assert len(everything.unique()) == len(everything)
    assert torch.equal(client_keys(1, 2, clients[3:4]), client_keys(1, 2, clients)[3:4])
