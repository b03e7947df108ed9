"""The work of a worker's vertices: in how many batches the output of each has changed. See balance="work"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from livegnn.types import Int64Array

_UNCOUNTED_MAX, _PER_BATCH = 1 << 20, 16  # vertices; a batch weighs as much as some


class _Uncounted(NamedTuple):
    """Slots of the whole graph: vertices that it adds, own ones that it changes."""

    added: Int64Array | None
    changed: npt.NDArray[np.uint32]


class Work:
    """Counts, by slot of the part. Batches are counted many at a time: alone, each would go through memory that nothing
    else of it needs.

    total: of all batches, removed vertices among it.

    Args:    places: the part's slots of slots of the whole graph, as it is now; -1 of those that it has none of.
             counts, total: to go on from.
    """

    def __init__(
        self, places: Callable[[Int64Array], Int64Array], counts: Int64Array | None = None, total: int = 0
    ) -> None:
        self._places, self.total = places, total
        self._counts = np.zeros(0, np.int64) if counts is None else np.array(counts, np.int64)
        self._uncounted: list[_Uncounted] = []
        self._weight = 0

    def add(self, added: Int64Array | None, changed: npt.NDArray[np.uint32]) -> None:
        """A batch that stands: the vertices that it adds, and the own ones whose output it has changed.

        A vertex that it adds has no work of the one before in its slot.
        """
        self.total += len(changed)
        # added may be a piece of the whole batch, which would stay
        self._uncounted.append(_Uncounted(None if added is None else added.copy(), changed))
        self._weight += len(changed) + _PER_BATCH
        if self._weight > _UNCOUNTED_MAX:
            self.counts()

    def counts(self) -> Int64Array:
        """Of slots from 0 on, up to the last that has any."""
        uncounted, self._uncounted, self._weight = self._uncounted, [], 0
        for added, changed in uncounted:
            if added is not None:
                gone = self._places(added)
                self._counts[gone[(gone >= 0) & (gone < len(self._counts))]] = 0
            places = self._places(changed.astype(np.int64))
            places = places[places >= 0]
            self._make_room(int(places.max(initial=-1)) + 1)
            self._counts[places] += 1  # none is there twice
        return self._counts

    def of(self, slots: Int64Array) -> Int64Array:
        """Counts of own vertices, by slots of the whole graph."""
        counts, places = self.counts(), self._places(slots)
        found = np.zeros(len(slots), np.int64)
        known = places < len(counts)
        found[known] = counts[places[known]]
        return found

    def _make_room(self, slots: int) -> None:
        if slots > len(self._counts):
            grown = np.zeros(max(slots, len(self._counts) * 3 // 2), np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
