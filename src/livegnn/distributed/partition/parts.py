"""Which part each vertex is of, as data that the engine, the sampling cluster and training share.

part(slot) = of[slot]                       where the table has the slot: what METIS, LDG and Fennel give
           = owners[bucket(slot)]           beyond it: the 1024 buckets of the sampling cluster, a pure function

A hash has no table. A table grows at its end only: a slot that has a part keeps it, also when its vertex is removed and
another one takes the slot. Parts change by a plan alone (moves.py), which makes a new VertexParts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeAlias, final

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.errors import StoredStateInvalid, UsageError
from livegnn.graph.balance import dealt_buckets
from livegnn.types import AnyArray

Uint16Array: TypeAlias = npt.NDArray[np.uint16]

PARTS_MAX = _native.BUCKETS  # a hash has no more


def check_part_count(where: str, parts: object) -> int:
    """A number of parts. Raises: UsageError."""
    if type(parts) is not int or not 1 <= parts <= PARTS_MAX:
        raise UsageError(f"[{where}] expected 1 to {PARTS_MAX} parts, got {parts!r}; give such a number")
    return parts


@final
class VertexParts:
    """An assignment of slots to parts. Readers may go on while the owner appends: what they have stays as it is.

    Args:    parts: how many, 1 to 1024.  of: the part of each slot, whole numbers.  owners: (1024,) uint16, the part of
             each bucket, for slots that `of` has not; None deals them out in turn.
    Raises:  UsageError.

    >>> parts = VertexParts(2, [0, 0, 1])
    >>> parts.append([1, 0])
    >>> parts.lookup(np.array([4, 2])).tolist(), parts.slot_count
    ([0, 1], 5)
    """

    def __init__(self, parts: int, of: object = (), *, owners: AnyArray | None = None) -> None:
        self.parts = check_part_count("VertexParts", parts)
        self._table = self._checked(of)
        self._count = len(self._table)
        self._owners = dealt_buckets(parts) if owners is None else self._checked(owners)
        if len(self._owners) != _native.BUCKETS:
            raise UsageError(
                f"[VertexParts] expected a part for each of {_native.BUCKETS} buckets, got {len(self._owners)}; "
                "leave owners out to deal them out in turn"
            )

    @property
    def of(self) -> Uint16Array:
        """The table, read-only: the part of each slot that it has."""
        return _frozen(self._table[: self._count])

    @property
    def owners(self) -> Uint16Array:
        """The part of each bucket, read-only."""
        return _frozen(self._owners)

    @property
    def slot_count(self) -> int:
        """Slots in the table; those from here on go by their buckets."""
        return self._count

    @property
    def bytes(self) -> int:
        """Memory of the table, room for newcomers included, and of the buckets."""
        return self._table.nbytes + self._owners.nbytes

    def __repr__(self) -> str:
        return f"VertexParts({self.parts} parts, {self._count} slots in a table, {self.bytes} bytes)"

    def lookup(self, slots: AnyArray) -> Uint16Array:
        """The part of each slot, (k,) uint16. Raises: UsageError for what is no slot."""
        asked = np.asarray(slots, np.int64)
        if len(asked) and (asked.min() < 0 or asked.max() > np.iinfo(np.int32).max):
            raise UsageError(f"[lookup] expected slots from 0, got {asked.min()} to {asked.max()}; give slots, not ids")
        inside = asked < self._count
        if inside.all():
            return self._table[asked]
        found = np.empty(len(asked), np.uint16)
        found[inside] = self._table[asked[inside]]
        found[~inside] = self._owners[_native.buckets(np.ascontiguousarray(asked[~inside]))]
        return found

    def of_first(self, slot_count: int) -> Uint16Array:
        """The parts of the slots 0 to slot_count - 1, those beyond the table included."""
        if slot_count <= self._count:
            return self.of[:slot_count]
        beyond = self.lookup(np.arange(self._count, slot_count))
        return np.concatenate([self._table[: self._count], beyond])

    def append(self, parts: object) -> None:
        """Gives the next slots these parts. Raises: UsageError."""
        new = self._checked(parts)
        end = self._count + len(new)
        if end > len(self._table):  # by half, so that many small batches cost no more than one large one
            table = np.empty(max(end, len(self._table) * 3 // 2 + 16), np.uint16)
            table[: self._count] = self._table[: self._count]
            self._table = table
        self._table[self._count : end] = new
        self._count = end

    def moved(self, slots: AnyArray, to: object) -> VertexParts:
        """A copy in which slots of the table are of other parts: one for all, or one each. Raises: UsageError."""
        chosen = np.asarray(slots, np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= self._count):
            raise UsageError(
                f"[moved] expected slots of the table, below {self._count}, got {chosen.min()} to {chosen.max()}; "
                "move the others by their buckets"
            )
        table = self._table[: self._count].copy()
        table[chosen] = self._checked(np.broadcast_to(np.asarray(to), chosen.shape))
        return VertexParts(self.parts, table, owners=self._owners)

    def moved_buckets(self, buckets: object, to: object) -> VertexParts:
        """A copy in which buckets are of other parts, with the slots that go by them. Raises: UsageError."""
        chosen = np.asarray(buckets)
        if chosen.dtype.kind not in "iu" or not ((chosen >= 0) & (chosen < _native.BUCKETS)).all():
            raise UsageError(f"[moved_buckets] expected buckets below {_native.BUCKETS}, got others; see owners")
        owners = self._owners.copy()
        owners[chosen] = self._checked(np.broadcast_to(np.asarray(to), chosen.shape))
        return VertexParts(self.parts, self._table[: self._count], owners=owners)

    def to_arrays(self) -> dict[str, AnyArray]:
        """All of it, for snapshots."""
        return {"parts": np.array(self.parts, np.int64), "of": self.of.copy(), "owners": self._owners.copy()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """What to_arrays() described. Raises: StoredStateInvalid."""
        try:
            return cls(int(arrays["parts"]), arrays["of"], owners=arrays["owners"])
        except (KeyError, TypeError, ValueError, UsageError) as cause:
            raise StoredStateInvalid(
                "[from_arrays] expected what VertexParts.to_arrays() gave, got other arrays; save the parts again"
            ) from cause

    def _checked(self, parts: object) -> Uint16Array:
        given = np.asarray(parts)
        if given.ndim != 1 or (len(given) and (given.dtype.kind not in "iu" or given.min() < 0)):
            raise UsageError(
                f"[VertexParts] expected whole numbers from 0, got {given.dtype} {given.shape}; give parts"
            )
        if len(given) and given.max() >= self.parts:
            raise UsageError(f"[VertexParts] expected parts below {self.parts}, got {given.max()}; give more parts")
        return given.astype(np.uint16)


def hashed(parts: int) -> VertexParts:
    """Parts by a hash of the slot: 1024 buckets, dealt out in turn. Balanced, with most edges cut; no table.

    Raises: UsageError.

    >>> hashed(4).lookup(np.arange(6)).tolist()
    [3, 1, 2, 1, 2, 2]
    """
    return VertexParts(check_part_count("hashed", parts))


def _frozen(array: Uint16Array) -> Uint16Array:
    view = array.view()
    view.flags.writeable = False
    return view
