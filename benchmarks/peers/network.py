"""The networks of the workloads in PyTorch, for the libraries that train with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from peers.task import Task


class Network(nn.Sequential):
    """The network that a task's parameters describe; it counts the training it sees.

    Attributes:
        steps, samples: forward passes and their samples so far, over all copies of the network:
            libraries copy it as they like.
    """

    steps: ClassVar[int] = 0
    samples: ClassVar[int] = 0

    def __init__(self, parameters: Sequence[np.ndarray]) -> None:
        layers: list[nn.Module] = []
        for weight in parameters[::2]:
            out, width = weight.shape[:2]
            if weight.ndim == 4:
                kernel = weight.shape[2]
                layers += [nn.Conv2d(width, out, kernel, padding=kernel // 2), nn.ReLU()]
                layers += [nn.MaxPool2d(2)]
            else:
                flat = any(isinstance(layer, nn.Linear) for layer in layers)
                layers += [] if flat else [nn.Flatten()]
                layers += [nn.Linear(width, out), nn.ReLU()]
        super().__init__(*layers[:-1])
        with torch.no_grad():
            for own, initial in zip(self.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(initial))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, classes] for samples [B, *shape]."""
        Network.steps += 1
        Network.samples += len(x)
        return super().forward(x)

    @classmethod
    def work(cls) -> tuple[int, int]:
        """Return steps and samples so far."""
        return Network.steps, Network.samples


def values(network: nn.Module) -> list[np.ndarray]:
    """Return a network's parameters as arrays."""
    return [p.detach().numpy() for p in network.parameters()]


def tensors(task: Task) -> list[tuple[Tensor, Tensor]]:
    """Return samples and labels of each client.

    Images have their channels last in memory: PyTorch convolves and pools them faster on a CPU.
    """
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return [(x[rows], y[rows]) for rows in map(task.rows, range(task.clients))]
