import errno
import math
import subprocess
import sys

import pytest

from fltune.errors import ConfigError, FltuneError
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.state import DiskFullError, Log, SearchState


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "log.jsonl")


def test_what_was_written_is_read_in_order(log):
    assert list(log.read()) == []
    entries = [{"n": 1, "of": ["a", None]}, {"n": 2, "é": 0.1}]
    for entry in entries:
        log.append(entry)
    assert list(log.read()) == list(Log(log.path).read()) == entries


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_becomes_null(log, bad):
    log.append({"rows": [{"val/loss": bad}], "pair": (bad, 1.5), 3: bad})
    assert list(log.read()) == [{"rows": [{"val/loss": None}], "pair": [None, 1.5], "3": None}]


@pytest.mark.parametrize("torn", ['{"n": 2', '{"n": 2}', "\x00\x00"])
def test_a_torn_last_line_is_passed_over_and_the_next_one_takes_its_place(log, torn):
    log.append({"n": 1})
    with log.path.open("a") as file:
        file.write(torn)
    before = log.path.read_bytes()
    assert list(log.read()) == [{"n": 1}]
    assert log.path.read_bytes() == before  # a reader may not be the writer
    log.append({"n": 3})
    assert list(log.read()) == [{"n": 1}, {"n": 3}]
    assert log.path.read_text() == '{"n": 1}\n{"n": 3}\n'


def test_a_file_with_nothing_but_a_torn_line_is_empty(log):
    log.path.write_text('{"n"')
    assert list(log.read()) == []
    log.append({"n": 1})
    assert list(log.read()) == [{"n": 1}]


@pytest.mark.parametrize("line", ["{", "3", "[]", "no"])
def test_a_wrong_line_in_the_middle_is_named(log, line):
    log.path.write_text(f'{{"n": 1}}\n{line}\n{{"n": 2}}\n')
    with pytest.raises(FltuneError, match=r"log.jsonl, line 2: "):
        list(log.read())


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_full_disk_leaves_the_file_as_it_was(log, monkeypatch, earlier):
    for n in range(earlier):
        log.append({"n": n})

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fltune.search.state.os.fsync", no_space)
        with pytest.raises(DiskFullError, match="cannot be written: No space left on device"):
            log.append({"n": 99})
    assert list(log.read()) == [{"n": n} for n in range(earlier)]
    log.append({"n": "later"})
    assert [entry["n"] for entry in log.read()] == [*range(earlier), "later"]


def begun(home, name):
    state = SearchState(home / "searches" / name)
    state.lock()
    state.freeze("search: {}\n")
    return state


def test_a_search_is_found_by_its_name_and_a_wrong_name_brings_the_nearest(tmp_path):
    for name in ("digits-1", "cifar"):
        begun(tmp_path, name).release()
    assert SearchState.find(tmp_path, "cifar").frozen.read_text() == "search: {}\n"
    with pytest.raises(ConfigError) as caught:
        SearchState.find(tmp_path, "digits")
    assert str(caught.value) == (
        "no search named 'digits'; did you mean 'digits-1'?; there are: cifar, digits-1"
    )
    with pytest.raises(ConfigError, match="no search named 'x'; there is none in"):
        SearchState.find(tmp_path / "elsewhere", "x")
    assert not (tmp_path / "elsewhere").exists()


def test_one_process_at_a_time_and_the_lock_goes_with_its_process(tmp_path):
    code = (
        "import sys, pathlib; from fltune.search.state import SearchState as S;"
        "S(pathlib.Path(sys.argv[1])).lock()"
    )
    state = begun(tmp_path, "one")
    argv = [sys.executable, "-c", code, str(state.folder)]
    other = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert "another process is running the search 'one'" in other.stderr
    state.release()
    assert subprocess.run(argv, check=False).returncode == 0
    state.lock()  # that process took its lock with it
    state.release()


def test_a_config_is_frozen_whole_or_not_at_all(tmp_path, monkeypatch):
    state = begun(tmp_path, "one")
    with monkeypatch.context() as patch:

        def broken(path, target):
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr("pathlib.Path.replace", broken)
        with pytest.raises(ConfigError, match=r"cannot write to .*: No space left"):
            state.freeze("other")
    assert state.frozen.read_text() == "search: {}\n"


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    state = begun(tmp_path, "one")
    for seed, status in ((0, "complete"), (1, "failed"), (0, "complete")):
        state.trials.append(TrialRecord("A", "trial", 0, {}, seed, status).as_json())
    assert [(r.seed, r.status) for r in state.records()] == [(0, "complete"), (1, "failed")]


def test_a_confirmation_and_a_later_trial_on_its_seed_are_two_runs(tmp_path):
    state = begun(tmp_path, "one")
    for kind in (CONFIRMATION, TRIAL):  # an extension may search on what was a fresh seed
        state.trials.append(TrialRecord("A", kind, 0, {}, 1, "complete").as_json())
    assert [r.kind for r in state.records()] == [CONFIRMATION, TRIAL]


def test_a_finished_search_that_is_asked_for_more_is_not_finished(tmp_path):
    state = begun(tmp_path, "one")
    state.finish(60.0)
    state.freeze("search: {}\n")  # the same again asks for nothing
    assert state.finished
    state.freeze("search: {confirm_seeds: 9}\n")
    assert not state.finished
    assert state.seconds == 60
    state.finish(75.0)
    assert state.finished
    assert state.seconds == 75


def test_the_seconds_of_a_search_are_those_of_its_last_note(tmp_path):
    state = begun(tmp_path, "one")
    assert state.seconds == 0
    state.journal.append({"event": "proposed", "seconds": 7.0})
    run = TrialRecord("A", "confirmation", 0, {}, 1, "complete", seconds=500.0)
    state.keep(run, 90.0)
    assert state.seconds == 90
    assert [r.seconds for r in state.records()] == [500]
