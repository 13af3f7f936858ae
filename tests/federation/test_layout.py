"""Channels last: where it helps, and only there, and with the same numbers."""

import pytest
import torch
from torch import nn

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, LocalSolver, loop
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


def solve():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(8, 3, 8, 8, generator=random)
    data = Split(x, torch.randint(3, (8,), generator=random))
    keys = client_keys(0, 0, torch.arange(2))
    held = Holdings(torch.arange(8), SIZES.cumsum(0) - SIZES, SIZES)
    plan = plan_batches(held, keys, torch.tensor([2, 2]), "epochs", 2)
    flat = FlatNetwork(network())
    solver = LocalSolver(flat, cross_entropy, LocalSGD(lr=0.2, momentum=0.5), "loop")
    return solver.solve(LocalProblem(flat.read(), gradient_sum=True), data, plan, 0.2, keys)


def test_the_loop_gives_the_same_numbers(monkeypatch):
    asked = []
    monkeypatch.setattr(loop, "channels_last", lambda x: (asked.append(1), channels_last(x))[1])
    with_it = solve()
    assert asked
    monkeypatch.setattr(loop, "prefers_channels_last", lambda network, x: False)
    without = solve()
    for name in ("end", "loss", "gradient_sum"):
        left, right = getattr(with_it, name), getattr(without, name)
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
