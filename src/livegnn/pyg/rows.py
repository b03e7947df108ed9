"""The rows of a sample: vertices by type, each once (disjoint: once a seed), in the order in which it is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from livegnn.types import Int64Array

_BATCH_BITS = 32  # a key is the batch, then the slot


class _TypeRows:
    """Rows of one type; their keys in order, for searches."""

    def __init__(self, slots: Int64Array, batch: Int64Array) -> None:
        self.slots, self.batch = slots, batch
        self.sizes = [len(slots)]  # by hop
        keys, first = np.unique(_keys(slots, batch), return_index=True)  # of a seed given twice, its first row
        self._keys, self._rows = keys, first.astype(np.int64)

    def find(self, keys: Int64Array) -> Int64Array:
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._rows[at], -1)

    def add(self, slots: Int64Array, batch: Int64Array) -> Int64Array:
        keys, first, inverse = np.unique(_keys(slots, batch), return_index=True, return_inverse=True)
        rows = self.find(keys)
        fresh = np.flatnonzero(rows < 0)
        fresh = fresh[np.argsort(first[fresh])]  # as they are reached
        rows[fresh] = len(self.slots) + np.arange(len(fresh))
        self.slots = np.concatenate([self.slots, slots[first[fresh]]])
        self.batch = np.concatenate([self.batch, batch[first[fresh]]])
        joined = np.concatenate([self._keys, keys[fresh]])
        order = np.argsort(joined, kind="stable")
        self._keys, self._rows = joined[order], np.concatenate([self._rows, rows[fresh]])[order]
        return rows[inverse.reshape(-1)]


class SampledRows:
    """Rows by vertex type, that of None in a graph without. Seeds are the first rows; batch: the place of the seed."""

    def __init__(self, types: Sequence[str | None], seeds: Mapping[str | None, Int64Array], *, disjoint: bool) -> None:
        self.disjoint = disjoint
        self._types: dict[str | None, _TypeRows] = {}
        first = 0
        starts = {}
        for name, slots in seeds.items():
            starts[name], first = first, first + len(slots)
        for name in types:
            slots = seeds.get(name, np.zeros(0, np.int64))
            batch = np.arange(len(slots)) + starts.get(name, 0)
            self._types[name] = _TypeRows(slots, batch if disjoint else np.zeros(len(slots), np.int64))
        self._begin = dict.fromkeys(types, 0)

    def frontier(self) -> dict[str | None, tuple[int, int]]:
        """By type, the first row that the hop before has added, and the end."""
        return {name: (self._begin[name], len(rows.slots)) for name, rows in self._types.items()}

    def end_hop(self) -> None:
        """From here on rows are of the next hop."""
        for name, rows in self._types.items():
            self._begin[name] = sum(rows.sizes)
            rows.sizes.append(len(rows.slots) - self._begin[name])

    def add(self, name: str | None, slots: Int64Array, batch: Int64Array | None) -> Int64Array:
        """(k,) rows of vertices, new ones where there were none."""
        return self._types[name].add(slots, _batch(slots, batch))

    def find(self, name: str | None, slots: Int64Array, batch: Int64Array | None) -> Int64Array:
        """(k,) rows of vertices, -1 where there are none."""
        return self._types[name].find(_keys(slots, _batch(slots, batch)))

    def part(self, name: str | None, first: int, last: int) -> tuple[Int64Array, Int64Array | None]:
        """Slots and batches of some rows; batches only where disjoint."""
        rows = self._types[name]
        return rows.slots[first:last], rows.batch[first:last] if self.disjoint else None

    def slots(self, name: str | None) -> Int64Array:
        """Of all rows of a type."""
        return self._types[name].slots

    def batch(self, name: str | None) -> Int64Array:
        """Of all rows of a type."""
        return self._types[name].batch

    def count(self, name: str | None) -> int:
        """Rows of a type."""
        return len(self._types[name].slots)

    def counts(self, name: str | None) -> list[int]:
        """Rows of a type by the hop that has added them, seeds first."""
        return list(self._types[name].sizes)


def _keys(slots: Int64Array, batch: Int64Array) -> Int64Array:
    keys: Int64Array = (batch << _BATCH_BITS) | slots
    return keys


def _batch(slots: Int64Array, batch: Int64Array | None) -> Int64Array:
    return np.zeros(len(slots), np.int64) if batch is None else batch
