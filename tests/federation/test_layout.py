"""Channels last: where it helps, and only there, and with the same numbers."""

import pytest
import torch
from torch import nn

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, LocalSolver, layout
from fltune.federation import flat as flat_module
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.flat import FlatNetwork
from fltune.federation.layout import channels_last, prefers_channels_last
from fltune.federation.losses import cross_entropy
from fltune.randomness import client_keys

SIZES = torch.tensor([5, 3])


def network(channels=3):
    torch.manual_seed(0)
    block = [nn.Conv2d(channels, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block, nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 3))


def plain():
    torch.manual_seed(0)
    block = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 3)]
    return nn.Sequential(*block, nn.Flatten(), nn.Linear(8, 3))


class Viewing(nn.Module):
    """Its view takes only what is contiguous."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 3)

    def forward(self, x):
        hidden = self.conv(x)
        return self.out(hidden.view(len(hidden), -1))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_layout_is_no_other_tensor(channels):
    x = torch.randn(2, channels, 5, 7)
    moved = channels_last(x)
    assert torch.equal(moved, x)
    assert moved.stride() == (channels * 35, 1, 7 * channels, channels)
    hidden = nn.Conv2d(channels, 4, 3)(moved)
    assert hidden.is_contiguous(memory_format=torch.channels_last)


def test_who_prefers_it():
    x = torch.randn(2, 3, 8, 8)
    assert prefers_channels_last(network(), x)
    assert not prefers_channels_last(network().double(), x.double())
    assert not prefers_channels_last(Viewing(), x)
    assert not prefers_channels_last(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), x)
    assert not prefers_channels_last(nn.Linear(3, 3), torch.randn(2, 3))


def test_asking_moves_no_running_statistics():
    normed = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = normed[1].running_mean.clone()
    assert prefers_channels_last(normed, torch.randn(2, 3, 8, 8))
    assert torch.equal(normed[1].running_mean, before)
    assert normed.training


def solve(model, poisoned=False):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(8, 3, 8, 8, generator=random)
    if poisoned:
        x[[0, 7], 0, 3, 3] = float("nan")  # one of each client
    data = Split(x, torch.randint(3, (8,), generator=random))
    keys = client_keys(0, 0, torch.arange(2))
    held = Holdings(torch.arange(8), SIZES.cumsum(0) - SIZES, SIZES)
    plan = plan_batches(held, keys, torch.tensor([2, 2]), "epochs", 2)
    flat = FlatNetwork(model)
    solver = LocalSolver(flat, cross_entropy, LocalSGD(lr=0.2, momentum=0.5), "loop")
    asked = LocalProblem(flat.read(), gradient_sum=True)
    return solver.solve(asked, data, plan, 0.2, keys), flat.layout(x)


@pytest.mark.parametrize(
    ("make", "chosen"), [(network, layout.channels_last), (plain, layout.blocked)]
)
def test_the_loop_gives_the_same_numbers(monkeypatch, make, chosen):
    with_it, took = solve(make())
    assert took is chosen
    monkeypatch.setattr(flat_module, "choose_layout", lambda *asked: layout.as_given)
    without, took = solve(make())
    assert took is layout.as_given
    for name in ("end", "loss", "gradient_sum"):
        left, right = getattr(with_it, name), getattr(without, name)
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_who_takes_the_blocked_layout():
    x = torch.randn(2, 3, 8, 8)
    assert layout.takes_blocked(plain(), x)
    assert layout.choose_layout(plain(), x, "full") is layout.blocked
    assert layout.choose_layout(plain(), x, "bf16") is layout.channels_last
    assert not layout.takes_blocked(plain().double(), x.double())
    assert not layout.takes_blocked(network(), x)  # GroupNorm is not among its layers
    assert not layout.takes_blocked(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), x)
    assert not layout.takes_blocked(Viewing(), x)
    hooked = plain()
    hooked[0].register_forward_hook(lambda *seen: None)
    assert not layout.takes_blocked(hooked, x)


class Adding(nn.Module):
    """Has a layer that is not in its list, and one sum."""

    def __init__(self, drop=0.0, stride=2):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.out = nn.Linear(64, 3)
        self.drop, self.stride = drop, stride

    def forward(self, x):
        hidden = nn.functional.max_pool2d(self.first(x).relu(), 2, self.stride)
        hidden = nn.functional.dropout(hidden + self.second(hidden), self.drop, self.training)
        return self.out(hidden.flatten(1))


def test_a_forward_is_tried_out():
    x = torch.randn(2, 3, 8, 8)
    assert layout.takes_blocked(Adding().eval(), x)
    assert not layout.takes_blocked(Adding(drop=0.5), x)
    assert not layout.takes_blocked(Adding(stride=None).eval(), x)  # only its backward is lacking


def test_ties_and_padding_of_a_blocked_pooling_are_those_of_torch():
    """Whole numbers: many values tie, and the gradient goes to the first of them."""
    x = torch.randint(-1, 2, (4, 3, 9, 11)).float().requires_grad_()
    for options in ({}, {"ceil_mode": True}, {"stride": 1}, {"stride": 3, "padding": 1}):
        pool = nn.MaxPool2d(2, **options)
        usual, ours = pool(x), pool(layout.blocked(x)).to_dense()
        assert torch.equal(usual, ours)
        weight = torch.randint(-3, 4, usual.shape).float()
        (one,), (other,) = (torch.autograd.grad(y, x, weight) for y in (usual, ours))
        assert torch.equal(one, other)


@pytest.mark.parametrize("poisoned", ["sample", "weight"])
def test_what_is_not_finite_is_seen(poisoned):
    """Though a blocked max-pooling makes numbers of it."""
    model = plain()
    if poisoned == "weight":
        with torch.no_grad():
            model[0].weight[0, 0, 0, 0] = float("nan")
    result, took = solve(model, poisoned=poisoned == "sample")
    assert took is layout.blocked
    assert not result.end.isfinite().all(1).any()
