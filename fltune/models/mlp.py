"""Multilayer perceptrons, as the five papers use them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from fltune.models.dropout import check_probability


def check_sizes(hidden: Sequence[int]) -> None:
    """Refuse sizes of hidden layers below 1.

    Raises:
        ValueError: there is one.
    """
    if any(size < 1 for size in hidden):
        raise ValueError(f"hidden = {list(hidden)}: every size must be >= 1")


class MLP(nn.Module):
    """Flatten - (Linear - ReLU - Dropout) for each hidden layer - Linear.

    Dropout follows the first hidden layer only, as in Cho et al. (2023): 784-64-30-10.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        hidden: sizes of the hidden layers; an empty list is softmax regression.
        dropout: probability in [0, 1) after the first hidden layer.

    Raises:
        ValueError: a hidden size below 1 or a dropout outside [0, 1).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        hidden: list[int] = [64, 30],  # noqa: B006 - read only, and the config schema shows it
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(hidden)
        check_probability("dropout", dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for depth, size in enumerate(hidden):
            layers += [nn.Linear(width, size), nn.ReLU()]
            if depth == 0 and dropout > 0:
                layers.append(nn.Dropout(dropout))
            width = size
        layers.append(nn.Linear(width, num_classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for samples [B, *input_shape]."""
        return self.layers(x)


class FedTorchMLP(nn.Module):
    """Flatten - (Linear - BatchNorm - ReLU - Dropout) for each hidden layer - Linear without bias.

    The network of FedTorch, the program of Haddadpour et al. (2021). Its BatchNorm keeps no running
    statistics: it normalises by the batch at hand, in evaluation too.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        hidden: sizes of the hidden layers.
        dropout: probability in [0, 1) after every hidden layer.

    Raises:
        ValueError: a hidden size below 1 or a dropout outside [0, 1).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        hidden: list[int] = [200, 200],  # noqa: B006 - read only, and the config schema shows it
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        check_sizes(hidden)
        check_probability("dropout", dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for size in hidden:
            norm = nn.BatchNorm1d(size, track_running_stats=False)
            layers += [nn.Linear(width, size), norm, nn.ReLU(), nn.Dropout(dropout)]
            width = size
        layers.append(nn.Linear(width, num_classes, bias=False))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for samples [B, *input_shape]."""
        return self.layers(x)
