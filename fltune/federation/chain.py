"""Networks that are a chain of dense layers, read from their structure, with gradients by hand.

The strategy ``dense`` runs them for a stack of clients: activations are [C, B, ...], parameters
[C, ...]. Whether a network is such a chain is seen by tracing its forward once, so that a module
written by hand counts as much as an ``nn.Sequential``; anything unknown on the way makes it none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fltune.federation.decisions import decides
from fltune.models.dropout import KeyedDropout
from fltune.models.linear import Linear
from fltune.randomness import kept_rows, mix_keys


class Parameters(Protocol):
    """The clients' parameters during a local step, by their place in x."""

    def value(self, place: int) -> Tensor:
        """Return a parameter of all clients, [C, *shape], where gradients are taken."""

    def move(self, place: int, gradient: Tensor) -> None:
        """Make a step with a gradient [C, *shape]."""

    def move_by_product(self, place: int, delta: Tensor, x: Tensor) -> None:
        """Make a step with the gradient delta^T x, of [C, R, out] and [C, R, in]."""


class Layer(Protocol):
    """One layer of a chain."""

    def forward(self, x: Tensor, parameters: Parameters, key: Tensor) -> tuple[Tensor, Any]:
        """Return the output, and what :meth:`backward` needs of the forward pass.

        Args:
            x: [C, B, ...].
            parameters: of the clients.
            key: int64 [C], the randomness of this step.
        """

    def backward(self, delta: Tensor, kept: Any, parameters: Parameters) -> Tensor | None:
        """Return the gradient for the input, given that for the output; move own parameters.

        None says that no layer before this one has parameters.
        """


@dataclass(frozen=True)
class Affine:
    """``nn.Linear``, on the last dimension; or a vector w, which is a matrix of one row.

    Attributes:
        weight, bias: places in x; None for no bias.
        vector: whether the weight is w [in], so that the output lacks a last dimension; that of
            rows has one of 1.
        first: whether no layer before it has parameters: nobody asks for its input's gradient.
    """

    weight: int
    bias: int | None
    vector: bool
    first: bool

    def forward(self, x: Tensor, parameters: Parameters, key: Tensor) -> tuple[Tensor, Any]:
        """Return x W^T + b, and x as rows [C, R, in]."""
        matrix = parameters.value(self.weight)
        matrix = matrix.unsqueeze(1) if self.vector else matrix
        rows = x if x.dim() == 3 else x.reshape(len(x), -1, x.shape[-1])
        if self.bias is None:
            output = torch.bmm(rows, matrix.mT)
        else:
            output = torch.baddbmm(parameters.value(self.bias).unsqueeze(1), rows, matrix.mT)
        lacks = self.vector and x.dim() > 3
        shape = x.shape[:-1] if lacks else (*x.shape[:-1], output.shape[2])
        return output.view(shape), (rows, x.shape)

    def backward(self, delta: Tensor, kept: Any, parameters: Parameters) -> Tensor | None:
        """Return delta W, taken before W moves; None where nobody asks."""
        rows, shape = kept
        delta = delta.reshape(len(rows), rows.shape[1], -1)
        before = None
        if not self.first:
            matrix = parameters.value(self.weight)
            matrix = matrix.unsqueeze(1) if self.vector else matrix
            before = torch.bmm(delta, matrix).view(shape)
        parameters.move_by_product(self.weight, delta, rows)
        if self.bias is not None:
            parameters.move(self.bias, delta.sum(1))
        return before


@dataclass(frozen=True)
class Pointwise:
    """An activation whose derivative is a function of its own output."""

    function: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]

    def forward(self, x: Tensor, parameters: Parameters, key: Tensor) -> tuple[Tensor, Any]:
        """Return the activations, twice."""
        output = self.function(x)
        return output, output

    def backward(self, delta: Tensor, kept: Any, parameters: Parameters) -> Tensor:
        """Return delta times the derivative."""
        return self.gradient(delta, kept)


@dataclass(frozen=True)
class Dropout:
    """:class:`fltune.models.dropout.KeyedDropout` of all clients at once: the same masks."""

    p: float
    layer: int

    def forward(self, x: Tensor, parameters: Parameters, key: Tensor) -> tuple[Tensor, Any]:
        """Return x with dropped elements, and the mask, already scaled."""
        if self.p == 0:
            return x, None
        keep = kept_rows(mix_keys(key + self.layer), x[0].numel(), self.p).reshape(x.shape)
        mask = keep.to(x.dtype) / (1.0 - self.p)
        return x * mask, mask

    def backward(self, delta: Tensor, kept: Any, parameters: Parameters) -> Tensor:
        """Return delta with the same elements dropped."""
        return delta if kept is None else delta * kept


@dataclass(frozen=True)
class Flatten:
    """Samples of any shape as vectors."""

    def forward(self, x: Tensor, parameters: Parameters, key: Tensor) -> tuple[Tensor, Any]:
        """Return [C, B, features], and the shape of x."""
        return x.reshape(*x.shape[:2], -1), x.shape

    def backward(self, delta: Tensor, kept: Any, parameters: Parameters) -> Tensor:
        """Return delta in the shape of x."""
        return delta.reshape(kept)


RELU = Pointwise(torch.relu, lambda d, y: torch.ops.aten.threshold_backward(d, y, 0))
TANH = Pointwise(torch.tanh, torch.ops.aten.tanh_backward)
SIGMOID = Pointwise(torch.sigmoid, torch.ops.aten.sigmoid_backward)

MODULES = {nn.ReLU: RELU, nn.Tanh: TANH, nn.Sigmoid: SIGMOID}
FUNCTIONS: dict[Any, Pointwise] = {
    **dict.fromkeys((torch.relu, F.relu, "relu"), RELU),
    **dict.fromkeys((torch.tanh, F.tanh, "tanh"), TANH),
    **dict.fromkeys((torch.sigmoid, F.sigmoid, "sigmoid"), SIGMOID),
}
LEAVES = (*MODULES, nn.Linear, nn.Flatten, nn.Identity, nn.Dropout, KeyedDropout, Linear)
"""Modules that are known as a whole; subclasses may do anything, and are none of them."""


def read_chain(network: nn.Module) -> list[Layer] | None:
    """Return the layers of a network in the order of its forward; None if it is no such chain.

    Places of parameters count the trainable ones, as :class:`fltune.federation.flat.FlatNetwork`
    lays them out. A chain trains all its parameters and uses each of them once, and its forward is
    the same every time (:mod:`fltune.federation.decisions`).
    """
    if any(has_hooks(module) for module in network.modules()) or decides(network):
        return None
    own = list(network.parameters())
    place = {id(p): i for i, p in enumerate(own)}
    root = nn.Sequential(network)  # so that a network of one layer is a leaf as well
    root.training = network.training
    # what a forward keeps of its input, as a buffer or an attribute, is no tensor in a trace
    held = [(m, {**vars(m), "_buffers": dict(m._buffers)}) for m in network.modules()]
    try:
        nodes = list(_Tracer().trace(root).nodes)
    except Exception:  # a forward that cannot be traced may raise anything: it is no chain
        return None
    finally:
        for module, kept in held:
            vars(module).clear()
            vars(module).update(kept)
    layers: list[Layer] = []
    for node, before in zip(nodes[1:-1], nodes, strict=False):
        found = _layer(root, node, before, place, layers)
        if found is None:
            return None
        layers += found
    used = [p for layer in layers if isinstance(layer, Affine) for p in (layer.weight, layer.bias)]
    trained = sorted(p for p in used if p is not None)
    every = trained == list(range(len(own))) and all(p.requires_grad for p in own)
    return layers if every and own and nodes[-1].args == (nodes[-2],) else None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LEAVES or super().is_leaf_module(m, module_qualified_name)


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody else's function is called when a module is."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in names)


def _layer(
    root: nn.Module, node: fx.Node, before: fx.Node, place: dict[int, int], layers: Sequence[Layer]
) -> list[Layer] | None:
    """Return the layer that a traced operation is, [] for one that does nothing, None if unknown.

    A chain's operation takes the one before it and nothing else.
    """
    if node.args[:1] != (before,) or any(node.kwargs.values()):
        return None
    if node.op == "call_module" and len(node.args) == 1:
        module = root.get_submodule(str(node.target))
        return _of_module(module, place, first=not any(isinstance(x, Affine) for x in layers))
    if node.target in (torch.flatten, "flatten") and node.args[1:] == (1,):
        return [Flatten()]
    if node.op in ("call_function", "call_method") and len(node.args) == 1:
        known = FUNCTIONS.get(node.target)
        return None if known is None else [known]
    return None


def _of_module(module: nn.Module, place: dict[int, int], first: bool) -> list[Layer] | None:
    if type(module) in MODULES:
        return [MODULES[type(module)]]
    if type(module) is nn.Linear:
        bias = None if module.bias is None else place[id(module.bias)]
        return [Affine(place[id(module.weight)], bias, vector=False, first=first)]
    if type(module) is Linear:
        return [Affine(place[id(module.w)], None, vector=True, first=first)]
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return [Flatten()]
    if type(module) is nn.Identity:
        return []
    if type(module) is nn.Dropout:  # a flat network puts a keyed one in its place
        return [Dropout(module.p, -1)]
    if type(module) is KeyedDropout and not module.channels:
        return [Dropout(module.p, module.layer)]
    return None
