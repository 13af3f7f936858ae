"""Multilayer perceptrons, as the five papers use them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


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
        if any(size < 1 for size in hidden):
            raise ValueError(f"hidden = {list(hidden)}: every size must be >= 1")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout = {dropout}: must be in [0, 1)")
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
