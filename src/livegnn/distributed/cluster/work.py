"""The work of a worker's vertices: in how many batches the output of each has changed. See balance="work"."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.distributed.cluster.part import BatchColumns
from livegnn.types import Int64Array

_UNCOUNTED_MAX = 1 << 20  # vertices
_ADD_VERTEX = _native.UpdateKind.AddVertex.value


class Work:
    """Counts, by slot of the part. Batches are counted many at a time: alone, each would go through memory that nothing
    else of it needs.

    Args:    places: the part's slots of slots of the whole graph, -1 of those that it has none of.  counts: to go on
             from.
    """

    def __init__(self, places: Callable[[Int64Array], Int64Array], counts: Int64Array | None = None) -> None:
        self._places = places
        self._counts = np.zeros(0, np.int64) if counts is None else np.array(counts, np.int64)
        self._uncounted: list[npt.NDArray[np.uint32]] = []
        self._length = 0

    def add(self, batch: BatchColumns, changed: npt.NDArray[np.uint32]) -> None:
        """A batch, and the own vertices whose output it has changed. One that it adds has none of the one before in its
        slot.
        """
        added = batch["u"][batch["kind"] == _ADD_VERTEX]
        if len(added):
            counts, places = self.counts(), self._places(added)
            counts[places[(places >= 0) & (places < len(counts))]] = 0
        self._uncounted.append(changed)
        self._length += len(changed)
        if self._length > _UNCOUNTED_MAX:
            self.counts()

    def counts(self) -> Int64Array:
        """Of slots from 0 on, up to the last that has any."""
        if self._uncounted:
            changed = self._places(np.concatenate(self._uncounted).astype(np.int64))
            found = np.bincount(changed[changed >= 0], minlength=len(self._counts))
            found[: len(self._counts)] += self._counts
            self._counts, self._uncounted, self._length = found, [], 0
        return self._counts

    def of(self, slots: Int64Array) -> Int64Array:
        """Counts of own vertices, by slots of the whole graph."""
        counts, places = self.counts(), self._places(slots)
        found = np.zeros(len(slots), np.int64)
        known = places < len(counts)
        found[known] = counts[places[known]]
        return found
