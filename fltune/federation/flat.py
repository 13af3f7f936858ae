"""A network as a function of one flat parameter vector.

Algorithms and server optimizers work on vectors [d]; this is the only place that knows which slice
belongs to which layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from fltune.federation.chain import Layer, read_chain
from fltune.federation.glance import forward_one
from fltune.federation.layout import Arrange, choose_layout
from fltune.federation.pool_first import pool_first
from fltune.federation.precision import FULL, output_of
from fltune.models.batch_norm import apply_policy, reset_counters, with_statistics
from fltune.models.dropout import KeyedDropout, key_dropout


class FlatNetwork:
    """The trainable parameters of a network as one vector x [d].

    Args:
        network: any module. Its dropout layers are replaced by keyed ones, its BatchNorm layers by
            ones that bear a batch of one sample; a ReLU and a max-pooling after it change places.
        batch_norm: what becomes of running statistics; see :mod:`fltune.models.batch_norm`.
        precision: of its arithmetic; see :mod:`fltune.federation.precision`.

    Attributes:
        names, shapes, sizes: of each trainable parameter, in the order they lie in x.
        dimension: d.
        compiled: batched gradients by loss (:mod:`fltune.federation.compiled`), as they are made.

    Raises:
        ValueError: nothing to train, a lazy layer, or running statistics that the policy does not
            allow.
    """

    def __init__(
        self, network: nn.Module, batch_norm: str = "refuse", precision: str = FULL
    ) -> None:
        _refuse_lazy(network)
        apply_policy(network, batch_norm)
        pool_first(network)
        self.network = network
        self.precision = precision
        self._normed = with_statistics(network)
        self.key_names = key_dropout(network)
        self._keyed = [m for m in network.modules() if isinstance(m, KeyedDropout)]
        trainable = [(n, p) for n, p in network.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError(f"{type(network).__name__} has no trainable parameter")
        self.names = [n for n, _ in trainable]
        self.shapes = [p.shape for _, p in trainable]
        self.sizes = [p.numel() for _, p in trainable]
        self.dimension = sum(self.sizes)
        self._flops: int | None = None
        self._layout: Arrange | None = None
        self._vector = torch.empty(0)
        self._places: list[int] = []
        self._lent = False
        self.compiled: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {}

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The network's own parameters, in the order of x."""
        by_name = dict(self.network.named_parameters())
        return [by_name[name] for name in self.names]

    @cached_property
    def chain(self) -> list[Layer] | None:
        """Its layers, where it is a chain of dense ones (:mod:`fltune.federation.chain`)."""
        return read_chain(self.network)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what another process reads anew: the chain's functions cannot be pickled.

        Each parameter gets memory of its own: it would be pickled with all of x's otherwise.
        """
        for parameter in self.parameters:
            parameter.data = parameter.data.clone()
        lasting = {k: v for k, v in self.__dict__.items() if k != "chain"}
        return {**lasting, "_vector": torch.empty(0), "_places": [], "compiled": {}}

    def __call__(self, inputs: Tensor) -> Any:
        """Return the network's output for one batch [B, ...] in any layout, with own parameters."""
        output = output_of(self.network, inputs, self.precision)
        return output.to_dense() if inputs.is_mkldnn else output

    def layout(self, x: Tensor) -> Arrange:
        """Return what lays samples x [n, ...] out as it trains quickest; chosen once."""
        if self._layout is None:
            self._layout = choose_layout(self.network, x, self.precision)
        return self._layout

    def flops(self, x: Tensor) -> int:
        """Return the floating-point operations of one sample's forward; counted once.

        Args:
            x: samples [n, ...].
        """
        if self._flops is None:
            with FlopCounterMode(display=False) as counter:
                forward_one(self.network, x)
            self._flops = counter.get_total_flops()
        return self._flops

    def read(self) -> Tensor:
        """Return a copy of the parameters as x [d]."""
        return self._vector.clone() if self._is_one else self._collected()

    def largest(self) -> Tensor:
        """Return max_i |x_i|, 0-d; NaN where one is."""
        x = self._vector if self._is_one else self._collected()
        return x.abs().max()

    @torch.no_grad()
    def _collected(self) -> Tensor:
        return torch.cat([p.reshape(-1) for p in self.parameters])

    def write(self, x: Tensor) -> None:
        """Copy x [d] into the network's parameters."""
        if not self._is_one and not self._lent:
            self._make_one()
        if self._is_one:
            self._vector.copy_(x.detach())
        else:
            self._distribute(x)

    @torch.no_grad()
    def _distribute(self, x: Tensor) -> None:
        for parameter, part in zip(self.parameters, self.split(x), strict=True):
            parameter.copy_(part)

    @property
    def _is_one(self) -> bool:
        """Whether the parameters are views of one vector: a read is then one copy, not many.

        Whoever gives them other memory, as a move to another device does, ends that.
        """
        return bool(self._places) and [p.data_ptr() for p in self.parameters] == self._places

    def _make_one(self) -> None:
        """Let the parameters be views of one vector, if they are of one kind and lie plainly."""
        parameters = self.parameters
        first = parameters[0]
        alike = all(p.dtype == first.dtype and p.device == first.device for p in parameters)
        if alike and all(p.is_contiguous() for p in parameters):
            self._vector = self._collected()
            for parameter, part in zip(parameters, self.split(self._vector), strict=True):
                parameter.data = part
            self._places = [p.data_ptr() for p in parameters]

    def split(self, x: Tensor) -> list[Tensor]:
        """Return views of x [d], one per parameter, shaped like it."""
        return [
            part.view(shape) for part, shape in zip(x.split(self.sizes), self.shapes, strict=True)
        ]

    @property
    def _statistics(self) -> list[Tensor]:
        pairs = [(layer.running_mean, layer.running_var) for layer in self._normed]
        return [t for pair in pairs for t in pair if t is not None]

    def read_statistics(self) -> Tensor:
        """Return a copy of all running means and variances as one vector [m]; m is 0 for most."""
        return torch.cat(self._statistics) if self._normed else torch.empty(0)

    @torch.no_grad()
    def write_statistics(self, values: Tensor) -> None:
        """Copy a vector [m] into the running means and variances; counters of batches become 0."""
        parts = self._statistics
        for part, new in zip(parts, values.split([len(p) for p in parts]), strict=True):
            part.copy_(new)
        reset_counters(self._normed)

    @contextmanager
    def at(self, x: Tensor) -> Iterator[list[nn.Parameter]]:
        """Let the network's own parameters be views of x [d] for a while, and give them.

        They follow x when it moves in place. Half the overhead of :meth:`call` for small networks.
        Running statistics start from the network's own, and those too are put back afterwards.
        """
        parameters = self.parameters
        own = [p.data for p in parameters]
        statistics = self.read_statistics()
        self._lent = True
        try:
            for parameter, part in zip(parameters, self.split(x), strict=True):
                parameter.data = part
            yield parameters
        finally:
            for parameter, values in zip(parameters, own, strict=True):
                parameter.data = values
            self._lent = False
            self.write_statistics(statistics)

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
        return output_of(
            lambda x: functional_call(self.network, state, (x,)), inputs, self.precision
        )


def _refuse_lazy(network: nn.Module) -> None:
    """Refuse layers that get their size, and draw their parameters, from the first samples."""
    for name, layer in network.named_modules():
        if any(is_lazy(t) for t in (*layer.parameters(False), *layer.buffers(False))):
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) has no size before its first samples; "
                "give it one: the model's constructor may take input_shape"
            )
