"""Records that could not be applied: one JSON object a line in DIR/dead-letters.jsonl.

{"source", "part", "place": where the record was, "reason", "record": as it came}

A line is synced before its source moves on. A crash between the two brings the record again: it is then known by its
source, part and place, and is not written twice.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from livegnn.deployment.pipes.records import SourceRecord
from livegnn.errors import StorageFailed

FILE_NAME = "dead-letters.jsonl"


class DeadLetter(msgspec.Struct, frozen=True):
    """One line. place: with this record, `part` of the source has been read up to it."""

    source: str
    part: str
    place: int
    reason: str
    record: str


class _Known(NamedTuple):
    source: str
    part: str
    place: int


class DeadLetters:
    """The file, opened for appending; half a line, which a crash left, is cut off. Raises: StorageFailed."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE_NAME
        self._lock = threading.Lock()
        self._known: set[_Known] = set()
        try:
            self._file = self._path.open("a+b", buffering=0)
            self._length = self._read()
            self._file.truncate(self._length)
        except OSError as cause:
            raise self._failed(cause) from cause

    def _read(self) -> int:
        """Notes what is there; returns the length of its whole lines."""
        length = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                length += len(line)
                try:
                    one = msgspec.json.decode(line, type=DeadLetter)
                except msgspec.MsgspecError:
                    continue  # a person's own line
                self._known.add(_Known(one.source, one.part, one.place))
        return length

    def write(self, source: str, letters: list[tuple[SourceRecord, str]]) -> int:
        """Appends letters that are not there yet, and waits for the disk; returns how many. Raises: StorageFailed."""
        with self._lock:
            new = {
                _Known(source, record.part, record.place): DeadLetter(
                    source, record.part, record.place, reason, record.text
                )
                for record, reason in letters
                if _Known(source, record.part, record.place) not in self._known
            }
            if not new:
                return 0
            lines = b"".join(msgspec.json.encode(one) + b"\n" for one in new.values())
            try:
                written = 0
                while written < len(lines):
                    written += os.write(self._file.fileno(), lines[written:])
                os.fsync(self._file.fileno())
            except OSError as cause:
                self._file.truncate(self._length)
                raise self._failed(cause) from cause
            self._length += len(lines)
            self._known |= new.keys()
            return len(new)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _failed(self, cause: OSError) -> StorageFailed:
        return StorageFailed(
            f"[dead letters] expected to write {self._path}, got {cause.strerror or cause}; look at the disk"
        )
