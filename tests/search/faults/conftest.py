"""The undisturbed search that all others are held against, and one to disturb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from night import RUNS, Night


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    night = Night(tmp_path_factory.mktemp("undisturbed"))
    try:
        night.done(night.search())
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
