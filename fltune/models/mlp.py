"""Multilayer perceptrons, as the five papers use them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from fltune.models.dropout import check_probability


class Perceptron(nn.Module, ABC):
    """Flatten - (Linear - a tail) for each hidden layer - Linear; a subclass says what the tail is.

    Args:
        input_shape: shape of one sample.
        num_classes: outputs.
        hidden: sizes of the hidden layers.
        dropout: probability in [0, 1).
        bias: whether the last layer has one.

    Raises:
        ValueError: a hidden size below 1 or a dropout outside [0, 1).
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        hidden: Sequence[int],
        dropout: float,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if any(size < 1 for size in hidden):
            raise ValueError(f"hidden = {list(hidden)}: every size must be >= 1")
        check_probability("dropout", dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for depth, size in enumerate(hidden):
            layers += [nn.Linear(width, size), *self.tail(depth, size, dropout)]
            width = size
        layers.append(nn.Linear(width, num_classes, bias=bias))
        self.layers = nn.Sequential(*layers)

    @abstractmethod
    def tail(self, depth: int, size: int, dropout: float) -> list[nn.Module]:
        """Return what follows the linear map of hidden layer ``depth``, 0-based."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for samples [B, *input_shape]."""
        return self.layers(x)


class MLP(Perceptron):
    """Flatten - (Linear - ReLU) for each hidden layer - Linear; dropout after the first ReLU.

    As in Cho et al. (2023): 784-64-30-10.

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
        super().__init__(input_shape, num_classes, hidden, dropout)

    def tail(self, depth: int, size: int, dropout: float) -> list[nn.Module]:
        """Return a ReLU, and dropout after the first."""
        dropped = [nn.Dropout(dropout)] if depth == 0 and dropout > 0 else []
        return [nn.ReLU(), *dropped]


class FedTorchMLP(Perceptron):
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
        super().__init__(input_shape, num_classes, hidden, dropout, bias=False)

    def tail(self, depth: int, size: int, dropout: float) -> list[nn.Module]:
        """Return BatchNorm on batch statistics, a ReLU and dropout."""
        norm = nn.BatchNorm1d(size, track_running_stats=False)
        return [norm, nn.ReLU(), nn.Dropout(dropout)]
