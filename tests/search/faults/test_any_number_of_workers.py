"""A deterministic search is the same with any number of workers, however long each run takes."""

import pytest
from night import same


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "workers"), [("search.concurrent=2", 2), ("resources.cpus=0.5", 4)]
)
def test_a_deterministic_search_is_the_same_with_any_number_of_workers(
    night, undisturbed, setting, workers
):
    """Every step of every run takes a random time (see the model), so who is first is chance."""
    command = night.done(night.search("--set", setting))
    assert f", {workers} at a time (" in command.out
    assert _table(command) == _table(undisturbed.commands[0])
    same(night, undisturbed)


def _table(command):
    return command.out[command.out.index("night: tuned methods") :]
