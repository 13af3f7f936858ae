"""Names that a search may have: each becomes a folder, and nothing outside of it."""

import re
from pathlib import Path

import pytest
from fake_workers import DRAWN, EXPERIMENT
from rich.console import Console

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.names import MOST_BYTES, is_plain, plain_name
from fltune.search.session import Session
from fltune.search.state import SearchState

LONG = "n" * (MOST_BYTES + 1)


@pytest.mark.parametrize("name", ["first", "two words", "...", ".hidden", "ä" * 127, LONG[1:]])
def test_a_plain_name_is_a_folder_s(tmp_path, name):
    assert plain_name(name) == name
    (tmp_path / name).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [name]


WRONG = {
    "": "found ''; must be a plain name, without slashes",
    ".": "found '.'; must be a plain name, without slashes",
    "..": "found '..'; must be a plain name, without slashes",
    "a/b": "found 'a/b'; must be a plain name, without slashes",
    "a/": "found 'a/'; must be a plain name, without slashes",
    "a\0b": "found 'a\\x00b'; must be a plain name, without slashes",
    LONG: f"found '{'n' * 40}…' of 256 bytes; must be a plain name, of at most 255",
    "ä" * 128: f"found '{'ä' * 40}…' of 256 bytes; must be a plain name, of at most 255",
}


@pytest.mark.parametrize("name", WRONG)
def test_any_other_is_refused_wherever_it_is_given(tmp_path, name):
    assert not is_plain(name)
    raw = {"experiment": EXPERIMENT, "methods": {"A": DRAWN}}
    raw["tracking"] = {"root": str(tmp_path / "mlruns")}
    with pytest.raises(ConfigError) as in_file:
        SearchConfig.parse({**raw, "name": name})
    with pytest.raises(ConfigError) as on_line:
        Session(SearchConfig.parse(raw), name, Console(quiet=True))
    assert in_file.value.problems == on_line.value.problems == [f"name: {WRONG[name]}"]
    with pytest.raises(ConfigError, match="no search named"):
        SearchState.find(tmp_path, name)


def test_a_long_name_of_a_file_is_none_for_a_search(tmp_path):
    """It was an OSError of the system: the time is appended to it."""
    raw = {"experiment": EXPERIMENT, "methods": {"A": DRAWN}}
    raw["tracking"] = {"root": str(tmp_path / "mlruns")}
    config = SearchConfig.parse(raw, f"{'f' * 250}.yaml")
    with pytest.raises(ConfigError, match=re.escape("name: found 'fff")) as caught:
        Session(config, None, Console(quiet=True))
    assert "of 266 bytes" in str(caught.value)
    assert not Path(tmp_path / "mlruns").exists()
