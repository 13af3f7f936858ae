"""How many trials run at once."""

import pytest

from fltune.errors import ConfigError
from fltune.search.concurrency import concurrency
from fltune.search.settings import Settings

HERE = {"CPU": 4.0, "GPU": 1.0}


def settings(cpus=1.0, gpus=0.0, concurrent=None):
    raw = {"resources": {"cpus": cpus, "gpus": gpus}, "search": {"concurrent": concurrent}}
    return Settings.model_validate(raw)


@pytest.mark.parametrize(
    ("cpus", "gpus", "concurrent", "fits"),
    [
        (1, 0, None, 4),
        (1, 0, 3, 3),
        (1, 0, 9, 4),  # no more than there is room for
        (2, 0, None, 2),
        (3, 0, None, 1),
        (0.5, 0, None, 8),
        (1, 0.5, None, 2),
        (4, 1, None, 1),
    ],
)
def test_as_many_trials_run_as_fit(cpus, gpus, concurrent, fits):
    assert concurrency(settings(cpus, gpus, concurrent), HERE) == fits


@pytest.mark.parametrize(
    ("cpus", "gpus", "available", "problems"),
    [
        (8, 0, HERE, ["resources.cpus: found 8 per trial; there are 4"]),
        (1, 2, HERE, ["resources.gpus: found 2 per trial; there are 1"]),
        (1, 0.25, {"CPU": 2.0}, ["resources.gpus: found 0.25 per trial; there are 0"]),
        (
            8,
            2,
            HERE,
            [
                "resources.cpus: found 8 per trial; there are 4",
                "resources.gpus: found 2 per trial; there are 1",
            ],
        ),
    ],
)
def test_what_a_machine_lacks_is_refused(cpus, gpus, available, problems):
    with pytest.raises(ConfigError) as caught:
        concurrency(settings(cpus, gpus), available)
    assert caught.value.problems == problems
