"""OwnSlots: which rows of a worker's arrays are of which vertices of the whole graph. Slots come, and none goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from livegnn.types import BoolArray, Int64Array


@final
class OwnSlots:
    """The slots that a worker owns, ascending; row i is of the i-th.

    Args:    is_own: of (k,) slots those that are the worker's, (k,) bool; its answer for a slot does not change.
    """

    def __init__(self, is_own: Callable[[Int64Array], BoolArray]) -> None:
        self._is_own = is_own
        self._slots = np.zeros(0, np.int64)
        self.slot_count = 0  # of the whole graph, as far as it is followed

    def grow(self, slot_count: int) -> None:
        """Follows the whole graph, where it has more slots now."""
        if slot_count > self.slot_count:
            new = np.arange(self.slot_count, slot_count)
            self._slots = np.concatenate([self._slots, new[self._is_own(new)]])
            self.slot_count = slot_count

    @property
    def slots(self) -> Int64Array:
        """All of them, (n,) int64."""
        return self._slots

    def count(self, slot_count: int) -> int:
        """How many are below."""
        return int(np.searchsorted(self._slots, slot_count))

    def rows(self, slots: Int64Array) -> Int64Array:
        """The row of each of these own slots, (k,) int64."""
        return np.searchsorted(self._slots, slots).astype(np.int64, copy=False)


def room(length: int, needed: int) -> int:
    """Rows that an array of this length gets, so that it holds so many: by half more, as many small batches come."""
    return max(needed, length + length // 2) if needed > length else length
