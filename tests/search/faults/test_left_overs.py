"""Folders that Ray wrote to for a driver that was killed."""

import tempfile

from filelock import FileLock

from fltune.search.tuner import _scratch


def test_folders_of_dead_drivers_are_swept_up_and_those_of_live_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("fltune-ray-dead", "fltune-ray-live", "fltune-ray-new", "other"):
        (tmp_path / name).mkdir()
    for name in ("fltune-ray-dead", "fltune-ray-live", "other"):
        (tmp_path / name / "lock").touch()
        (tmp_path / name / "trials").touch()
    with FileLock(tmp_path / "fltune-ray-live" / "lock"), _scratch() as own:
        assert own.parent == tmp_path
        there = {path.name for path in tmp_path.iterdir()}
        # a folder without a lock is one that is being made
        assert there == {"fltune-ray-live", "fltune-ray-new", "other", own.name}
    assert (tmp_path / "fltune-ray-live" / "trials").exists()
    assert not own.exists()
