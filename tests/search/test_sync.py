"""What ``sync`` says when the store fails meanwhile: it has not sent what it has not sent."""

import pytest
from fake_workers import DRAWN, Disk, Night, config_of, well

from fltune.errors import FltuneError
from fltune.search.search import sync
from fltune.search.session import Session
from fltune.tracking import Store, TrackingError


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """The settings that find a finished search, whose store can be opened and then fails."""
    disk = Disk(tmp_path / "searches" / "my night")
    disk.folder.mkdir(parents=True)
    config = config_of({"A": DRAWN}, trials=3)
    campaign = Night(config, disk, end=well).work()
    disk.freeze(config.as_yaml())
    disk.finish(campaign.seconds)

    def fail(*args, **options):
        raise TrackingError("the tracking store http://x failed: no server answers")

    monkeypatch.setattr(Store, "open", lambda *args: None)
    monkeypatch.setattr("fltune.search.session.SearchTree", fail)
    return [f"tracking.root={tmp_path}"]


def test_runs_that_are_not_sent_are_counted_and_the_exit_code_says_so(call, ended):
    code, out, err = call("sync", "my night", "--set", *ended)
    assert code == 1
    assert err == (
        "fltune: 5 runs are still to be sent; when the store answers: "
        f"python -m fltune sync 'my night' --set {ended[0]}\n"
    )
    assert "the tracking store failed: the tracking store http://x failed: no server" in out
    assert "Every result is kept on this disk." in out
    assert "goes on" not in out
    assert "sent " not in out


def test_a_store_that_fails_before_there_is_a_run_has_failed_too(tmp_path, ended):
    folder = tmp_path / "searches" / "my night"
    for log in ("journal.jsonl", "trials.jsonl"):
        (folder / log).unlink()
    with pytest.raises(FltuneError, match="0 runs are still to be sent"):
        sync("my night", ended)


def test_results_that_are_not_sent_are_said_too(ended, monkeypatch):
    monkeypatch.setattr("fltune.search.recorder.Recorder.start", lambda *args: True)
    monkeypatch.setattr(Session, "_send_results", lambda *args: False)
    with pytest.raises(FltuneError, match="the results are still to be sent"):
        sync("my night", ended)
