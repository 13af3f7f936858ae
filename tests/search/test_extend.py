"""What an extension may change: never what the trials there are were."""

import pytest
from fake_workers import Disk, Night, config_of, well

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.search import _refuse_other_trials

LR = {"grid": [0.25, 0.5]}
WIDER = "server.lr={grid: [0.25, 0.5, 1.0]}"


def extended(tmp_path, space, *settings):
    """A finished search of one method, and the same extended."""
    disk = Disk(tmp_path)
    config = config_of({"A": {"space": {"server.lr": LR, **space}}})
    Night(config, disk, end=well).work()
    disk.freeze(config.as_yaml())
    before = SearchConfig.read(disk.frozen)
    chosen = [f"methods.A.space.{s}" for s in settings]
    return before, SearchConfig.read(disk.frozen, chosen), disk.records()


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (10, ["client.steps=20"]),
        (10, ["client.steps={grid: [10, 20]}"]),
        ({"tied": "5 / server.lr"}, ["client.steps={tied: 10 / server.lr}"]),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [5, 10, 20], with: server.lr}", WIDER],
        ),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [20, 30], with: server.lr}", "server.lr={grid: [0.5, 1.0]}"],
        ),
    ],
)
def test_it_cannot_change_what_a_trial_was(tmp_path, entry, settings):
    before, after, records = extended(tmp_path, {"client.steps": entry}, *settings)
    with pytest.raises(ConfigError) as error:
        _refuse_other_trials(before, after, records)
    (problem,) = error.value.problems
    assert problem.startswith("methods.A.space.client.steps: an extension cannot change what a")


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (10, [WIDER]),
        ({"tied": "5 / server.lr"}, [WIDER]),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [10, 20, 40], with: server.lr}", WIDER],
        ),
        ({"grid": [10, 20]}, ["client.steps={grid: [5, 10]}"]),
        ({"grid": [10, 20]}, ["server.beta={grid: [0.5, 0.9]}"]),
        (10, ["server.nu=0.9"]),  # its own value
    ],
)
def test_it_may_widen_narrow_and_add(tmp_path, entry, settings):
    before, after, records = extended(tmp_path, {"client.steps": entry}, *settings)
    _refuse_other_trials(before, after, records)
