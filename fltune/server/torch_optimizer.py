"""Any ``torch.optim`` class as a server optimizer: the pseudo-gradient is its gradient."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from fltune.server.base import ServerOptimizer, State


class TorchServer(ServerOptimizer):
    """Hand the pseudo-gradient D to a torch optimizer that owns the model as one parameter [d].

    Args:
        optimizer: a class such as ``torch.optim.Adam``.
        options: its keyword arguments (``lr``, ``betas`` ...).

    Raises:
        ValueError, TypeError: the optimizer refuses its options, steps by more than a gradient, or
            not by that of a vector.
    """

    def __init__(self, optimizer: type[torch.optim.Optimizer], **options: Any) -> None:
        self.optimizer = optimizer
        self.options = options
        self._saved: dict[str, Any] | None = None
        self._live: torch.optim.Optimizer | None = None
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise ValueError(
                f"{optimizer.__name__} needs a closure that evaluates the loss anew, and a server "
                "has the pseudo-gradient alone; take another optimizer"
            )
        _try_out(optimizer, options)

    def learning_rate(self, round: int) -> float:
        """Return the optimizer's lr, or 1 where it has none."""
        return float(self.options.get("lr", 1.0))

    def step(self, x: Tensor, d: Tensor, state: State, round: int) -> tuple[Tensor, State]:
        """Let the optimizer move x."""
        if self._live is None:
            self._weight = torch.nn.Parameter(x.clone())
            self._live = self.optimizer([self._weight], **self.options)
            if self._saved is not None:
                self._live.load_state_dict(self._saved)
        with torch.no_grad():
            self._weight.copy_(x)
        self._weight.grad = d.clone()
        self._live.step()
        return self._weight.detach().clone(), {}

    def state_dict(self) -> dict[str, Any]:
        """Return the torch optimizer's own state."""
        return {"torch": self._live.state_dict() if self._live else self._saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state for the first step after a resume."""
        self._saved = state_dict["torch"]
        self._live = None


def _try_out(optimizer: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    """Build and step once: options, and kinds of gradient, are refused before anything starts."""
    weight = torch.nn.Parameter(torch.zeros(2))
    made = optimizer([weight], **options)
    weight.grad = torch.ones(2)
    try:
        with torch.no_grad():
            made.step()
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise ValueError(
            f"{optimizer.__name__} cannot step by the pseudo-gradient, a dense vector [d]: {error}"
        ) from error
