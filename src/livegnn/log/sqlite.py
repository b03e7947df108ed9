"""A log in an SQLite file: one row an entry, write-ahead journal (WAL), and the tail record in a file of its own.

file  = SQLite 3, application_id "LGLG", user_version 2, one table for each log, named "log_" name
table = offset INTEGER PRIMARY KEY | key TEXT UNIQUE | frame BLOB (frame.py)
released = a table of all logs: log | before            entries before it were released; not there before the first time
tail  = a file for each log, which says how many entries were acknowledged (tail.py, files.py)

user_version 2 says that tail files belong to the database. Version 1 has none; it gets them when it is opened.

Any number of processes read while one appends; the lock of the tail file serialises appenders. With synchronous FULL an
append has been synced to disk when it returns. With NORMAL it has been written: it outlives the process, but a power
cut may take the end of the log; `committed` then syncs and says how far that reached.

An append, under the lock:  1. the tail record and the database agree, or nothing is written;
2. the row is committed (FULL: synced);  3. the tail record is written (FULL: synced);  4. it is acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from livegnn.errors import LiveGnnError, LogDamaged, LogUnavailable, UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.log import files, frame
from livegnn.log.checkpoints import JournalCheckpoints
from livegnn.log.interface import KEYS_KEPT_MAX, ByteLog, checked_seconds
from livegnn.log.tail import ALL_SYNCED, Record, TailFile, sync_file, this_boot

_APPLICATION_ID = int.from_bytes(b"LGLG", "big")
_FILE_VERSION = 2
_FILE_VERSION_WITHOUT_TAILS = 1
_READ_ROWS_MAX = 256
_READ_BYTES_MAX = 16 << 20
# one statement reads one version of the file, also while another process makes the log
_MARKS = (
    "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), "
    "(SELECT count(*) FROM sqlite_master)"
)
_RELEASED = "CREATE TABLE IF NOT EXISTS released (log TEXT PRIMARY KEY, before INTEGER NOT NULL)"
_EMPTY = Record(0, 0, 0, ALL_SYNCED)
# what SQLite says of a database that another call may find well, or with more room; all else is damage
_PASSING_NAMES = "BUSY LOCKED FULL IOERR CANTOPEN READONLY PERM AUTH INTERRUPT NOMEM PROTOCOL NOLFS"
_PASSING = frozenset(getattr(sqlite3, f"SQLITE_{name}") for name in _PASSING_NAMES.split())


class SqliteLog(ByteLog):
    """A log in a file; `open_log("sqlite:path?name=updates")` opens it, and makes it where there is none.

    Args:    synchronous: "FULL" or "NORMAL" (see above).  busy_seconds_max: how long an append waits for another one.
             must_exist: never makes a log.  accept_length: takes the log as long as it is found, where its tail record
             says more or is missing; entries that were acknowledged may be lost, and their offsets are given out again.
    """

    can_release = True

    def __init__(
        self,
        path: str,
        name: str,
        *,
        synchronous: str = "FULL",
        busy_seconds_max: float = 30.0,
        must_exist: bool = False,
        accept_length: bool = False,
    ) -> None:
        super().__init__(name)
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueInvalid(
                f'[open_log] expected synchronous="FULL" or "NORMAL", got {synchronous!r}; use one of them'
            )
        seconds = checked_seconds("busy_seconds_max", busy_seconds_max)
        must_exist = checks.flag("open_log", "must_exist", must_exist)
        accept_length = checks.flag("open_log", "accept_length", accept_length)
        self.path = files.checked_path(path)
        self._busy_seconds = seconds
        self._synced = synchronous == "FULL"
        self._committed_seen = -1
        self._has_appended = self._keys_checked = False
        self._table = f"log_{name}"
        self._tail_file: TailFile | None = None
        self._check_there(must_exist, accept_length)
        with self._failures("open_log"):
            self._database = sqlite3.connect(
                os.fspath(self.path), timeout=seconds, isolation_level=None, check_same_thread=False
            )
        try:
            with self._failures("open_log"):
                self._set_up(synchronous, must_exist, accept_length)
        except BaseException:
            if self._tail_file is not None:
                self._tail_file.close()
            self._database.close()
            raise

    # ---- opening

    def _check_there(self, must_exist: bool, accept_length: bool) -> None:
        size = files.size_of(self.path)
        if not size and not accept_length:
            try:
                files.refuse_remains(self.path)
            except LogDamaged:
                if not files.size_of(self.path):
                    raise  # else another process has just begun the log
        if size is None and must_exist:
            raise UsageError(
                f"[open_log] expected a log in {self.path}, got no file; correct the path, or leave must_exist out"
            )
        if size == 0 and must_exist:
            raise LogDamaged(f"[open_log] expected a log in {self.path}, got an empty file; restore it from a copy")

    def _set_up(self, synchronous: str, must_exist: bool, accept_length: bool) -> None:
        version = self._version()
        mode = self._one("PRAGMA journal_mode=WAL")
        if mode != "wal":
            raise LogUnavailable(
                f"[open_log] expected {self.path} on a disk that holds a write-ahead journal, got journal mode {mode}; "
                "name a file on a local disk"
            )
        self._database.execute(f"PRAGMA synchronous={synchronous}")
        self._checkpoints = JournalCheckpoints(self.path, self._database)
        tail_path = files.tail_path(self.path, self.name)
        if version != _FILE_VERSION or self._schema() is None or (accept_length and not tail_path.exists()):
            with self._transaction():
                self._make_missing(must_exist, accept_length)
        self._check_schema()
        try:
            self._tail_file = TailFile(tail_path)
        except FileNotFoundError as cause:
            raise LogDamaged(
                f"[open_log, log {self.name}] expected the tail record {tail_path} next to {self.path}, got none; "
                "restore it from a copy, or open with accept_length=True to go on with the entries that are there"
            ) from cause
        with self._tail_file.locked("open_log", self._busy_seconds):
            self._agree(accept_length)

    def _version(self) -> int:
        """The file's version, 0 for a new one. Raises: LogDamaged for another file."""
        *read, tables = self._database.execute(_MARKS).fetchone()
        marks = tuple(read)
        if marks == (0, 0) and tables == 0:
            return 0
        if marks not in [(_APPLICATION_ID, version) for version in (_FILE_VERSION_WITHOUT_TAILS, _FILE_VERSION)]:
            raise LogDamaged(
                f"[open_log] expected {self.path} as a log of format {_FILE_VERSION}, got application_id {marks[0]}, "
                f"user_version {marks[1]}; use another file, or a newer livegnn"
            )
        return int(marks[1])

    def _make_missing(self, must_exist: bool, accept_length: bool) -> None:
        """Inside a transaction: marks, the table, and tail files of logs that have none."""
        version = self._version()  # another process may have been here first
        if version == 0 and not accept_length:
            files.refuse_remains(self.path)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'log\\_%' ESCAPE '\\'"
        names = self._database.execute(query).fetchall()
        if self._schema() is None and must_exist:
            found = ", ".join(sorted(name.removeprefix("log_") for (name,) in names)) or "none"
            raise UsageError(
                f"[open_log] expected a log named {self.name} in {self.path}, got logs {found}; correct the name, or "
                "leave must_exist out"
            )
        self._sync_journal()
        for (table,) in names if version == _FILE_VERSION_WITHOUT_TAILS else []:
            TailFile.make(files.tail_path(self.path, table.removeprefix("log_")), self._record_now(table))
        own = files.tail_path(self.path, self.name)
        if self._schema() is None:
            self._check_never_used(own, accept_length)
            TailFile.make(own, _EMPTY)
            self._database.execute(self._statement())
        elif accept_length and not own.exists():
            TailFile.make(own, self._record_now(self._table))
        if version == 0:
            self._database.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        if version != _FILE_VERSION:
            self._database.execute(f"PRAGMA user_version={_FILE_VERSION}")

    def _check_never_used(self, path: Path, accept_length: bool) -> None:
        """A log without a table has a tail record of no entries, left by a crash, or none."""
        if accept_length or not path.exists():
            return
        with contextlib.closing(TailFile(path)) as left:
            count = left.read("open_log").floor
        if count:
            raise LogDamaged(
                f"[open_log, log {self.name}] expected {count} entries in {self.path}, as {path} records, got no table "
                "for them; restore both files from a copy, or open with accept_length=True to begin again"
            )

    def _agree(self, accept_length: bool) -> None:
        """Compares the database with its tail record, and writes the record anew where a crash left it behind."""
        tail = self._length(self._table)
        try:
            record = self._tails.read("open_log")
            self._check_length("open_log", record, tail)
            if 0 < record.entries <= tail and self._newest(self._table, record.entries) != record.newest:
                raise LogDamaged(
                    f"[open_log, log {self.name}] expected the entry at offset {record.entries - 1} of {self.path} "
                    f"that {self._tails.path} records, got another one or none; restore both files from a copy, or "
                    "open with accept_length=True to go on with the entries that are there"
                )
        except LogDamaged:
            if not accept_length:
                raise
            record = Record(-1, 0, 0, ALL_SYNCED if self._synced else this_boot())
        if record.entries != tail or not record.is_whole:
            self._tails.write("open_log", self._caught_up(record), sync=True)

    # ---- what ByteLog asks

    def _tail(self) -> int:
        with self._failures("tail"):
            record = self._tails.read("tail")
            tail = self._length(self._table)
            if tail < record.floor:
                raise self._short("tail", record, tail)
            return tail

    def _committed(self) -> int:
        if self._synced:
            return self._tail() - 1
        with self._failures("committed"), self._tails.locked("committed", self._busy_seconds):
            self._sync_all(keep_boot=True)
        return self._committed_seen

    def _find(self, key: str, tail: int) -> int | None:
        if not self._keys_checked:
            self._check_keys(tail)
        offset = self._offset_of(key)
        if offset is not None:
            self._record_at_last(offset)
        return offset

    def _record_at_last(self, offset: int) -> None:
        """An entry whose append was killed, or failed, before it was in the record: it is there before it is named."""
        with self._failures("append"):
            if offset < self._tails.read("append").entries and not self._tails.is_doubtful:
                return
            with self._tails.locked("append", self._busy_seconds), self._transaction():
                self._ready_record()

    def _offset_of(self, key: str) -> int | None:
        with self._failures("append"):
            row = self._database.execute(f'SELECT offset FROM "{self._table}" WHERE key = ?', (key,)).fetchone()
            if row is None:
                return None
            offset = int(row[0])
        (framed,) = self._frames(offset, offset + 1)
        found = frame.decode(self.name, offset, framed)[0]
        if found != key:
            raise LogDamaged(
                f"[{self.name}, offset {offset}] expected the entry of key {key!r}, got that of {found!r}: the index "
                "of keys is damaged; restore the log from a copy"
            )
        return offset

    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        with self._failures("append"), self._tails.locked("append", self._busy_seconds):
            with self._transaction():
                record = self._ready_record()
                if record.entries != offset:
                    return None
                taken = self._offset_of(key)  # another process may have come in between with the same key
                if taken is not None:
                    return taken
                self._database.execute(f'INSERT INTO "{self._table}" VALUES (?, ?, ?)', (offset, key, framed))
            self._has_appended = True
            count, newest = offset + 1, frame.checksum_of(framed)
            after = (count, newest, ALL_SYNCED) if self._synced else (record.synced, newest, this_boot())
            self._tails.write("append", Record(count, *after), sync=self._synced)
        self._checkpoints.appended(len(framed))
        return offset

    def _frames(self, first: int, last: int) -> list[bytes]:
        query = (
            f'SELECT offset, CAST(frame AS BLOB) FROM "{self._table}" WHERE offset >= ? AND offset < ? ORDER BY offset'
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

    def _first(self) -> int:
        with self._failures("first"):
            return self._released()

    def _release(self, first: int, before: int) -> None:
        with (
            self._failures("release"),
            self._tails.locked("release", self._busy_seconds),
            self._transaction(),
        ):
            self._database.execute(_RELEASED)
            self._database.execute("INSERT OR REPLACE INTO released VALUES (?, ?)", (self.name.lower(), before))
            self._database.execute(f'DELETE FROM "{self._table}" WHERE offset < ?', (before,))

    def _close(self) -> None:
        self._checkpoints.close()
        if self._has_appended and not self._synced:
            with (  # a failure leaves what NORMAL promises
                contextlib.suppress(LiveGnnError),
                self._failures("close"),
                self._tails.locked("close", self._busy_seconds),
            ):
                self._sync_all(keep_boot=False)
        self._tails.close()
        self._database.close()

    # ---- the tail record

    @property
    def _tails(self) -> TailFile:
        assert self._tail_file is not None
        return self._tail_file

    def _check_length(self, where: str, record: Record, tail: int) -> None:
        if tail < record.floor:
            raise self._short(where, record, tail)
        if record.is_whole and tail > record.entries + 1:
            raise LogDamaged(
                f"[{where}, log {self.name}] expected {record.entries} entries in {self.path}, as {self._tails.path} "
                f"records, got an entry at offset {tail - 1}; restore both files from a copy, or open with "
                "accept_length=True if the record is the older one"
            )

    def _ready_record(self) -> Record:
        """Inside a transaction and the lock: the record of all entries, as the next one may be written after it."""
        record, tail = self._tails.read("append"), self._length(self._table)
        self._check_length("append", record, tail)
        ready = record
        if tail != record.entries:  # an appender was killed before it wrote its record
            ready = self._caught_up(record)
        if not self._synced and record.boot == ALL_SYNCED:
            ready = ready._replace(boot=this_boot())
        if ready != record or self._tails.is_doubtful:
            self._tails.write("append", ready, sync=True)
        return ready

    def _caught_up(self, record: Record) -> Record:
        """The record of all entries that are there, after another one that was written before them."""
        now = self._record_now(self._table)
        if record.boot == ALL_SYNCED:
            self._sync_journal()
            return now
        return now._replace(synced=min(record.synced, now.entries), boot=this_boot())

    def _sync_journal(self) -> None:
        """Syncs what a killed appender wrote and had no time to sync."""
        try:
            sync_file(Path(f"{self.path}-wal"))
        except FileNotFoundError:
            return  # all of it is in the database
        except OSError as cause:
            raise LogUnavailable(
                f"[open_log, log {self.name}] expected to sync {self.path}-wal, got {cause}; see to the disk"
            ) from cause

    def _record_now(self, table: str) -> Record:
        tail = self._length(table)
        return Record(tail, tail, self._newest(table, tail), ALL_SYNCED)

    def _sync_all(self, *, keep_boot: bool) -> None:
        """Under the lock, with NORMAL: copies the journal into the file, and records how far both are synced."""
        record, tail = self._tails.read("committed"), self._length(self._table)
        self._check_length("committed", record, tail)
        with self._checkpoints.lock:
            is_busy, pages, copied = self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if is_busy or pages != copied:  # another one is under way, or a reader still needs the file as it was
            return
        self._committed_seen = tail - 1  # all of the journal is in the file, and both are synced
        boot = record.boot if keep_boot else ALL_SYNCED
        found = self._record_now(self._table)._replace(boot=boot)
        if found != record:
            self._tails.write("committed", found, sync=True)

    def _short(self, where: str, record: Record, tail: int) -> LogDamaged:
        return LogDamaged(
            f"[{where}, log {self.name}] expected at least {record.floor} entries in {self.path}, as "
            f"{self._tails.path} records, got {tail}: the log has lost its end; restore both files from a copy, or "
            f"open with accept_length=True to give out offset {tail} again"
        )

    # ---- inside

    def _statement(self) -> str:
        return (
            f'CREATE TABLE "{self._table}" (offset INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, frame BLOB NOT NULL)'
        )

    def _schema(self) -> str | None:
        row = self._database.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (self._table,)
        ).fetchone()
        return None if row is None else row[0]

    def _check_schema(self) -> None:
        found = self._schema()
        if not isinstance(found, str) or found.lower() != self._statement().lower():
            raise LogDamaged(
                f"[open_log, log {self.name}] expected {self.path} with the table {self._statement()}, got {found!r}; "
                "restore it from a copy"
            )

    def _check_keys(self, tail: int) -> None:
        """Looks up the newest keys: SQLite does not notice an index that has lost one, and would write it again."""
        first = max(self._first(), tail - KEYS_KEPT_MAX)
        query = (
            f'SELECT count(*) FROM "{self._table}" AS entry CROSS JOIN "{self._table}" AS place '
            f'INDEXED BY "sqlite_autoindex_{self._table}_1" ON place.key = entry.key AND place.offset = entry.offset '
            "WHERE entry.offset >= ? AND entry.offset < ?"
        )
        with self._failures("append"):
            found = int(self._database.execute(query, (first, tail)).fetchone()[0])
        if found != tail - first:
            raise LogDamaged(
                f"[append, log {self.name}] expected the keys of entries {first} to {tail - 1} in the index of "
                f"{self.path}, got {found} of {tail - first}; restore it from a copy"
            )
        self._keys_checked = True

    def _released(self) -> int:
        if self._one("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'released'") == 0:
            return 0
        row = self._database.execute("SELECT before FROM released WHERE log = ?", (self.name.lower(),)).fetchone()
        return 0 if row is None else int(row[0])

    def _length(self, table: str) -> int:
        return int(self._one(f'SELECT coalesce(max(offset), -1) + 1 FROM "{table}"'))

    def _newest(self, table: str, count: int) -> int:
        """The checksum in the frame of entry count - 1, 0 if there is none."""
        row = self._database.execute(
            f'SELECT CAST(frame AS BLOB) FROM "{table}" WHERE offset = ?', (count - 1,)
        ).fetchone()
        return 0 if row is None else frame.checksum_of(row[0])

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
        except LiveGnnError:
            raise
        except sqlite3.DataError as cause:
            if where != "append":
                raise self._unreadable(where, cause) from cause
            raise ValueInvalid(
                f"[{where}, log {self.name}] expected an entry that SQLite holds, got {cause}; split the batch"
            ) from cause
        except (sqlite3.Error, MemoryError) as cause:
            code = getattr(cause, "sqlite_errorcode", None)
            if isinstance(cause, MemoryError) or (code is not None and code & 0xFF in _PASSING):
                raise LogUnavailable(
                    f"[{where}, log {self.name}] expected the database {self.path} to answer, got {cause}; try again"
                ) from cause
            raise self._unreadable(where, cause) from cause
        except (TypeError, ValueError, OverflowError) as cause:  # values of another type than the table's
            raise self._unreadable(where, cause) from cause

    def _unreadable(self, where: str, cause: Exception) -> LogDamaged:
        return LogDamaged(
            f"[{where}, log {self.name}] expected {self.path} as an SQLite database, got one that cannot be read "
            f"({cause}); restore it from a copy"
        )
