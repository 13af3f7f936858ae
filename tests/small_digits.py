"""A run on digits that takes a fraction of a second, changes of it, and one that is cut off."""

import pytest

from fltune.experiment import Experiment
from fltune.runner import run

RAW = {
    "data": {"name": "digits", "clients": 12},
    "model": {"name": "mlp", "hidden": [8]},
    "participation": {"kind": "uniform", "per_round": 4},
    "rounds": 4,
    "device": "cpu",
}


def experiment(**changes):
    """Parse it with other sections or values."""
    return Experiment.parse({**RAW, **changes})


def cut_off_and_resumed(config, round, path, **options):
    """Run a config that is killed as it reports a round; go on, with options, from what is left."""

    def killed(row):
        if row["round"] == round:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(config, on_row=killed, checkpoint=path)
    return run(config, checkpoint=path, resume=True, **options)
