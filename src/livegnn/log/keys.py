"""The keys of the latest entries, for logs whose broker cannot look one up.

A key is known for at least `kept_max` entries after its own: those are read when a key is first asked for, and the new
ones each time after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

KEYS_KEPT_MAX = 10_000


class RecentKeys:
    """Offsets of the latest keys."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._offsets: dict[str, int] = {}
        self._order: deque[str] = deque()
        self._next: int | None = None  # the first offset whose key was not read yet; None before the first question

    def find(self, key: str, tail: int, keys_of: Callable[[int, int], Iterable[str]]) -> int | None:
        """The offset of a key; keys_of(first, last) reads the keys of entries [first, last)."""
        start = max(0, tail - self._kept_max)
        self._next = start if self._next is None else max(start, self._next)
        if self._next < tail:
            for each in list(keys_of(self._next, tail)):
                self.note(self._next, each)
        return self._offsets.get(key)

    def note(self, offset: int, key: str) -> None:
        """The entry at `offset` has this key; noted only where all before it have been."""
        if offset != self._next:
            return
        self._next = offset + 1
        self._offsets.setdefault(key, offset)
        self._order.append(key)
        while len(self._order) > self._kept_max:
            self._offsets.pop(self._order.popleft(), None)
