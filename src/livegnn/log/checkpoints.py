"""Checkpoints of an SQLite log in a thread of their own: an append does not wait while the journal is copied.

SQLite copies its write-ahead journal into the database within the commit that makes it long, which takes tens of
milliseconds where entries are large. Here a thread copies it as it grows (PASSIVE: neither waits for the
other). Where appends leave it no pause in which it could come to the end, the commit that makes the journal
JOURNAL_PAGES long copies the little that is left, and the next one begins the journal anew: it is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from pathlib import Path

JOURNAL_PAGES = 16_384
_BYTES = 4 << 20  # of entries between two checkpoints
_log = logging.getLogger("livegnn")


class JournalCheckpoints:
    """Of one database. lock: held during a checkpoint, by others to keep the thread from beginning one."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._due, self._ends = threading.Event(), False
        self._bytes = 0
        self._thread: threading.Thread | None = None  # made when there is something to do
        database.execute(f"PRAGMA wal_autocheckpoint={JOURNAL_PAGES}")

    def appended(self, size: int) -> None:
        """After an entry of so many bytes was committed."""
        self._bytes += size
        if self._bytes < _BYTES:
            return
        self._bytes = 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="livegnn-checkpoints", daemon=True)
            self._thread.start()
        self._due.set()

    def close(self) -> None:
        """Ends the thread, after the checkpoint under way."""
        self._ends = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._ends:
                return
            try:
                self._checkpoint()
            except sqlite3.Error as error:  # appends go on; the next one is tried, at last by a commit
                _log.warning("[checkpoint] of %s failed, and is tried again: %s", self._path, error)

    def _checkpoint(self) -> None:
        with self.lock, contextlib.closing(sqlite3.connect(os.fspath(self._path), isolation_level=None)) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
