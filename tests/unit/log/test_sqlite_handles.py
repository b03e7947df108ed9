"""Several handles of one SQLite log: opened at the same time, through a link, and after another one was killed."""

import contextlib
import functools
import sqlite3
import subprocess
import sys
import types

import pytest

from livegnn.errors import LogUnavailable
from livegnn.log import files, open_log
from livegnn.log.sqlite import SqliteLog
from livegnn.log.tail import TailFile


def entries_recorded(path):
    file = TailFile(path.with_name(f"{path.name}-tail-updates"))
    try:
        return file.read("test").entries
    finally:
        file.close()


def test_a_link_names_the_log_that_it_leads_to(tmp_path):
    path, link = tmp_path / "history.db", tmp_path / "links" / "other.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with open_log(f"sqlite:{link}") as log:
        log.append(b"first")
    with open_log(f"sqlite:{path}") as log, open_log(f"sqlite:{link}") as linked:
        assert linked.append(b"second") == 1
        assert [entry.payload for entry in log.read()] == [b"first", b"second"]
    assert [each.name for each in link.parent.iterdir()] == [link.name]


def test_a_log_that_another_process_makes_while_its_marks_are_read(tmp_path, monkeypatch):
    url, plain, late = f"sqlite:{tmp_path}/history.db", sqlite3.connect, []

    class Interrupted(sqlite3.Connection):
        def execute(self, query, *values):
            cursor = super().execute(query, *values)
            if "application_id" not in query or late:
                return cursor
            rows = cursor.fetchall()
            monkeypatch.setattr(sqlite3, "connect", plain)
            with open_log(url) as other:
                late.append(other.append(b"first"))
            return fetched(rows)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(plain, factory=Interrupted))
    with open_log(url) as log:
        assert late == [0]
        assert log.append(b"second") == 1


def fetched(rows):
    """A cursor over rows that were fetched before."""
    return types.SimpleNamespace(fetchone=functools.partial(next, iter(rows), None))


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_that_another_process_begins_meanwhile(tmp_path, monkeypatch, empty):
    path, looked = tmp_path / "history.db", files.refuse_remains
    if empty:
        path.touch()

    def late(place):
        monkeypatch.setattr(files, "refuse_remains", looked)
        with open_log(f"sqlite:{path}") as other:
            other.append(b"first")
        looked(place)

    monkeypatch.setattr(files, "refuse_remains", late)
    with open_log(f"sqlite:{path}") as log:
        assert log.append(b"second") == 1


def test_an_empty_database_that_another_process_fills_meanwhile(tmp_path, monkeypatch):
    path, versioned = tmp_path / "history.db", SqliteLog._version
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")

    def late(log):
        found = versioned(log)
        monkeypatch.setattr(SqliteLog, "_version", versioned)
        with open_log(f"sqlite:{path}") as other:
            other.append(b"first")
        return found

    monkeypatch.setattr(SqliteLog, "_version", late)
    with open_log(f"sqlite:{path}") as log:
        assert log.append(b"second") == 1


HOLD = """
import fcntl, sys
index = open(sys.argv[1], "r+b")
fcntl.lockf(index, fcntl.LOCK_EX, 1, 121)  # SQLite's lock of one checkpoint at a time
print("held", flush=True)
sys.stdin.read()
"""


def test_committed_waits_for_a_checkpoint_of_another_process(tmp_path):
    path = tmp_path / "history.db"
    with open_log(f"sqlite:{path}", synchronous="NORMAL") as log:
        log.append(b"first")
        command = [sys.executable, "-c", HOLD, f"{path}-shm"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"held\n"
            assert log.committed == -1
            other.stdin.close()
        assert log.committed == 0


def killed(*arguments, **options):
    raise LogUnavailable("[append] expected to record the entry, got killed; start again")


def test_a_repeated_append_records_what_a_killed_one_did_not(tmp_path, monkeypatch):
    path = tmp_path / "history.db"
    with open_log(f"sqlite:{path}") as log, open_log(f"sqlite:{path}") as other:
        log.append(b"first", key="a")
        with monkeypatch.context() as patched:
            patched.setattr(log._tails, "write", killed)
            with pytest.raises(LogUnavailable):
                log.append(b"second", key="b")
        assert entries_recorded(path) == 1
        assert other.append(b"second", key="b") == 1
        assert entries_recorded(path) == 2
