"""The journal of an SQLite log is copied aside, as it grows."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

import pytest

from livegnn.log import open_log
from livegnn.log.checkpoints import JOURNAL_PAGES, JournalCheckpoints

ENTRY = os.urandom(1 << 20)
PATIENCE_S = 120


def until(done):
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def threads():
    return [each for each in threading.enumerate() if each.name == "livegnn-checkpoints"]


def test_a_long_journal_is_copied_in_a_thread_and_begins_anew(tmp_path):
    path = tmp_path / "history.db"
    with open_log(f"sqlite:{path}") as log:
        for number in range(3):
            log.append(ENTRY, expect=number)
        assert threads() == []
        for number in range(3, 12):
            log.append(ENTRY, expect=number)
        assert len(threads()) == 1
        until(lambda: path.stat().st_size > 4 * len(ENTRY))
        assert [each.payload for each in log.read()] == [ENTRY] * 12
    assert threads() == []
    with open_log(f"sqlite:{path}") as log:
        assert log.tail == 12


def test_the_journal_is_bounded_where_no_checkpoint_comes_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(JournalCheckpoints, "_checkpoint", lambda self: None)
    path = tmp_path / "history.db"
    with open_log(f"sqlite:{path}") as log:
        for number in range(3 * JOURNAL_PAGES * 4096 // len(ENTRY)):
            log.append(ENTRY, expect=number)
        assert (tmp_path / "history.db-wal").stat().st_size < 1.2 * JOURNAL_PAGES * 4096


def test_a_checkpoint_that_fails_is_tried_again(tmp_path, monkeypatch, caplog):
    tried = []

    def failing(self):
        tried.append(1)
        if len(tried) == 1:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(JournalCheckpoints, "_checkpoint", failing)
    with open_log(f"sqlite:{tmp_path / 'history.db'}") as log:
        for number in range(5):
            log.append(ENTRY, expect=number)
        until(lambda: len(tried) == 1)
        for number in range(5, 10):
            log.append(ENTRY, expect=number)
        until(lambda: len(tried) == 2)
    assert "is tried again: disk I/O error" in caplog.text


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_committed_is_known_while_checkpoints_go_on(tmp_path, synchronous):
    with open_log(f"sqlite:{tmp_path / 'history.db'}", synchronous=synchronous) as log:
        for number in range(10):
            log.append(ENTRY, expect=number)
            assert log.committed == number
