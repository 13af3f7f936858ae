"""BatchNorm in a federation: what becomes of running statistics, and batches of one sample.

A layer that normalises by its batch keeps a running mean and variance for evaluation. They are no
parameters: no gradient moves them and no server optimizer may. One of the :data:`POLICIES` says
what to do with them. GroupNorm, with nothing to keep, is the papers' own choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

POLICIES = ("refuse", "batch_statistics", "average")
"""What to do with running statistics.

``refuse`` them; keep none and normalise by ``batch_statistics`` in evaluation too; or ``average``:
every client starts from the global ones, and the mean of the cohort's, weighted like its models,
becomes the next global ones. It is a mean of variances; the spread of the clients' means is lost.
"""


class BatchNorm(_BatchNorm):
    """The BatchNorm of samples [B, C, ...], any number of dimensions, that bears one value.

    In training, PyTorch's own refuses a batch with one value per channel, whose variance says
    nothing: a client with one sample, or one sample left over, would end the run. Here such a batch
    is normalised by the running statistics, which it does not move. Where there are none the
    normalised value is 0, the limit of (x - mean) / sqrt(var + eps), and the output is the bias.
    """

    @classmethod
    def of(cls, layer: _BatchNorm) -> BatchNorm:
        """Return a layer with the parameters and statistics of another, which are shared."""
        new = cls(layer.num_features, layer.eps, layer.momentum, affine=False)
        new.affine, new.weight, new.bias = layer.affine, layer.weight, layer.bias
        new.track_running_stats, new.training = layer.track_running_stats, layer.training
        new.running_mean, new.running_var = layer.running_mean, layer.running_var
        new.num_batches_tracked = layer.num_batches_tracked
        return new

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"found samples of shape {tuple(input.shape)}; must be [B, C, ...]")

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised batch, in the shape of x [B, C, ...]."""
        self._check_input_dim(x)
        by_batch = self.training or self.running_mean is None
        if not by_batch or x.numel() > x.shape[1]:
            return super().forward(x)
        if self.running_mean is not None:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)
        normalised = x - x  # and not zeros: the layers before it still have a gradient, of 0
        if self.weight is None:
            return normalised
        shape = (1, -1, *[1] * (x.dim() - 2))
        return normalised * self.weight.view(shape) + self.bias.view(shape)


def sees_batches(network: nn.Module) -> str | None:
    """Describe the first layer whose output, or statistics, depend on a batch as a whole."""
    kept = with_statistics(network)
    for name, module in network.named_modules():
        if isinstance(module, _BatchNorm) or module in kept:
            return f"{name!r} ({type(module).__name__})"
    return None


def with_statistics(network: nn.Module) -> list[_NormBase]:
    """Return the layers of a network that keep running statistics."""
    layers = [m for m in network.modules() if isinstance(m, _NormBase)]
    return [m for m in layers if m.running_mean is not None]


def normalises_by_batch(network: nn.Module) -> bool:
    """Whether a sample's output depends on those beside it in evaluation too."""
    return any(isinstance(m, _BatchNorm) and m.running_mean is None for m in network.modules())


def apply_policy(network: nn.Module, policy: str) -> None:
    """Make a network's BatchNorm layers bear one value, and obey a policy, in place.

    Raises:
        ValueError: an unknown policy, or running statistics that it does not cover.
    """
    if policy not in POLICIES:
        raise ValueError(f"batch_norm = {policy!r}; must be one of {', '.join(POLICIES)}")
    for name, module in network.named_modules():
        if not getattr(module, "track_running_stats", False):
            continue
        if policy == "refuse" or not isinstance(module, _NormBase):
            raise ValueError(_refusal(name, module, policy))
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, BatchNorm):
                setattr(parent, name, BatchNorm.of(child))
    kept = with_statistics(network)
    reset_counters(kept)
    for layer in kept if policy == "batch_statistics" else []:
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None


def reset_counters(layers: Sequence[_NormBase]) -> None:
    """Set the layers' counters of batches to 0.

    They are never averaged. Only ``momentum=None`` reads them: its mean over all batches is then
    one over a client's batches of a round, wherever the client stands in its cohort.
    """
    for layer in layers:
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.zero_()


def _refusal(name: str, module: nn.Module, policy: str) -> str:
    kind = type(module).__name__
    if policy != "refuse":
        return (
            f"layer {name!r} ({kind}) keeps running statistics of its own kind, which batch_norm = "
            f"{policy!r} does not cover; set its track_running_stats to False, or use GroupNorm"
        )
    return (
        f"layer {name!r} ({kind}) keeps running statistics, which are not parameters and would be "
        "averaged silently; set batch_norm to batch_statistics (keep none) or average (over a "
        "round's clients, beside the parameters), or use GroupNorm"
    )
