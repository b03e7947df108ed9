"""ByteLog: one ordered, durable history of byte strings, and what every implementation of it shares.

Invariants, whatever lies below:
1. Offsets are 0, 1, 2, ... without gaps. An entry never changes or moves, and goes by release() alone, oldest first.
2. append returns when the entry is as durable as the implementation promises, and then it is there exactly once.
3. An append that names a key which is in the log already writes nothing and returns the offset of the first.
4. What cannot be read back as it was written raises LogDamaged with its offset; nothing is skipped.

An append is optimistic: the offset is part of the frame (frame.py), and the implementation puts a frame at that offset
or says that another entry has it. So two writers cannot interleave unnoticed, and a repeated try cannot count twice.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from livegnn.errors import DtypeInvalid, LogConflict, LogDamaged, UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.log import frame

OFFSET_MAX = 2**63 - 1
KEYS_KEPT_MAX = 10_000  # of the latest entries
_WAIT_SECONDS_MAX = 0.02  # between two looks at the tail
_RELEASED_AT_ONCE = 256  # entries; appends come in between
_SECONDS_MAX = 1e6  # SQLite and librdkafka count milliseconds in 32 bits


class Entry(NamedTuple):
    """One entry: its place, the key of its append, and its bytes."""

    offset: int
    key: str
    payload: bytes


class ByteLog(ABC):
    """One ordered, durable history: offset -> bytes. `open_log(url)` makes one; use it as a context manager.

    Safe to use from several threads; several processes may have the same log open.
    can_release: whether release() works here.
    """

    can_release: bool = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self._closed = False
        self._tail_seen = 0

    # ---- the interface

    def append(self, payload: bytes, *, key: str | None = None, expect: int | None = None) -> int:
        """Appends one entry and returns its offset, when it is durable.

        Args:    key: names this append. If an entry with the key is there, nothing is written and its offset returned,
                 so a producer that crashed may repeat an append; see docs/log.md for how long keys are known.
                 expect: the offset that the entry must get.
        Raises:  LogConflict if another entry has the expected offset, or there are fewer; then nothing is written.
                 LogUnavailable if the broker or file fails: the entry may be there or not, and the same key or the same
                 expect makes it safe to try again.  DtypeInvalid, ValueInvalid for the arguments; UsageError if closed.
        """
        if not isinstance(payload, bytes):
            raise DtypeInvalid(f"[append] expected a payload of bytes, got {type(payload).__name__}; encode it first")
        if key is not None:
            frame.check_key("append", key)
        checked_offset("append", "expect", expect)
        with self._lock:
            return self._append(payload, key, expect)

    def read(self, from_offset: int = 0, limit: int | None = None) -> Iterator[Entry]:
        """The entries from an offset on, at most `limit`, up to the tail at the time of the first one.

        Raises:  LogDamaged naming the offset; LogUnavailable; ValueInvalid; UsageError for an offset before `first`.
        """
        checked_offset("read", "from_offset", from_offset)
        checked_offset("read", "limit", limit)
        return self._read(from_offset, limit)

    @property
    def tail(self) -> int:
        """The next offset: the number of entries."""
        with self._lock:
            self._check_open("tail")
            tail = self._tail()
            if tail < self._tail_seen:
                raise LogDamaged(
                    f"[{self.name}, offset {tail}] expected at least {self._tail_seen} entries, got {tail}: "
                    "the log has lost its end; restore it from a copy"
                )
            self._tail_seen = tail
            return tail

    @property
    def first(self) -> int:
        """The offset of the oldest entry that was not released."""
        with self._lock:
            self._check_open("first")
            return self._first()

    def release(self, before: int) -> int:
        """Lets go of the entries before an offset, for good; returns `first` afterwards. The newest entry always stays.

        What they said is known no more: neither their keys, nor any state that only they lead to. Appends of other
        threads come in between; a crash leaves a log that has let go of fewer.
        Raises:  UsageError where the log keeps all (docs/log.md) or has fewer entries; LogUnavailable; ValueInvalid.
        """
        checked_offset("release", "before", before)
        if not self.can_release:
            raise UsageError(
                f"[release, log {self.name}] expected a log that can let go of entries, got a {type(self).__name__} "
                "that keeps all; see docs/log.md"
            )
        if before > self.tail:
            raise UsageError(
                f"[release, log {self.name}] expected an offset up to {self.tail}, got {before}; name another"
            )
        wanted = min(before, self.tail - 1)
        while (first := self.first) < wanted:
            with self._lock:
                self._check_open("release")
                self._release(first, min(first + _RELEASED_AT_ONCE, wanted))
        return first

    @property
    def committed(self) -> int:
        """The largest offset that is durable, -1 if none is; see docs/log.md for what each implementation promises."""
        with self._lock:
            self._check_open("committed")
            return self._committed()

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Waits until the log has an entry at `offset`; False if `timeout` seconds have passed without one.

        timeout: 0 looks once, None waits for ever. Raises: DtypeInvalid, ValueInvalid for a bad offset or timeout.
        """
        checked_offset("wait", "offset", offset)
        limit = checks.timeout("wait", timeout)
        deadline = None if limit is None else time.monotonic() + limit
        pause = 0.001
        while self.tail <= offset:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(2 * pause, _WAIT_SECONDS_MAX)
        return True

    def close(self) -> None:
        """Lets go of files, connections and threads. What was appended stays. A second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}{', closed' if self._closed else ''})"

    # ---- what an implementation gives; all are called under the lock, on an open log

    @abstractmethod
    def _tail(self) -> int:
        """Number of entries."""

    @abstractmethod
    def _committed(self) -> int:
        """The largest durable offset."""

    @abstractmethod
    def _find(self, key: str, tail: int) -> int | None:
        """The offset of the entry with this key, among those of the first `tail` whose keys are known."""

    @abstractmethod
    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        """Writes a frame at `offset` if that is the tail: its offset, or None if another entry is there."""

    @abstractmethod
    def _frames(self, first: int, last: int) -> list[bytes]:
        """Frames from `first` on, at least one, at most last - first; all of them exist."""

    @abstractmethod
    def _first(self) -> int:
        """The offset of the oldest entry that was not released; 0 where can_release is False."""

    @abstractmethod
    def _release(self, first: int, before: int) -> None:
        """Lets go of entries [first, before), the oldest ones; the one at `before` exists. With can_release only."""

    @abstractmethod
    def _close(self) -> None:
        """Called once."""

    # ---- inside

    def _append(self, payload: bytes, key: str | None, expect: int | None) -> int:
        own = uuid.uuid4().hex if key is None else key
        while True:
            self._check_open("append")
            offset = expect if expect is not None else self._tail_seen or self.tail
            found = None if key is None else self._find(key, self._known(offset))
            if found is None:
                found = self._put(offset, own, frame.encode(offset, own, payload))
            if found is None:  # the place is taken, or there are fewer entries
                tail = self.tail
                found = None if key is None else self._find(key, tail)
                if found is None and expect is None:
                    continue
            if found is None or expect not in (None, found):
                got = f"{self.tail} entries" if found is None else f"the entry with key {key!r} at {found}"
                raise LogConflict(
                    f"[append, log {self.name}] expected offset {offset} to be the next one, got {got}; "
                    "read what has been appended since"
                )
            self._tail_seen = max(self._tail_seen, found + 1)
            return found

    def _known(self, offset: int) -> int:
        """So many entries before `offset` exist; the tail is looked up only where that is not known."""
        return offset if offset <= self._tail_seen else min(offset, self.tail)

    def _read(self, from_offset: int, limit: int | None) -> Iterator[Entry]:
        last = self.tail if limit is None else min(self.tail, from_offset + limit)
        offset = from_offset
        while offset < last:
            with self._lock:
                self._check_open("read")
                try:
                    frames = self._frames(offset, last)
                except LogDamaged:
                    self._refuse_released(offset)
                    raise
            for each in frames:
                yield Entry(offset, *frame.decode(self.name, offset, each))
                offset += 1

    def _refuse_released(self, offset: int) -> None:
        first = self._first()
        if offset < first:
            raise UsageError(
                f"[read, log {self.name}] expected an offset from {first} on, got {offset}, whose entry was released; "
                "begin with a snapshot of a later version"
            )

    def _check_open(self, where: str) -> None:
        if self._closed:
            raise UsageError(f"[{where}] expected an open log, got {self.name} closed; open it again with open_log")


def checked_offset(where: str, name: str, value: int | None) -> None:
    """Refuses what is neither None nor an integer from 0 on."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise DtypeInvalid(f"[{where}] expected {name} as an integer, got {value!r}; convert it with int()")
    if value < 0:
        raise ValueInvalid(f"[{where}] expected {name} of at least 0, got {value}; offsets count from 0")
    if value > OFFSET_MAX:
        raise ValueInvalid(f"[{where}] expected {name} of at most 2^63 - 1, got {value}; name a smaller one")


# ---- what open_log's options may be


def checked_seconds(name: str, value: object) -> float:
    """A number of seconds, from 0 on. Raises: ValueInvalid."""
    seconds = checks.as_seconds(value)
    if seconds is None or not 0 <= seconds <= _SECONDS_MAX:
        raise ValueInvalid(
            f"[open_log] expected {name} from 0 to {_SECONDS_MAX:.0f}, got {checks.shown(value)}; "
            "give a number of seconds"
        )
    return seconds


def checked_count(name: str, value: object, least: int = 1) -> int:
    """An integer from `least` to 2^31 - 1. Raises: DtypeInvalid, ValueInvalid."""
    count = checks.whole_number("open_log", name, value)
    if not least <= count < 2**31:
        raise ValueInvalid(f"[open_log] expected {name} from {least} to {2**31 - 1}, got {count}; give such a number")
    return count


def checked_mapping(name: str, value: object) -> dict[str, Any]:
    """Settings by their names. Raises: ValueInvalid, which shows none of them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueInvalid(
            f"[open_log] expected {name} as a dictionary of settings by name, got {type(value).__name__}; give one"
        )
    return dict(value)
