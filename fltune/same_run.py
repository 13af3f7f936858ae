"""A checkpoint goes on with the run that wrote it, and with no other."""

from __future__ import annotations

from typing import Any

import lightning as L

from fltune import dotted
from fltune.errors import ConfigError
from fltune.experiment import Experiment

KEY = "experiment"
"""Of the config in a checkpoint."""
FREE = ("device", "strategy", "rounds")
"""What may differ: where and how it is computed, and how long it lasts."""


class SameRun(L.Callback):
    """Saves a run's config in its checkpoints, and compares it when one is read.

    A run may be made longer, or shorter, if the rounds that it has made would have had the same
    learning rates.

    Args:
        experiment: the run.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the config."""
        checkpoint[KEY] = self.experiment.as_dict()

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Compare the configs.

        Raises:
            ConfigError: the checkpoint is another run's.
        """
        saved = checkpoint.get(KEY)
        if saved is None:  # an earlier version wrote it
            return
        found = different(saved, self.experiment)
        made = int(checkpoint["epoch"]) + 1
        earlier = Experiment.parse(saved) if not found else self.experiment
        if earlier.rounds != self.experiment.rounds and (
            _rates(earlier, made) != _rates(self.experiment, made)
        ):
            found.append(
                f"rounds: found {self.experiment.rounds}; with {earlier.rounds}, as in the "
                f"checkpoint, the {made} rounds that it has made had other learning rates"
            )
        if found:
            raise ConfigError([f"resume: {text}" for text in found])


def different(saved: dict[str, Any], experiment: Experiment) -> list[str]:
    """Say what makes a config another run than the saved one."""
    old, new = dict(dotted.flatten(saved)), experiment.as_params()
    keys = [k for k in {**old, **new} if k not in FREE and old.get(k) != new.get(k)]
    return [
        f"{key}: found {new.get(key)!r}; the checkpoint is of a run with {old.get(key)!r}"
        for key in keys
    ]


def _rates(experiment: Experiment, rounds: int) -> list[tuple[float, float]]:
    """Return the client's and the server's learning rate in each of the first rounds."""
    client, server = experiment.client.build(), experiment.server.build()
    server.prepare(experiment.rounds)
    last = experiment.rounds
    return [(client.rate(t, last), server.learning_rate(t)) for t in range(min(rounds, last))]
