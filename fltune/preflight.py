"""Does the model fit the data, and the loss both? A few samples tell, before anything starts."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedModule
from fltune.federation.exact import check_exact_prox
from fltune.federation.strategies import AUTO, FASTEST, may_stack, try_stacking
from fltune.models.batch_norm import with_statistics

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch raises where shapes or types do not go together."""


@torch.no_grad()
def try_out(experiment: Experiment, module: FederatedModule, data: FederatedData) -> None:
    """Send a few samples, of different classes if there are any, through model and loss.

    Raises:
        ConfigError: the model cannot take them, does not give one number per class, or keeps what
            it saw of them; the loss is no number per sample that depends on that sample alone; or
            the method wants of them what they have not.
    """
    x, y = data.train.x, data.train.y
    few = torch.stack([y.argmin(), y.argmax()]) if y.dim() == 1 else torch.arange(len(y))[:2]
    if not x.is_floating_point():  # token ids: the largest may be more than the model knows
        few = torch.cat([few, x.flatten(1).amax(1).argmax().unsqueeze(0)])
    samples = Split(x[few], y[few]).to(dtype=getattr(torch, experiment.dtype))
    with _left_as_it_was(module.network) as held:
        output = _try_model(experiment, module, samples, data.num_classes)
        _try_training(experiment, module, samples, held)
        _try_loss(experiment, module, output, samples.y)
        _try_strategy(experiment, module, samples)
    if module.algorithm.solves_exactly:
        try:
            check_exact_prox(module.flat, module.losses)
        except ValueError as error:
            raise ConfigError(f"algorithm: {error}") from error


Buffers = dict[tuple[nn.Module, str], tuple[Tensor, Tensor] | None]
"""Each buffer by its module and name, with a copy of what it held; None where there was none."""


@contextlib.contextmanager
def _left_as_it_was(network: nn.Module) -> Iterator[Buffers]:
    """Put back a network's mode and buffers, and torch's seed, after some forwards.

    A forward may move a buffer in place, and may put another tensor there.
    """
    held: Buffers = {
        (owner, key): None if buffer is None else (buffer, buffer.clone())
        for owner in network.modules()
        for key, buffer in owner._buffers.items()
    }
    training = network.training
    try:
        with torch.random.fork_rng(devices=[]):
            yield held
    finally:
        network.train(training)
        for (owner, key), kept in held.items():
            owner._buffers[key] = None if kept is None else kept[0].copy_(kept[1])


def _try_model(
    experiment: Experiment, module: FederatedModule, samples: Split, classes: int | None
) -> Tensor:
    """Return the model's output for samples, in evaluation mode."""
    name, few = experiment.model.component_name, len(samples)
    module.network.eval()
    try:
        output = module.network(samples.x)
    except REFUSALS as error:
        shape = list(samples.x.shape[1:])
        text = f"model: {name} cannot take samples of shape {shape}, {samples.x.dtype}: {error}"
        raise ConfigError(text) from error
    if not isinstance(output, Tensor):
        raise ConfigError(f"model: {name} gives a {type(output).__name__}; must be a tensor")
    if classes is not None and output.shape[1:] != (classes,):
        raise ConfigError(
            f"model: {name} gives an output of shape {list(output.shape)} for {few} samples of "
            f"{classes} classes; must be [{few}, {classes}]"
        )
    return output


def _try_training(
    experiment: Experiment, module: FederatedModule, samples: Split, held: Buffers
) -> None:
    """Forward in training mode; refuse what one client would leave in the model for the next.

    Running statistics of BatchNorm layers are left out: ``batch_norm`` decides on them.

    Args:
        experiment, module, samples: as of :func:`try_out`.
        held: the buffers before any forward.
    """
    network, name = module.network, experiment.model.component_name
    network.train()
    try:
        network(samples.x)
    except REFUSALS as error:
        text = f"model: {name} cannot take {len(samples)} samples in training mode: {error}"
        raise ConfigError(text) from error
    managed = set(with_statistics(network))
    for path, owner in network.named_modules():
        for key, now in owner._buffers.items():
            if owner not in managed and not _unmoved(held.get((owner, key)), now):
                named = f"{path}.{key}".lstrip(".")
                raise ConfigError(
                    f"model: buffer {named!r} changes in forward; "
                    "it would leak from client to client: make it a parameter, keep it constant, "
                    "or use a BatchNorm layer"
                )


def _try_strategy(experiment: Experiment, module: FederatedModule, samples: Split) -> None:
    """See whether clients can be solved side by side; a choice that is open becomes the loop."""
    solver = module.solver
    if not may_stack(solver.strategy, module.flat, samples.x):
        return
    module.network.train()
    try:
        try_stacking(module.flat, module.losses, samples)
    except REFUSALS as error:
        if solver.strategy in (AUTO, FASTEST):
            solver.settle("loop")
            return
        why = textwrap.shorten(str(error), 100, placeholder=" ...")
        raise ConfigError(
            f"strategy: found {solver.strategy!r}, and torch.vmap cannot batch the clients' steps "
            f"of model {experiment.model.component_name} with loss {experiment.loss}; "
            f"use strategy: loop ({why})"
        ) from error


def _unmoved(before: tuple[Tensor, Tensor] | None, now: Tensor | None) -> bool:
    if before is None or now is None:
        return before is None and now is None
    held = before[1]
    if held.shape != now.shape or held.dtype != now.dtype:
        return False
    return bool(((held == now) | ((held != held) & (now != now))).all())  # a NaN stays one


def _try_loss(
    experiment: Experiment, module: FederatedModule, output: Tensor, target: Tensor
) -> None:
    """Take the loss of all samples at once and of each; broadcasting makes them differ."""
    refusal = (
        f"loss: {experiment.loss} does not fit model {experiment.model.component_name}, whose "
        f"output has shape {list(output.shape)}, and targets of shape {list(target.shape)}, "
        f"{target.dtype}"
    )
    try:
        together = module.losses(output, target)
        each = [module.losses(output[i : i + 1], target[i : i + 1]) for i in range(len(target))]
    except REFUSALS as error:
        raise ConfigError(f"{refusal}: {error}") from error
    if together.shape != target.shape[:1] or not _same(together, torch.stack(each)):
        raise ConfigError(f"{refusal}; a loss is one number per sample, from that sample alone")


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b.reshape(a.shape), rtol=1e-4, equal_nan=True)
