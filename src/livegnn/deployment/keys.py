"""Idempotency keys: a write that comes again with its key gets the first one's answer, also after a restart.

A key is durable with its batch: it stands in the note of the batch's log entry (note.py), and in each snapshot. So a
key is known if and only if its batch is, until as many newer ones have come as are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from livegnn.deployment.note import Noted
from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid

KEY_LENGTH_MAX = 255


class Applied(NamedTuple):
    """A write that is durable and visible.

    version: of the graph that holds it.  updates: how many it had.  repeated: it was there before, by its key.
    """

    version: int
    updates: int
    repeated: bool = False


class KeptRow(NamedTuple):
    """A key, and what is known of it."""

    key: str
    digest: str
    version: int
    updates: int


def checked_key(key: object) -> str:
    """The key. Raises: DtypeInvalid, ValueInvalid."""
    if not isinstance(key, str):
        raise DtypeInvalid(f"[apply] expected key as a string, got {type(key).__name__}; pass one")
    if not 1 <= len(key) <= KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        raise ValueInvalid(
            f"[apply] expected a key of 1 to {KEY_LENGTH_MAX} printable ASCII characters, got {key[:40]!r} of "
            f"{len(key)}; choose another"
        )
    return key


class KeptKeys:
    """The newest keys and their answers, in the order of their entries. Its user holds a lock."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[str, KeptRow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: str, digest: str) -> Applied | None:
        """The answer of the write that had this key. Raises: UsageError if that one was another."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        refuse_other(key, kept.digest, digest)
        return Applied(kept.version, kept.updates, repeated=True)

    def add(self, requests: Iterable[Noted], version: int) -> None:
        """Keeps the keys of an entry."""
        self.restore(KeptRow(one.key, one.digest, version, one.updates) for one in requests)

    def rows(self) -> list[KeptRow]:
        """All of them, the oldest first."""
        return list(self._kept.values())

    def restore(self, rows: Iterable[KeptRow]) -> None:
        """Adds what rows() gave."""
        for row in rows:
            self._kept.pop(row.key, None)  # one that comes again is the newest
            self._kept[row.key] = row
        while len(self._kept) > self._count_max:
            self._kept.popitem(last=False)


def refuse_other(key: str, known: str, digest: str) -> None:
    """Raises: UsageError where a key comes with another request than before."""
    if known != digest:
        raise UsageError(
            f"[apply] expected the updates that key {key!r} came with first, got others; use a new key for another "
            "write"
        )
