"""Does the model fit the data, and the loss both? A few samples tell, before anything starts."""

from __future__ import annotations

import torch
from torch import Tensor

from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedModule
from fltune.federation.exact import check_exact_prox

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)
"""What torch raises where shapes or types do not go together."""


@torch.no_grad()
def try_out(experiment: Experiment, module: FederatedModule, data: FederatedData) -> None:
    """Send a few samples, of different classes if there are any, through model and loss.

    Raises:
        ConfigError: the model cannot take them, does not give one number per class, or the loss is
            no number per sample that depends on that sample alone; or the method wants of them what
            they have not.
    """
    x, y = data.train.x, data.train.y
    few = torch.stack([y.argmin(), y.argmax()]) if y.dim() == 1 else torch.arange(len(y))[:2]
    if not x.is_floating_point():  # token ids: the largest may be more than the model knows
        few = torch.cat([few, x.flatten(1).amax(1).argmax().unsqueeze(0)])
    samples = Split(x[few], y[few]).to(dtype=getattr(torch, experiment.dtype))
    name = experiment.model.component_name
    training = module.network.training
    module.network.eval()
    try:
        output = module.network(samples.x)
    except REFUSALS as error:
        shape = list(samples.x.shape[1:])
        text = f"model: {name} cannot take samples of shape {shape}, {samples.x.dtype}: {error}"
        raise ConfigError(text) from error
    finally:
        module.network.train(training)
    if not isinstance(output, Tensor):
        raise ConfigError(f"model: {name} gives a {type(output).__name__}; must be a tensor")
    if data.num_classes is not None and output.shape[1:] != (data.num_classes,):
        raise ConfigError(
            f"model: {name} gives an output of shape {list(output.shape)} for {len(few)} samples "
            f"of {data.num_classes} classes; must be [{len(few)}, {data.num_classes}]"
        )
    _try_loss(experiment, module, output, samples.y)
    if module.algorithm.solves_exactly:
        try:
            check_exact_prox(module.flat, module.losses)
        except ValueError as error:
            raise ConfigError(f"algorithm: {error}") from error


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
