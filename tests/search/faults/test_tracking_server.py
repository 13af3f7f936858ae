"""A tracking server that is away, dies, and comes back: the store ends up as if it had not."""

import pytest
from night import RUNS, Night, same
from server import Server

EAGER = "import fltune.search.recorder as recorder; recorder.PATIENCE_SECONDS = 0.2"
"""Asks a store that failed again almost at once."""


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    made = Server(folder)
    yield made
    made.kill()


@pytest.fixture
def night(tmp_path, server):
    made = Night(tmp_path / "search", uri=server.uri)
    yield made
    made.end()


def test_a_server_that_is_down_at_the_start_is_named_and_nothing_is_made(night, server):
    command = night.search()
    assert command.wait() == 2, command.printed
    assert command.out == ""
    assert command.err == (
        f"fltune: tracking.uri: {server.uri} cannot be opened: no server answers (Connection "
        "refused); start it, or record in a file of this machine: --set tracking.uri=FILE.db\n"
    )
    assert not (night.folder / "mlruns").exists()


@pytest.mark.slow
def test_what_a_server_missed_is_sent_by_sync_and_nothing_else(night, server, undisturbed):
    server.start()
    command = night.search()
    command.until(night.ended(5), "5 ended runs")
    server.kill()
    night.done(command)
    assert command.out.count("the tracking store failed:") == 1
    assert "no server answers (Connection refused)" in command.out
    assert command.out.count("python -m fltune sync night") == 1
    assert "Every trial is in MLflow" not in command.out
    server.start()
    has = [key for key, run in night.tracked().items() if _is_run(key) and run[0] == "FINISHED"]
    assert 0 < len(has) < RUNS
    sent = night.done(night.command("sync", night.name))
    assert sent.out == f"sent {RUNS - len(has)} runs of night\n"
    same(night, undisturbed)
    assert night.done(night.command("sync", night.name)).out == "sent 0 runs of night\n"
    same(night, undisturbed)


@pytest.mark.slow
def test_a_server_that_comes_back_is_caught_up_with(night, server, undisturbed):
    server.start()
    command = night.search(before=EAGER, slower=5)
    command.until(night.ended(3), "3 ended runs")
    server.kill()
    command.until(lambda: "the tracking store failed:" in command.out, "the failure")
    server.start()
    command.until(lambda: "the tracking store answers again; sent " in command.out, "its return")
    assert night.lines() < RUNS
    night.done(command)
    assert "fltune sync" not in command.out
    same(night, undisturbed)


@pytest.mark.slow
def test_a_driver_killed_while_its_server_is_away_catches_up_in_resume(night, server, undisturbed):
    server.start()
    command = night.search()
    command.until(night.ended(3), "3 ended runs")
    server.kill()
    command.until(night.ended(8), "8 ended runs")
    command.kill_all()
    server.start()
    night.done(night.resume())
    same(night, undisturbed)


def _is_run(key):
    return key.startswith(("trial ", "confirmation "))
