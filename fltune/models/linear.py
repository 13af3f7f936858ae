"""A linear map without bias: least squares, and the quadratics of convergence theory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """The map ``x @ w`` for samples that are matrices [k, d]; starts at zero.

    With the loss ``squared_error`` a client holding one sample (L, L b) has the objective
    0.5 |L (w - b)|^2 = 0.5 (w - b)^T A (w - b) with A = L^T L: any quadratic.

    Args:
        input_shape: (k, d), or (d,) for ordinary regression rows.
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(input_shape[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, k] for samples [B, k, d], and [B, 1] for rows [B, d]."""
        output = x @ self.w
        return output.unsqueeze(1) if x.dim() == 2 else output
