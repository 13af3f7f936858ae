"""A network as a function of one flat parameter vector.

Algorithms and server optimizers work on vectors [d]; this is the only place that knows which slice
belongs to which layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fltune.models.dropout import KeyedDropout, key_dropout


class FlatNetwork:
    """The trainable parameters of a network as one vector x [d].

    Args:
        network: any module. Its ``nn.Dropout`` layers are replaced by keyed ones.

    Attributes:
        names, shapes, sizes: of each trainable parameter, in the order they lie in x.
        dimension: d.

    Raises:
        ValueError: nothing to train, or running statistics (BatchNorm) that no server could average
            without a policy.
    """

    def __init__(self, network: nn.Module) -> None:
        for name, module in network.named_modules():
            if getattr(module, "track_running_stats", False):
                raise ValueError(
                    f"layer {name!r} ({type(module).__name__}) keeps running statistics, which are "
                    "not parameters and would be averaged silently; use GroupNorm, or set "
                    "track_running_stats=False"
                )
        self.network = network
        self.key_names = key_dropout(network)
        self._keyed = [m for m in network.modules() if isinstance(m, KeyedDropout)]
        trainable = [(n, p) for n, p in network.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError(f"{type(network).__name__} has no trainable parameter")
        self.names = [n for n, _ in trainable]
        self.shapes = [p.shape for _, p in trainable]
        self.sizes = [p.numel() for _, p in trainable]
        self.dimension = sum(self.sizes)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The network's own parameters, in the order of x."""
        by_name = dict(self.network.named_parameters())
        return [by_name[name] for name in self.names]

    def read(self) -> Tensor:
        """Return a copy of the parameters as x [d]."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    @torch.no_grad()
    def write(self, x: Tensor) -> None:
        """Copy x [d] into the network's parameters."""
        for parameter, part in zip(self.parameters, self.split(x), strict=True):
            parameter.copy_(part)

    def split(self, x: Tensor) -> list[Tensor]:
        """Return views of x [d], one per parameter, shaped like it."""
        return [
            part.view(shape) for part, shape in zip(x.split(self.sizes), self.shapes, strict=True)
        ]

    @contextmanager
    def at(self, x: Tensor) -> Iterator[list[nn.Parameter]]:
        """Let the network's own parameters be views of x [d] for a while, and give them.

        They follow x when it moves in place. Half the overhead of :meth:`call` for small networks.
        """
        parameters = self.parameters
        own = [p.data for p in parameters]
        try:
            for parameter, part in zip(parameters, self.split(x), strict=True):
                parameter.data = part
            yield parameters
        finally:
            for parameter, values in zip(parameters, own, strict=True):
                parameter.data = values

    def set_key(self, key: Tensor) -> None:
        """Set the randomness of the next step, an int64 scalar, where :meth:`call` is not used."""
        for layer in self._keyed:
            layer.key = key

    def call(self, parts: Sequence[Tensor], inputs: Tensor, key: Tensor) -> Any:
        """Return the network's output for the parameters ``parts``.

        Args:
            parts: as :meth:`split` gives them.
            inputs: one batch [B, ...].
            key: int64 scalar, the randomness of this step (:mod:`fltune.randomness`).
        """
        state = dict(zip(self.names, parts, strict=True))
        state.update(dict.fromkeys(self.key_names, key))
        return functional_call(self.network, state, (inputs,))
