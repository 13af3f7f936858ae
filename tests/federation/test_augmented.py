"""Augmentation inside rounds: one result whatever the strategy, in training only, resumable."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from fltune.data.augmentation import Augmentation
from fltune.data.dataset import RawData
from fltune.data.federated import Split
from fltune.data.images import Images
from fltune.experiment import Experiment
from fltune.federation import LocalProblem, LocalSGD, LocalSolver
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.randomness import client_keys
from fltune.runner import build, run

SIZES = torch.tensor([7, 1, 12, 4])
AUGMENTATIONS = [Augmentation(2, True, (-0.5, -0.25)), Augmentation(1), Augmentation(flip=True)]


@dataclass(frozen=True)
class Patches(Images):
    """Small random images whose class is where their bright side is."""

    def load(self):
        random = torch.Generator().manual_seed(0)
        y = torch.arange(120) % 2
        x = torch.rand(120, 1, 6, 6, generator=random)
        x[:, 0, :3] += y.view(-1, 1, 1)
        train = Split(x[:90], y[:90], self.augmentation())
        return RawData(train, Split(x[90:], y[90:]), num_classes=2)


class Net(nn.Module):
    """One convolution and one dense layer, with dropout between them."""

    def __init__(self, input_shape, num_classes):
        super().__init__()
        channels, height, width = input_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 2, 3, padding=1),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(2 * height * width, num_classes),
        )

    def forward(self, x):
        return self.layers(x)


def solve(strategy, sgd, augmentation):
    torch.manual_seed(0)
    network = FlatNetwork(Net((2, 5, 4), 3).double())
    random = torch.Generator().manual_seed(0)
    n = int(SIZES.sum())
    x = torch.randn(n, 2, 5, 4, generator=random, dtype=torch.float64)
    data = Split(x, torch.randint(3, (n,), generator=random), augmentation)
    held = Holdings(torch.arange(n), SIZES.cumsum(0) - SIZES, SIZES)
    key = client_keys(0, 3, torch.arange(4))
    amount = torch.full((4,), sgd.amount)
    plan = plan_batches(held, key, amount, sgd.unit, sgd.batch_size)
    full = plan_batches(held, key, torch.ones_like(SIZES), "steps", None)
    solver = LocalSolver(network, cross_entropy, sgd, strategy)
    asked = LocalProblem(network.read(), gradient_sum=True, start_gradient=True)
    return solver.solve(asked, data, plan, sgd.lr, key, full)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize(
    "sgd",
    [LocalSGD(lr=0.2, epochs=2, batch_size=3, momentum=0.5), LocalSGD(lr=0.2, steps=4)],
    ids=["partial_batches", "full_batches"],
)
def test_stacked_is_loop(sgd, augmentation):
    loop, stacked = solve("loop", sgd, augmentation), solve("stacked", sgd, augmentation)
    for name in ("end", "loss", "gradient_sum", "start_gradient"):
        left, right = getattr(loop, name), getattr(stacked, name)
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(loop.end, solve("loop", sgd, None).end)


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
def test_an_augmentation_that_does_nothing_is_none(strategy):
    sgd = LocalSGD(lr=0.2, epochs=2, batch_size=3)
    nothing = solve(strategy, sgd, Augmentation())
    assert torch.equal(nothing.end, solve(strategy, sgd, None).end)


def experiment(**data):
    return Experiment.parse(
        {
            "data": {"name": f"{__name__}:Patches", "clients": 9, **data},
            "model": {"name": f"{__name__}:Net"},
            "algorithm": "scaffold",
            "participation": {"kind": "uniform", "per_round": 4},
            "client": {"lr": 0.1, "epochs": 2, "batch_size": 4},
            "rounds": 6,
            "eval_every": 1,
        }
    )


AUGMENTED = {"crop_padding": 1, "flip": True}


def test_a_run_repeats_itself_and_differs_from_the_plain_one():
    first, second = (run(experiment(**AUGMENTED)) for _ in range(2))
    assert first.metrics == second.metrics
    assert first.metrics["val/loss"] != run(experiment()).metrics["val/loss"]


def test_models_are_judged_on_images_as_they_are():
    built = build(experiment(**AUGMENTED))
    built.trainer.fit(built.module, built.datamodule)
    network, val = built.module.network.eval(), built.datamodule.data.val
    with torch.no_grad():
        loss = cross_entropy(network(val.x), val.y).mean()
    assert built.history.rows[-1]["val/loss"] == pytest.approx(loss.item(), rel=1e-6)
    plain = build(experiment()).datamodule.data
    assert torch.equal(plain.val.x, val.x)
    assert torch.equal(plain.train.x, built.datamodule.data.train.x)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole = run(experiment(**AUGMENTED))
    path = tmp_path / "run.ckpt"
    run(experiment(**AUGMENTED).model_copy(update={"rounds": 3}), checkpoint=path)
    resumed = run(experiment(**AUGMENTED), checkpoint=path, resume=True)
    assert resumed.metrics == whole.metrics
