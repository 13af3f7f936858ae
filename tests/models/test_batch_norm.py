import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fltune.federation.flat import FlatNetwork
from fltune.models.batch_norm import BatchNorm, apply_policy, with_statistics

KINDS = {nn.BatchNorm1d: (), nn.BatchNorm2d: (2, 3), nn.BatchNorm3d: (2, 1, 2)}


def pair(kind, **options):
    """PyTorch's layer, and ours with the same numbers."""
    torch.manual_seed(0)
    theirs, ours = (nn.Sequential(kind(4, **options)) for _ in range(2))
    for layer in (theirs[0], ours[0]):
        for value in (*layer.parameters(), *list(layer.buffers())[:1]):  # the mean comes first
            nn.init.normal_(value, generator=torch.Generator().manual_seed(1))
    apply_policy(ours, "average" if theirs[0].track_running_stats else "refuse")
    assert type(ours[0]) is BatchNorm
    return theirs, ours


@pytest.mark.parametrize("kind", KINDS)
@given(
    batch=st.integers(2, 5),
    momentum=st.sampled_from([0.1, 0.5, None]),
    affine=st.booleans(),
    track=st.booleans(),
)
def test_it_is_pytorchs_own_wherever_that_works(kind, batch, momentum, affine, track):
    options = {"momentum": momentum, "affine": affine, "track_running_stats": track}
    theirs, ours = pair(kind, **options)
    for _ in range(3):
        x = torch.randn(batch, 4, *KINDS[kind])
        assert torch.equal(ours(x), theirs(x))
    theirs.eval()
    ours.eval()
    assert torch.equal(ours(x), theirs(x))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_per_channel_without_statistics_gives_the_bias(kind):
    theirs, ours = pair(kind, track_running_stats=False)
    x = torch.randn(1, 4, *[1] * len(KINDS[kind]))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        theirs(x)
    for mode in (True, False):
        assert torch.equal(ours.train(mode)(x).flatten(), ours[0].bias)
    near = torch.cat([x, x + 1e-9])  # the limit of two samples that become one
    torch.testing.assert_close(ours(near)[:1], ours(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_per_channel_is_normalised_by_statistics_and_leaves_them(kind):
    _, ours = pair(kind)
    before = {k: v.clone() for k, v in ours.state_dict().items()}
    x = torch.randn(1, 4, *[1] * len(KINDS[kind]))
    assert torch.equal(ours.train()(x), ours.eval()(x))
    assert all(torch.equal(v, before[k]) for k, v in ours.state_dict().items())


@pytest.mark.parametrize("policy", ["refuse", "average"])
def test_one_sample_has_a_gradient_in_every_parameter(policy):
    tracked = policy == "average"
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=tracked))
    apply_policy(network, policy)
    parts = torch.autograd.grad(network(torch.randn(1, 3)).sum(), list(network.parameters()))
    weight, bias, scale, shift = parts
    assert shift.tolist() == [1] * 4
    for part in (weight, bias, scale):
        assert part.any() if tracked else not part.any()


def test_an_infinite_activation_stays_visible():
    _, ours = pair(nn.BatchNorm1d, track_running_stats=False)
    assert ours(torch.full((1, 4), torch.inf)).isnan().all()


def normed(momentum=0.1):
    inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum))
    return nn.Sequential(inner, nn.Linear(4, 2), nn.InstanceNorm1d(2, track_running_stats=True))


def test_refuse_names_the_layer_and_the_choices():
    with pytest.raises(ValueError, match=r"layer '0\.1' \(BatchNorm1d\) keeps running statistics"):
        FlatNetwork(normed())
    with pytest.raises(ValueError, match=r"batch_statistics .* or average .*, or use GroupNorm"):
        FlatNetwork(normed())
    with pytest.raises(ValueError, match="'drop'; must be one of refuse, batch_statistics, av"):
        FlatNetwork(normed(), "drop")


def test_statistics_of_an_unknown_kind_are_refused_by_every_policy():
    class Own(nn.Linear):
        track_running_stats = True

    for policy in ("refuse", "batch_statistics", "average"):
        with pytest.raises(ValueError, match=r"layer '0' \(Own\) keeps running statistics"):
            FlatNetwork(nn.Sequential(Own(2, 2)), policy)


def test_batch_statistics_keeps_none():
    network = normed()
    flat = FlatNetwork(network, "batch_statistics")
    assert with_statistics(network) == []
    assert flat.read_statistics().numel() == 0
    assert not any("running" in name or "num_batches" in name for name in network.state_dict())
    network.eval()
    one = network[0]
    x = torch.randn(6, 3)
    torch.testing.assert_close(one(x).mean(0), torch.zeros(4), atol=1e-6, rtol=0)


def test_statistics_are_one_vector():
    network = normed()
    flat = FlatNetwork(network, "average")
    norm, instance = network[0][1], network[2]
    assert torch.equal(flat.read_statistics(), torch.tensor([0.0] * 4 + [1.0] * 4 + [0, 0, 1, 1]))
    norm.num_batches_tracked += 3
    flat.write_statistics(torch.arange(12.0))
    assert norm.running_mean.tolist() == [0, 1, 2, 3]
    assert norm.running_var.tolist() == [4, 5, 6, 7]
    assert instance.running_var.tolist() == [10, 11]
    assert norm.num_batches_tracked == 0
    assert flat.dimension == 3 * 4 + 4 + 4 + 4 + 4 * 2 + 2  # not among the parameters


def test_statistics_come_back_with_the_parameters():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    flat = FlatNetwork(network, "average")
    before = flat.read_statistics()
    with flat.at(flat.read()):
        network(torch.randn(5, 3))
        assert not torch.equal(flat.read_statistics(), before)
    assert torch.equal(flat.read_statistics(), before)
    assert network[1].num_batches_tracked == 0


@pytest.mark.parametrize("kind", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_dropout_of_whole_channels_is_keyed(kind):
    shape = {nn.Dropout1d: (9,), nn.Dropout2d: (3, 3), nn.Dropout3d: (3, 1, 3)}[kind]
    flat = FlatNetwork(
        nn.Sequential(nn.Unflatten(1, (30, *shape)), kind(0.3), nn.Linear(shape[-1], 1))
    )
    keyed = flat.network[1]
    x = torch.ones(20, 30, *shape)
    keyed.key = torch.tensor(4)
    first = keyed(x).flatten(2)
    assert torch.equal(first, first[:, :, :1].expand_as(first))  # a channel lives or dies as one
    assert float((first > 0).float().mean()) == pytest.approx(0.7, abs=0.1)
    torch.manual_seed(1)
    assert torch.equal(keyed(x).flatten(2), first)
    keyed.key = torch.tensor(5)
    assert not torch.equal(keyed(x).flatten(2), first)
    assert torch.equal(keyed.eval()(x), x)
