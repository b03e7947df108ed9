"""Is the machine calm? A core of a shared machine runs at half its speed while a neighbour works on its other half."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T, U = TypeVar("T"), TypeVar("U")

_BLOCK = bytes(1 << 17)
_SLOWER = 1.15  # times the best time of a fixed piece of work: above, a neighbour is at work


class Calm:
    """Separates calm times from others by hashing a fixed block on so many cores at once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._threads = threads
        self._best = min(self._seconds() for _ in range(30))

    def now(self) -> bool:
        """Whether the machine is about as fast as it has been seen to be."""
        seconds = min(self._seconds() for _ in range(3))
        self._best = min(self._best, seconds)
        return seconds <= _SLOWER * self._best

    def turns(self, ours: Callable[[], T], theirs: Callable[[], U], wanted: int, tries: int) -> Iterator[tuple[T, U]]:
        """What both give, one after the other, of `wanted` turns that were calm throughout; where `tries` turns do not
        bring as many, the last ones as they come.
        """
        for left in range(tries, 0, -1):
            if wanted == 0:
                return
            before, mine, between, yours, after = self.now(), ours(), self.now(), theirs(), self.now()
            if left <= wanted or (before and between and after):
                wanted -= 1
                yield mine, yours

    def _seconds(self) -> float:
        return max(self._pool.map(_hash_seconds, range(self._threads)))


def _hash_seconds(_: int) -> float:
    begin = time.perf_counter()
    hashlib.sha256(_BLOCK).digest()
    return time.perf_counter() - begin
