"""A search of a nested mapping is that of a file which holds it, overrides included."""

import copy

import pytest
from fake_workers import DRAWN, EXPERIMENT

from fltune import dotted
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.search import search
from fltune.search.session import Session

RAW = {"experiment": EXPERIMENT, "methods": {"A": DRAWN, "B": DRAWN}, "search": {"trials": 6}}
SETTINGS = ["search.trials=9", "client.lr=0.3", "methods.A.space.server.lr={grid: [1, 2]}"]


@pytest.fixture
def not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "run", lambda session: session)


@pytest.mark.usefixtures("not_run")
def test_settings_and_methods_are_those_of_a_file(tmp_path):
    before = copy.deepcopy(RAW)
    found = search(RAW, SETTINGS, ["A"], name="first").config
    assert before == RAW
    path = tmp_path / "config.yaml"
    path.write_text(dotted.dump_yaml(RAW))
    assert found.as_yaml() == SearchConfig.read(path, SETTINGS, ["A"]).as_yaml()
    assert found.settings.search.trials == 9
    assert found.methods["A"].raw["client"]["lr"] == 0.3
    assert found.methods["A"].space.describe() == {"server.lr": "grid 1, 2"}


@pytest.mark.usefixtures("not_run")
@pytest.mark.parametrize("settings", [[], SETTINGS])
def test_a_mapping_extends_no_file(settings):
    with pytest.raises(ConfigError, match="extends: unknown section"):
        search({**RAW, "extends": "other.yaml"}, settings)
