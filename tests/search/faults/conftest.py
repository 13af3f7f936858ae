"""The undisturbed search that all others are held against, and one to disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from night import RUNS, Night


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    night = Night(tmp_path_factory.mktemp("undisturbed"))
    try:
        # no pause: nothing disturbs it
        night.done(night.search("--set", "search.concurrent=1", slower=0))
        assert night.lines() == RUNS
        yield night
    finally:
        night.end()


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    night = Night(tmp_path)
    try:
        yield night
    finally:
        night.end()


@pytest.fixture
def refused(call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return exit code and standard error of a command that ends before it starts a thing.

    It runs in this process: importing all that a search needs takes the time of ten such tests.
    """

    def run(night: Night, *arguments: str) -> tuple[int, str]:
        monkeypatch.chdir(night.folder)
        monkeypatch.syspath_prepend(night.folder)
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        code, _, err = call(*arguments)
        return code, err

    return run
