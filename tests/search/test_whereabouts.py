"""Where a search is kept: every printed command finds it, from whichever folder it is typed in."""

import os
import shlex

import pytest
from fake_workers import DRAWN, EXPERIMENT
from rich.console import Console

from fltune.errors import ConfigError
from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.search import extend, reopen, search
from fltune.search.session import Session

VARIABLE = "MLFLOW_TRACKING_URI"
RAW = {"experiment": EXPERIMENT, "methods": {"A": DRAWN}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Two folders to work in, the first of which is the current one."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def begun(tracking, name="my search"):
    """Return the session of a search that has begun and done nothing yet."""
    config = SearchConfig.parse({**RAW, "tracking": tracking}, "a file.yaml")
    session = Session(config, name, Console(quiet=True))
    session.state.lock()
    session.state.freeze(session.frozen_yaml())
    session.state.release()
    return session


def typed(command, monkeypatch):
    """Return verb, name and settings of a printed command, with its variable set."""
    words = shlex.split(command)
    if words[0] != "python":
        monkeypatch.setenv(*words.pop(0).split("="))
    assert words[:3] == ["python", "-m", "fltune"]
    assert words[5::2] == ["--set"] * len(words[5::2])
    return words[3], words[4], words[6::2]


@pytest.mark.parametrize("environment", [None, "sqlite:////elsewhere/e.db", "http://server:5000"])
@pytest.mark.parametrize(
    "tracking",
    [
        {},
        {"root": "own runs"},
        {"uri": "own runs/x.db"},
        {"uri": "sqlite:///mlruns/x.db"},
        {"uri": "http://other:5000"},
        {"uri": "http://other:5000", "root": "own runs"},
    ],
)
def test_a_printed_command_finds_the_search(here, monkeypatch, tracking, environment):
    if environment:
        monkeypatch.setenv(VARIABLE, environment.replace("/elsewhere", str(here / "e")))
    session = begun(tracking)
    verb, name, settings = typed(session.command("compare"), monkeypatch)
    assert (verb, name) == ("compare", "my search")
    if settings:  # else it is found where searches are looked for
        monkeypatch.chdir(here.parent / "there")
    again = reopen(name, settings, None)
    assert again.state.folder == session.state.folder
    assert again.uri == session.uri
    assert session.command("resume").endswith(again.command("resume"))


def test_a_search_of_the_default_folder_needs_no_setting(here):
    assert begun({}, "first").command("resume") == "python -m fltune resume first"
    assert begun({"uri": str(here / "mlruns" / "x.db")}, "x").command("sync").endswith(" sync x")


def test_a_search_beside_a_file_of_its_own_names_the_folder(here):
    session = begun({"uri": "runs/x.db"}, "first")
    where = f"--set tracking.root={here}/runs"
    assert session.command("resume") == f"python -m fltune resume first {where}"
    campaign = Campaign(session.config, session.state, lambda event, record: None)
    assert session.summary(campaign).extend == f"python -m fltune extend first {where}"


def test_a_variable_that_names_no_store_does_not_stop_a_search_that_has_one(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mlruns")
    session = begun({"uri": "runs/x.db"})
    _, name, settings = typed(session.command("resume"), monkeypatch)
    assert os.environ[VARIABLE] == ""
    assert reopen(name, settings, None).uri == session.uri


@pytest.fixture
def not_run(monkeypatch):
    """Give back the session of a search that would be run."""
    monkeypatch.setattr(Session, "run", lambda session, again=False: session)


def test_a_store_named_from_a_folder_is_the_same_from_any(here, monkeypatch, not_run):
    """It was looked for below the new folder, where the search began again from nothing."""
    session = begun({"uri": "runs/x.db"})
    monkeypatch.chdir(here.parent / "there")
    settings = [f"tracking.root={here / 'runs'}"]
    for again in (reopen(session.name, settings, None), extend(session.name, 2, settings)):
        assert again.state.folder == session.state.folder
        assert again.uri == f"sqlite:///{here}/runs/x.db"
    assert list((here.parent / "there").iterdir()) == []


def test_a_search_that_was_frozen_with_a_name_from_its_folder_is_found_too(here, monkeypatch):
    session = begun({"uri": "runs/x.db"})
    session.state.frozen.write_text(session.config.as_yaml())
    assert "uri: runs/x.db" in session.state.frozen.read_text()
    monkeypatch.chdir(here.parent / "there")
    again = reopen(session.name, [f"tracking.root={here / 'runs'}"], None)
    assert (again.state.folder, again.uri) == (session.state.folder, session.uri)


def test_a_folder_that_has_moved_takes_its_store_along(here):
    begun({"uri": "sqlite:///runs/x.db?timeout=5"}, "first")
    moved = here.parent / "there" / "runs"
    (here / "runs").rename(moved)
    again = reopen("first", [f"tracking.root={moved}"], None)
    assert again.state.begun
    assert again.uri == f"sqlite:///{moved}/x.db?timeout=5"


def test_a_name_that_is_taken_is_said_with_the_command_that_goes_on(here):
    begun({"root": "own runs"})
    with pytest.raises(ConfigError) as caught:
        search({**RAW, "tracking": {"root": "own runs"}}, name="my search")
    assert str(caught.value).endswith(
        "choose another --name, or go on with it: "
        f"python -m fltune resume 'my search' --set 'tracking.root={here}/own runs'"
    )
