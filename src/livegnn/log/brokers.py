"""What logs of a broker share: secrets, a time limit, and the keys of the latest entries, which no broker looks up.

A key is known for at least `keys_kept_max` entries after its own: those are read when a key is first asked for, and the
new ones each time after that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable

from livegnn.log.interface import ByteLog, checked_count, checked_mapping, checked_seconds
from livegnn.log.secrets import Secrets


class BrokerLog(ByteLog):
    """A log whose entries are durable as soon as they are there. settings: those of the broker's client, by name."""

    def __init__(
        self, name: str, host: str, label: str, settings: object, timeout_seconds_max: object, keys_kept_max: object
    ) -> None:
        super().__init__(name)
        self._settings = checked_mapping(label, settings)
        self._kept_max = checked_count("keys_kept_max", keys_kept_max)
        self._seconds_max = checked_seconds("timeout_seconds_max", timeout_seconds_max)
        self._secrets = Secrets(host, self._settings)
        self._offsets: dict[str, int] = {}
        self._order: deque[str] = deque()
        self._next: int | None = None  # the first offset whose key was not read yet; None before the first question

    @abstractmethod
    def _keys_of(self, first: int, last: int) -> Iterable[str]:
        """The keys of entries [first, last)."""

    def _committed(self) -> int:
        return self._tail() - 1

    def _find(self, key: str, tail: int) -> int | None:
        start = max(0, tail - self._kept_max)
        self._next = start if self._next is None else max(start, self._next)
        if self._next < tail:
            self._next = max(self._next, self._first())
            for each in list(self._keys_of(self._next, tail)):
                self._note(self._next, each)
        return self._offsets.get(key)

    def _note(self, offset: int, key: str) -> None:
        """The entry at `offset` has this key; noted only where all before it have been."""
        if offset != self._next:
            return
        self._next = offset + 1
        self._offsets.setdefault(key, offset)
        self._order.append(key)
        while len(self._order) > self._kept_max:
            self._offsets.pop(self._order.popleft(), None)
