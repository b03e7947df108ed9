"""The tail record of an SQLite log: how many entries were acknowledged, kept in a file of its own.

SQLite ends its journal at the first frame that is bad: it cannot distinguish a damaged journal from one that a power
cut left unfinished. The tail record can: it is written and synced after the entry, and before the entry is
acknowledged.

file    = path "-tail-" name in lower case: two slots, at bytes 0 and 4096, of 8192 bytes in all
slot    = "LGT1" checksum sequence entries synced newest boot           integers little-endian
checksum = uint32, CRC-32 of all that follows it
sequence = uint64        writes of this record; a write goes to slot sequence % 2, so a torn one leaves the other
entries  = uint64        so many were acknowledged
synced   = uint64        so many of them were on disk before this record was
newest   = uint32        checksum of the frame of the last of them; 0 if there is none
boot     = 16 bytes      zero: all of them are synced.  else: they were written in this run of the machine

Invariants, under the lock (flock on the file), which every append holds:
1. entries <= rows of the database <= entries + 1: an appender killed between its two writes is one ahead.
2. The record of an entry is written before the next entry is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from livegnn.errors import LogDamaged, LogUnavailable
from livegnn.stored import replaced

_MAGIC = b"LGT1"
_HEAD = struct.Struct("<4sI")
_FIELDS = struct.Struct("<QQQI16s")
_SLOT_BYTES = 4096  # each slot on a sector of its own
_PAUSE_SECONDS_MAX = 0.005  # between two tries for the lock
_READS_MAX = 5
ALL_SYNCED = bytes(16)
_sync = getattr(os, "fdatasync", os.fsync)  # the file keeps its size


@functools.cache
def this_boot() -> bytes:
    """A name of this run of the machine: nothing that was written since has been lost with its memory."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):  # another system: a process knows of its own writes only
        return uuid.uuid4().bytes


def sync_file(path: Path) -> None:
    """Syncs the content of a file. Raises: OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(file)
    finally:
        os.close(file)


class Record(NamedTuple):
    """What was acknowledged; see the head of this file."""

    entries: int
    synced: int
    newest: int
    boot: bytes

    @property
    def is_whole(self) -> bool:
        """Whether all entries that were acknowledged must be there: none was only in the memory of an earlier run."""
        return self.boot in (ALL_SYNCED, this_boot())

    @property
    def floor(self) -> int:
        """So many entries must be there."""
        return self.entries if self.is_whole else self.synced


class TailFile:
    """The open file of one log's tail record. Reads need no lock; writes do."""

    def __init__(self, path: Path) -> None:
        """Raises: FileNotFoundError; LogUnavailable for a file that cannot be opened."""
        self.path = path
        self._sequence = 0
        self.is_doubtful = False  # whether the last write failed
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as cause:
            raise self._unavailable("open_log", cause) from cause

    @classmethod
    def make(cls, path: Path, record: Record) -> None:
        """Writes a new file, as a whole and synced, folder included. Raises: LogUnavailable."""
        try:
            with replaced(path, "open_log", sealed=False) as file:
                file.write(b"".join(_slot(sequence, record).ljust(_SLOT_BYTES, b"\0") for sequence in (0, 1)))
        except OSError as cause:
            raise LogUnavailable(
                f"[open_log] expected to write the tail record {path}, got {cause}; make room, or allow writing there"
            ) from cause

    @contextlib.contextmanager
    def locked(self, where: str, seconds_max: float) -> Iterator[None]:
        """Keeps other appenders out, in this process and in others. Raises: LogUnavailable after `seconds_max`."""
        deadline = time.monotonic() + seconds_max
        pause = 0.0002
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as cause:
                if time.monotonic() >= deadline:
                    raise LogUnavailable(
                        f"[{where}] expected {self.path} to be free within {seconds_max} s, got another appender that "
                        "holds it; try again"
                    ) from cause
            except OSError as cause:
                raise self._unavailable(where, cause) from cause
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def read(self, where: str) -> Record:
        """The newest record. Raises: LogDamaged if no slot is whole; LogUnavailable."""
        for _ in range(_READS_MAX):  # without the lock, a slot may be met half written
            found = self._newest(where)
            if found is not None:
                self._sequence, record = found
                return record
        raise LogDamaged(
            f"[{where}] expected a tail record in {self.path}, got none that can be read; restore it with the log "
            "from a copy, or open the log with accept_length=True to go on with the entries that are there"
        )

    def write(self, where: str, record: Record, *, sync: bool) -> None:
        """Writes a record after the one that was read last. Raises: LogUnavailable."""
        sequence = self._sequence + 1
        self.is_doubtful = sync  # a write whose sync fails is in memory, and may never reach the disk
        try:
            os.pwrite(self._file, _slot(sequence, record), _SLOT_BYTES * (sequence % 2))
            if sync:
                _sync(self._file)
        except OSError as cause:
            raise self._unavailable(where, cause) from cause
        self._sequence, self.is_doubtful = sequence, False

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _newest(self, where: str) -> tuple[int, Record] | None:
        try:
            content = os.pread(self._file, 2 * _SLOT_BYTES, 0)
        except OSError as cause:
            raise self._unavailable(where, cause) from cause
        slots = [_parsed(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
        return max((slot for slot in slots if slot is not None), default=None)

    def _unavailable(self, where: str, cause: OSError) -> LogUnavailable:
        return LogUnavailable(
            f"[{where}] expected the tail record {self.path} to be read and written, got {cause}; "
            "see to the disk and try again"
        )


def _slot(sequence: int, record: Record) -> bytes:
    fields = _FIELDS.pack(sequence, *record)
    return _HEAD.pack(_MAGIC, zlib.crc32(fields)) + fields


def _parsed(slot: bytes) -> tuple[int, Record] | None:
    """(sequence, record) of a slot, None if it is not whole."""
    if len(slot) < _HEAD.size + _FIELDS.size:
        return None
    magic, checksum = _HEAD.unpack_from(slot)
    fields = slot[_HEAD.size : _HEAD.size + _FIELDS.size]
    if magic != _MAGIC or checksum != zlib.crc32(fields):
        return None
    sequence, *rest = _FIELDS.unpack(fields)
    return sequence, Record(*rest)
