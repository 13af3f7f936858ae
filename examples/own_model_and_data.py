"""Tune FedAvg and FedGM on a model and a data set of your own, without touching the package.

    python examples/own_model_and_data.py

The names in the config are import paths, ``module:Class``. A data set is a frozen dataclass with
``load()``; a model is any ``torch.nn.Module``, given ``input_shape`` and ``num_classes`` if its
constructor has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor, nn

import fltune
from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.parameters import parameter


@dataclass(frozen=True)
class Rings(Dataset):
    """Points of the plane, labelled by the ring they lie on."""

    samples: int = parameter(1200, "points, train and test", ge=100)
    noise: float = parameter(0.1, "standard deviation of the radius", ge=0)

    def load(self) -> RawData:
        """Draw the points; the same ones every time."""
        random = torch.Generator().manual_seed(0)
        label = torch.arange(self.samples) % 3
        radius = label + 1 + self.noise * torch.randn(self.samples, generator=random)
        angle = 6.2832 * torch.rand(self.samples, generator=random)
        x = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        cut = self.samples * 4 // 5
        return RawData(Split(x[:cut], label[:cut]), Split(x[cut:], label[cut:]), num_classes=3)


class Net(nn.Module):
    """Two hidden layers of the same width."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_shape[0], width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes]."""
        return self.layers(x)


CONFIG = {
    "experiment": {
        "data": {
            "name": "own_model_and_data:Rings",
            "clients": 20,
            "partition": {"kind": "dirichlet", "alpha": 0.3},
        },
        "model": {"name": "own_model_and_data:Net", "width": 24},
        "participation": {"kind": "uniform", "per_round": 5},
        "client": {"lr": 0.3, "steps": 10, "batch_size": 16},
        "rounds": 40,
        "eval_every": 5,
    },
    "methods": {
        "FedAvg": {
            "server": {"name": "fedavg"},
            "space": {"server.lr": {"loguniform": [0.3, 3.0]}},
        },
        "FedGM": {
            "server": {"name": "fedgm", "nu": 0.9},
            "space": {
                "server.lr": {"loguniform": [0.3, 3.0]},
                "server.beta": {"choice": [0.7, 0.9, 0.95]},
            },
        },
    },
    "search": {"trials": 6, "metric": "val/accuracy", "confirm_seeds": 3},
}

if __name__ == "__main__":
    summary = fltune.search(CONFIG, console=Console())
    for name, method in summary.ranked():
        print(name, method.best, "test accuracy", round(method.test.mean, 3))
