"""Groups of vertices, as readouts pool them: their names, and what a batch does to their members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ValueInvalid
from livegnn.graph import checks
from livegnn.inference.pools import Moves

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class PendingMembers:
    """What the batch that makes `version` does to membership: slots it removes, and those it adds with groups."""

    version: int
    removed: list[int]
    added: dict[int, int]  # slot -> group, by the caller's name
    named: list[object]  # ids among them whose groups came from assign()


class GroupNames:
    """Groups by the caller's integers and by small ones of our own, which are used again."""

    def __init__(self) -> None:
        self.index: dict[int, int] = {}
        self.names: list[int] = []  # by own number; stale where it is free
        self.counts: Int64 = np.zeros(8, np.int64)  # members, by own number
        self._free: list[int] = []

    def numbered(self, groups: list[int]) -> Int64:
        """Own numbers of groups, new ones for new groups."""
        for group in groups:
            if group not in self.index:
                if not self._free:
                    self._free.append(len(self.names))
                    self.names.append(group)
                number = self._free.pop()
                self.names[number] = group
                self.index[group] = number
        if len(self.names) > len(self.counts):
            grown = np.zeros(2 * len(self.names), np.int64)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        return np.fromiter((self.index[group] for group in groups), np.int64, len(groups))

    def count(self, moves: Moves) -> None:
        """Follows the members; a group without any is forgotten."""
        leaves, enters = moves.old_groups[moves.old_groups >= 0], moves.new_groups[moves.new_groups >= 0]
        np.add.at(self.counts, enters, 1)
        np.subtract.at(self.counts, leaves, 1)
        for number in np.unique(leaves[self.counts[leaves] == 0]).tolist():
            del self.index[self.names[number]]
            self._free.append(number)


def group_array(where: str, groups: object, count: int | None, of: str) -> list[int]:
    """Groups as integers, `count` of them where given. Raises: DtypeInvalid, WidthMismatch, ValueInvalid."""
    array = checks.integer_array(where, "groups", groups)
    if count is not None:
        checks.same_length(where, "groups", array, count, of)
    if array.size and array.min() < 0:
        row = int(np.argmax(array < 0))
        raise ValueInvalid(f"[{where}] expected groups of at least 0, got {array[row]} at row {row}; fix the group")
    result: list[int] = array.tolist()
    return result
