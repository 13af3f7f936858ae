"""ReLU and max-pooling change places: the same numbers with less work.

The largest of some values after a ReLU is the ReLU of the largest, so that both orders give the
same output and the same gradients. Pooled first, a quarter of the values are left to go through the
ReLU and back: memory traffic, of which a convolutional network on a CPU has much.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from fltune.federation.chain import has_hooks


def pool_first(network: nn.Module) -> None:
    """Swap neighbours ReLU, MaxPool2d in every ``nn.Sequential`` of a network, in place.

    Neither has parameters, so that names in a state dict stay. A subclass may do anything, and a
    hook may look at what comes between: where there is one, nothing moves.
    """
    for parent in network.modules():
        if type(parent) is not nn.Sequential:
            continue
        layers = list(parent)
        for place, (one, two) in enumerate(pairwise(layers)):
            plain = type(one) is nn.ReLU and type(two) is nn.MaxPool2d and not two.return_indices
            if plain and not (has_hooks(one) or has_hooks(two)):
                parent[place], parent[place + 1] = two, one
