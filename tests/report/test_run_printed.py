import io

from rich.console import Console

import fltune
from fltune.experiment import Experiment
from fltune.report.run import print_run


def test_the_traffic_of_a_small_model_is_no_zero():
    raw = {
        "data": {"name": "digits", "clients": 5},
        "model": {"name": "mlp", "hidden": [4]},
        "client": {"lr": 0.1, "steps": 1, "batch_size": 8},
        "rounds": 1,
    }
    result = fltune.run(Experiment.parse(raw))
    out = io.StringIO()
    print_run("A", result, Console(file=out, width=200))
    numbers = 64 * 4 + 4 + 4 * 10 + 10
    kib = 5 * numbers * 4 / 1024  # five clients send as many float32
    assert f", {kib:.3g} KiB up, {kib:.3g} KiB down, " in out.getvalue()
