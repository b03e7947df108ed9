"""A log in an SQLite file: one row an entry, write-ahead journal (WAL).

file  = SQLite 3, application_id "LGLG", user_version 1, one table for each log, named "log_" name
table = offset INTEGER PRIMARY KEY | key TEXT UNIQUE | frame BLOB (frame.py)

Any number of processes read while one appends; the database serialises appenders. With synchronous FULL an append has
been synced to disk when it returns. With NORMAL it has been written: it outlives the process, but a power cut may take
the end of the log; `committed` then syncs and says how far that reached.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from livegnn.errors import LogDamaged, LogUnavailable, UsageError, ValueInvalid
from livegnn.log.interface import ByteLog

_APPLICATION_ID = int.from_bytes(b"LGLG", "big")
_FILE_VERSION = 1
_READ_ROWS_MAX = 256
_READ_BYTES_MAX = 16 << 20


class SqliteLog(ByteLog):
    """A log in a file; `open_log("sqlite:path?name=updates")` opens it, and makes it where there is none.

    Args:    synchronous: "FULL" or "NORMAL" (see above).  busy_seconds_max: how long an append waits for another one.
    """

    def __init__(self, path: str, name: str, *, synchronous: str = "FULL", busy_seconds_max: float = 30.0) -> None:
        super().__init__(name)
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueInvalid(
                f'[open_log] expected synchronous="FULL" or "NORMAL", got {synchronous!r}; use one of them'
            )
        folder = Path(path).parent
        if not folder.is_dir():
            raise UsageError(f"[open_log] expected a folder {folder} to hold the log, got none; make it first")
        self._synced = synchronous == "FULL"
        self._committed_seen = -1
        self._table = f'"log_{name}"'
        self._database = sqlite3.connect(
            os.fspath(path), timeout=busy_seconds_max, isolation_level=None, check_same_thread=False
        )
        try:
            with self._failures("open_log"):
                self._set_up(path, synchronous)
        except BaseException:
            self._database.close()
            raise

    def _set_up(self, path: str, synchronous: str) -> None:
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(f"PRAGMA synchronous={synchronous}")
        with self._transaction():
            marks = tuple(self._one(f"PRAGMA {name}") for name in ("application_id", "user_version"))
            empty = self._one("SELECT count(*) FROM sqlite_master") == 0
            if marks == (0, 0) and empty:
                self._database.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                self._database.execute(f"PRAGMA user_version={_FILE_VERSION}")
            elif marks != (_APPLICATION_ID, _FILE_VERSION):
                raise LogDamaged(
                    f"[open_log] expected {path} as a log of format {_FILE_VERSION}, got application_id {marks[0]}, "
                    f"user_version {marks[1]}; use another file, or a newer livegnn"
                )
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} "
                "(offset INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, frame BLOB NOT NULL)"
            )

    # ---- what ByteLog asks

    def _tail(self) -> int:
        with self._failures("tail"):
            return int(self._one(f"SELECT coalesce(max(offset), -1) + 1 FROM {self._table}"))

    def _committed(self) -> int:
        tail = self._tail()
        if self._synced:
            return tail - 1
        with self._failures("committed"):
            _, pages, copied = self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == copied:  # all of the journal is in the file, and both are synced
            self._committed_seen = tail - 1
        return self._committed_seen

    def _find(self, key: str, tail: int) -> int | None:
        with self._failures("append"):
            row = self._database.execute(f"SELECT offset FROM {self._table} WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        with self._failures("append"), self._transaction():
            if self._tail() != offset:
                return None
            taken = self._find(key, offset)  # another process may have come in between with the same key
            if taken is not None:
                return taken
            self._database.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?)", (offset, key, framed))
        return offset

    def _frames(self, first: int, last: int) -> list[bytes]:
        query = (
            f"SELECT offset, CAST(frame AS BLOB) FROM {self._table} WHERE offset >= ? AND offset < ? ORDER BY offset"
        )
        frames: list[bytes] = []
        size = 0
        with self._failures("read"), contextlib.closing(self._database.execute(query, (first, last))) as rows:
            for offset, framed in rows:
                if offset != first + len(frames):
                    break
                frames.append(framed)
                size += len(framed)
                if len(frames) >= _READ_ROWS_MAX or size >= _READ_BYTES_MAX:
                    break
        if not frames:
            raise LogDamaged(
                f"[{self.name}, offset {first}] expected an entry, got none though there are {self._tail()}; "
                "restore the log from a copy"
            )
        return frames

    def _close(self) -> None:
        self._database.close()

    # ---- inside

    def _one(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _failures(self, where: str) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.OperationalError as cause:
            raise LogUnavailable(
                f"[{where}, log {self.name}] expected the database to answer, got {cause}; try again"
            ) from cause
        except sqlite3.DataError as cause:
            raise ValueInvalid(
                f"[{where}, log {self.name}] expected an entry that SQLite holds, got {cause}; split the batch"
            ) from cause
        except sqlite3.DatabaseError as cause:
            raise LogDamaged(
                f"[{where}, log {self.name}] expected an SQLite database, got one that cannot be read ({cause}); "
                "restore it from a copy"
            ) from cause
