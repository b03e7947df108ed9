"""What fetches found, moved and took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias


@dataclass(slots=True)
class FetchStats:
    """Counts of one fetch, or sums of many.

    hits, misses: ids asked for, repeats counted, whose row was cached or not.  rows_read: rows read from the source,
    once for each missed id.  admitted, evicted: rows.  bytes_read: of rows_read.  bytes_to_device: copied to a device
    other than the CPU.  Seconds: lookup, read (the source), copy (into the result), replace (hits counted, rows
    admitted); on a GPU copies go on after the call, and count here as far as the call waits.
    """

    fetches: int = 0
    hits: int = 0
    misses: int = 0
    rows_read: int = 0
    admitted: int = 0
    evicted: int = 0
    bytes_read: int = 0
    bytes_to_device: int = 0
    lookup_s: float = 0.0
    read_s: float = 0.0
    copy_s: float = 0.0
    replace_s: float = 0.0

    @property
    def hit_rate(self) -> float:
        """hits / (hits + misses), 0 before anything was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    @property
    def seconds(self) -> float:
        """All phases."""
        return self.lookup_s + self.read_s + self.copy_s + self.replace_s

    def add(self, other: FetchStats) -> None:
        """Adds another's counts to these."""
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_NAMES = tuple(field.name for field in fields(FetchStats))


@dataclass(slots=True)
class CacheStats(FetchStats):
    """The sums since the cache was made or reset, and the last fetch.

    fills, filled_rows, fill_bytes, fill_s: rows read outside fetches, by warm, load, restore and refreshes.
    """

    fills: int = 0
    filled_rows: int = 0
    fill_bytes: int = 0
    fill_s: float = 0.0
    refreshed: int = 0
    last: FetchStats | None = None

    def reset(self) -> None:
        """Back to zero."""
        fresh = CacheStats()
        for field in fields(self):
            setattr(self, field.name, getattr(fresh, field.name))


HitCounts: TypeAlias = dict[str, tuple[int, int]]  # hits and misses of "vertices" and "edges"


def hit_counts(vertices: Iterable[Any], edges: Any) -> HitCounts:
    """Of rows of vertices and of edges, as far as these are caches: what has no `stats` is left out."""
    found: HitCounts = {}
    for name, each in (*(("vertices", rows) for rows in vertices), ("edges", edges)):
        if isinstance(stats := getattr(each, "stats", None), FetchStats):
            hits, misses = found.get(name, (0, 0))
            found[name] = hits + stats.hits, misses + stats.misses
    return found


def hit_rates(before: HitCounts, now: HitCounts) -> dict[str, float]:
    """hits / (hits + misses) of what came in between; 0 where nothing was asked for."""
    came = {name: [now[name][i] - before.get(name, (0, 0))[i] for i in range(2)] for name in now}
    return {name: FetchStats(hits=hits, misses=misses).hit_rate for name, (hits, misses) in came.items()}
