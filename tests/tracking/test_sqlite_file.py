"""The sqlite file: others may read while a search writes, where the file system bears that."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fltune.tracking import sqlite_file
from fltune.tracking.sqlite_file import file_system, log_ahead, prove_writable

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/homes /home nfs4 rw 0 0
tmpfs /home/scratch tmpfs rw 0 0
server:/more /home/scratch nfs rw 0 0
/dev/sdb1 /disk\\040two xfs rw 0 0
"""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "mlflow.db"
    prove_writable(path)
    return path


def mode(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA journal_mode").fetchone()[0]


@pytest.fixture
def on(monkeypatch):
    def arrange(kind):
        monkeypatch.setattr(sqlite_file, "file_system", lambda path: kind)

    return arrange


def test_a_commit_waits_for_no_reader_of_a_local_file(database, on):
    on("ext4")
    log_ahead(database)
    with (
        closing(sqlite3.connect(database, timeout=0)) as writer,
        closing(sqlite3.connect(database)) as reader,
    ):
        writer.execute("CREATE TABLE runs (name)")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (0,)
        writer.execute("INSERT INTO runs VALUES ('one')")
        writer.commit()  # 'database is locked' without the log
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", ""])
def test_a_file_that_several_machines_may_open_stays_as_it_is(database, on, kind):
    on(kind)
    log_ahead(database)
    assert mode(database) == "delete"


def test_who_uses_the_file_just_now_is_not_disturbed(database, on):
    on("ext4")
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        log_ahead(database)
        other.execute("CREATE TABLE runs (name)")
        other.commit()
    assert mode(database) == "delete"
    log_ahead(database)
    assert mode(database) == "wal"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/mlflow.db", "ext4"),
        ("/home/ann/mlflow.db", "nfs4"),
        ("/homes/mlflow.db", "ext4"),
        ("/home/scratch/mlflow.db", "nfs"),
        ("/disk two/mlflow.db", "xfs"),
    ],
)
def test_the_nearest_mount_says_the_kind(tmp_path, path, kind):
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    assert file_system(Path(path), table) == kind


def test_without_a_table_of_mounts_nothing_is_known(tmp_path):
    assert file_system(tmp_path, tmp_path / "none") == ""
