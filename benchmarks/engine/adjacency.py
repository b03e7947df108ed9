"""Growable adjacency lists for the peers: one pool of neighbour ids, O(1) addition, O(degree) vectorised deletion.

List of u: pool[start[u] : start[u] + length[u]], with room for capacity[u]. A full list moves to the pool's end at
twice its size; a deleted entry is replaced by the list's last one. The pool is a torch tensor that NumPy shares, so
that small gathers take NumPy's short call path and large ones torch's threads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.generate import Ids

LARGE_GATHER = 50_000  # entries from which torch's threads pay
SINGLE_OPERATIONS = 24  # up to here a Python loop is cheaper than sorting the batch

Int64 = npt.NDArray[np.int64]


class Adjacency:
    """neighbours of u = targets of the edges whose `key` is u (keys src, targets dst: out-lists; swapped: in-lists)."""

    def __init__(self, vertices: int, keys: Ids, targets: Ids) -> None:
        self.length: Int64 = np.bincount(keys, minlength=vertices).astype(np.int64)
        self.capacity: Int64 = self.length + self.length // 16 + 4
        self.start: Int64 = np.concatenate([[0], np.cumsum(self.capacity)[:-1]]).astype(np.int64)
        self.used = int(self.capacity.sum())
        self._allocate(self.used + self.used // 16 + 1024)
        order = np.argsort(keys, kind="stable")
        first = np.concatenate([[0], np.cumsum(self.length)[:-1]])
        positions = np.repeat(self.start - first, self.length)
        positions += np.arange(len(keys))
        self.pool[positions] = targets[order]

    def _allocate(self, size: int) -> None:
        old = getattr(self, "pool", None)
        self.tensor = torch.zeros(size, dtype=torch.int32)
        self.pool: Ids = self.tensor.numpy()
        if old is not None:
            self.pool[: self.used] = old[: self.used]

    def _grow(self, u: int, room: int) -> None:
        capacity = max(2 * int(self.capacity[u]), int(self.length[u]) + room)
        if self.used + capacity > len(self.pool):
            self._allocate((self.used + capacity) * 5 // 4)
        begin, count = self.start[u], self.length[u]
        self.pool[self.used : self.used + count] = self.pool[begin : begin + count]
        self.start[u], self.capacity[u] = self.used, capacity
        self.used += capacity

    def add(self, keys: Ids, targets: Ids) -> None:
        """Append targets[i] to the list of keys[i]."""
        if len(keys) <= SINGLE_OPERATIONS:
            for u, v in zip(keys.tolist(), targets.tolist(), strict=True):
                count = self.length[u]
                if count == self.capacity[u]:
                    self._grow(u, 1)
                self.pool[self.start[u] + count] = v
                self.length[u] = count + 1
            return
        order = np.argsort(keys, kind="stable")
        heads, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
        for i in np.flatnonzero(self.length[heads] + counts > self.capacity[heads]):
            self._grow(int(heads[i]), int(counts[i]))
        rank = np.arange(len(keys)) - np.repeat(first, counts)
        self.pool[np.repeat(self.start[heads] + self.length[heads], counts) + rank] = targets[order]
        self.length[heads] += counts

    def _remove_one(self, u: int, v: int) -> None:
        begin, last = int(self.start[u]), int(self.length[u]) - 1
        entries = self.pool[begin : begin + last + 1]
        entries[int((entries == v).argmax())] = entries[last]
        self.length[u] = last

    def remove(self, keys: Ids, targets: Ids) -> None:
        """Remove one entry targets[i] from the list of keys[i] (it must be there)."""
        if len(keys) > SINGLE_OPERATIONS:
            _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
            alone = counts[inverse] == 1
            self._remove_alone(keys[alone], targets[alone])
            keys, targets = keys[~alone], targets[~alone]
        for u, v in zip(keys.tolist(), targets.tolist(), strict=True):
            self._remove_one(u, v)

    def _remove_alone(self, keys: Ids, targets: Ids) -> None:
        counts = self.length[keys]
        positions = self._positions(keys, counts)
        owner = np.repeat(np.arange(len(keys)), counts)
        hits = np.flatnonzero(self.pool[positions] == targets[owner])
        _, first = np.unique(owner[hits], return_index=True)
        last = counts - 1
        self.pool[positions[hits[first]]] = self.pool[self.start[keys] + last]
        self.length[keys] = last

    def _positions(self, vertices: npt.NDArray[np.integer], counts: Int64) -> Int64:
        ends = np.cumsum(counts)
        positions = np.repeat(self.start[vertices] - ends + counts, counts)
        positions += np.arange(len(positions))
        return positions

    def gather(self, vertices: npt.NDArray[np.integer]) -> tuple[Ids, Int64]:
        """(all lists of `vertices` one after another, their lengths)."""
        counts = self.length[vertices]
        if len(vertices) == 1:
            begin = int(self.start[vertices[0]])
            return self.pool[begin : begin + int(counts[0])], counts
        if int(counts.sum()) < LARGE_GATHER:
            return self.pool[self._positions(vertices, counts)], counts
        lengths = torch.from_numpy(counts)
        shift = torch.from_numpy(self.start[vertices]) - torch.cumsum(lengths, 0) + lengths
        positions = torch.repeat_interleave(shift, lengths)
        positions += torch.arange(len(positions))
        return self.tensor.index_select(0, positions).numpy(), counts


def union(mark: npt.NDArray[np.bool_], *parts: Ids) -> Ids:
    """Sorted union of vertex arrays; `mark` is all False between calls, one entry for each vertex."""
    if sum(map(len, parts)) < len(mark) // 16:
        return np.unique(np.concatenate(parts))
    for part in parts:
        mark[part] = True
    found = np.flatnonzero(mark).astype(np.int32)
    mark[found] = False
    return found
