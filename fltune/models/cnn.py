"""The three small convolutional networks of the FedSUM experiments, one per data set.

All convolutions are 3x3 with stride 1 and padding 1, all max-pools 2x2 with stride 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from fltune.models.dropout import check_probability


def convolution(before: int, after: int) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps height and width."""
    return nn.Conv2d(before, after, kernel_size=3, padding=1)


class CNN(nn.Module):
    """A network for images of one shape; a subclass says which, and its layers.

    Raises:
        ValueError: samples of another shape.
    """

    SHAPE: ClassVar[tuple[int, int, int]]

    def __init__(self, input_shape: Sequence[int], *layers: nn.Module) -> None:
        super().__init__()
        if tuple(input_shape) != self.SHAPE:
            raise ValueError(
                f"found samples of shape {list(input_shape)}; {type(self).__name__} is for images "
                f"of shape {list(self.SHAPE)} [channels, height, width]"
            )
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for images [B, C, H, W]."""
        return self.layers(x)


class CNNMnist(CNN):
    """Conv 10 - pool - Conv 20 - dropout - pool - Linear 50 - dropout - Linear, for 1x28x28.

    51,480 parameters with ten classes.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.
        dropout: probability in [0, 1) after the second convolution and after the hidden layer.

    Raises:
        ValueError: samples of another shape, or a dropout outside [0, 1).
    """

    SHAPE = (1, 28, 28)

    def __init__(self, input_shape: Sequence[int], num_classes: int, dropout: float = 0.2) -> None:
        check_probability("dropout", dropout)
        super().__init__(
            input_shape,
            *(convolution(1, 10), nn.ReLU(), nn.MaxPool2d(2)),
            *(convolution(10, 20), nn.Dropout(dropout), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(20 * 7 * 7, 50), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(50, num_classes),
        )


class _Colour(CNN):
    """Two convolutions of 32 channels, then dense layers of the given sizes."""

    SHAPE = (3, 32, 32)

    def __init__(self, input_shape: Sequence[int], num_classes: int, hidden: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for before in (3, 32):
            layers += [convolution(before, 32), nn.ReLU(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        width = 32 * 8 * 8
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        super().__init__(input_shape, *layers, nn.Linear(width, num_classes))


class CNNSvhn(_Colour):
    """Conv 32 - pool - Conv 32 - pool - Linear 128 - Linear, for 3x32x32.

    273,706 parameters with ten classes.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.

    Raises:
        ValueError: samples of another shape.
    """

    def __init__(self, input_shape: Sequence[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, hidden=(128,))


class CNNCifar(_Colour):
    """Conv 32 - pool - Conv 32 - pool - Linear 256 - Linear 64 - Linear, for 3x32x32.

    551,786 parameters with ten classes.

    Args:
        input_shape: shape of one sample; given by the data set.
        num_classes: outputs; given by the data set.

    Raises:
        ValueError: samples of another shape.
    """

    def __init__(self, input_shape: Sequence[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, hidden=(256, 64))
