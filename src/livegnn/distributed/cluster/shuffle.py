"""The shuffle: workers that hold a graph in shares cut it among themselves. No process holds the whole of it.

A share has some vertices with their features, and some edges, in slots of the whole graph. Each vertex and each edge is
in one share; an edge may lie anywhere. What each worker has after the shuffle is the part that cut() gives it:

1. counts    how many edges, and in how many chunks, each worker sends to each
2. edges     every edge goes to the owners of both of its ends; one round for each column and chunk
3. wanted    each worker asks the holders for the vertices at the other ends of its edges
4. vertices  every vertex goes to its owner and to those that asked for it

A chunk bounds what a worker sends in one round, so that memory is a share, a part and a chunk for each worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.distributed.cluster.cut import EDGE_COLUMNS, PartArrays, Share, own_first
from livegnn.distributed.cluster.part import Swap
from livegnn.errors import InvariantBroken
from livegnn.types import AnyArray, Int64Array

CHUNK_BYTES = 8 << 20  # of one column, to one worker, in one round


@dataclass(frozen=True)
class NewCut:
    """What all workers are given alike.

    parts: how many.  owners: (V,) uint16 the part of each slot, from now on.  holders: (V,) uint16 the worker whose
    share has the vertex, if it is live.  options: of the native store.  version, next_edge_id: of the whole graph.
    """

    parts: int
    owners: npt.NDArray[np.uint16]
    holders: npt.NDArray[np.uint16]
    options: dict[str, Any]
    version: int
    next_edge_id: int


def shuffle(share: Share, part: int, new: NewCut, swap: Swap, chunk_bytes: int = CHUNK_BYTES) -> PartArrays:
    """The part of this worker; rounds, which all workers make together.

    Args:    share: what this worker holds.  swap: sends one parcel to each worker and returns what each has sent here.
    Raises:  what swap raises; then the share is as it was.
    """
    wire = _Wire(part, new.parts, swap, chunk_bytes)
    src, dst = _ends(share, bool(new.options["undirected"]))
    lists = [np.flatnonzero((new.owners[src] == each) | (new.owners[dst] == each)) for each in range(new.parts)]
    columns = {**share, "src": src, "dst": dst}
    edges = wire.move(lists, {name: columns[name] for name in EDGE_COLUMNS if name in columns})
    order = np.argsort(edges["id"], kind="stable")
    edges = {name: np.ascontiguousarray(column[order]) for name, column in edges.items()}
    needed = _needed(edges, part, new)
    asked = wire.exchange([needed[new.holders[needed] == each] for each in range(new.parts)])
    lists = _vertices_for(share["slots"], asked, new)
    rows = {name: share[name] for name in ("slots", "features", "vertex_type") if name in share}
    vertices = wire.move(lists, rows)
    return _part_of(vertices, edges, part, new)


def _ends(share: Share, undirected: bool) -> tuple[Int64Array, Int64Array]:
    """Slots of both ends; of an undirected edge the smaller one first, as a graph keeps it."""
    src, dst = share["src"], share["dst"]
    return (np.minimum(src, dst), np.maximum(src, dst)) if undirected else (src, dst)


def _needed(edges: Share, part: int, new: NewCut) -> Int64Array:
    """Slots of the other parts' vertices at the ends of these edges."""
    ends = np.zeros(len(new.owners), np.bool_)
    ends[edges["src"]] = ends[edges["dst"]] = True
    return np.flatnonzero(ends & (new.owners != part))


def _vertices_for(held: Int64Array, asked: Sequence[Int64Array], new: NewCut) -> list[Int64Array]:
    """For each worker the rows of this share that it owns, or has asked for. held: slots by row."""
    row_of = np.full(len(new.owners), -1, np.int32)  # of all slots, so no wider than a slot
    row_of[held] = np.arange(len(held), dtype=np.int32)
    owners, lists = new.owners[held], []
    for part, slots in enumerate(asked):
        rows = row_of[slots]
        if rows.min(initial=0) < 0:
            raise InvariantBroken(f"invariant broken: slot {slots[rows.argmin()]} was asked of a worker without it")
        lists.append(np.concatenate([np.flatnonzero(owners == part), rows]))
    return lists


def _part_of(vertices: Share, edges: Share, part: int, new: NewCut) -> PartArrays:
    """The arrays of a part of these vertices and edges, in the order of cut()."""
    order = own_first(vertices["slots"], new.owners, part)
    slots = np.ascontiguousarray(vertices["slots"][order])
    local_of = np.full(len(new.owners), -1, np.int32)
    local_of[slots] = np.arange(len(slots), dtype=np.int32)
    ends = {end: local_of[edges[end]].astype(edges[end].dtype) for end in ("src", "dst")}
    store: dict[str, AnyArray] = {**edges, **ends}
    store["live"] = np.ones(len(slots), np.uint8)
    for name in ("features", "vertex_type"):
        if name in vertices:
            store[name] = np.ascontiguousarray(vertices[name][order])
    store["counters"] = np.array([new.version, new.next_edge_id], np.int64)
    return PartArrays(part, new.parts, new.options, store, slots, new.owners, new.next_edge_id)


class _Wire:
    """Moves rows between the workers, chunk by chunk."""

    def __init__(self, part: int, parts: int, swap: Swap, chunk_bytes: int) -> None:
        self._part, self._parts, self._swap, self._chunk_bytes = part, parts, swap, chunk_bytes

    def move(self, lists: Sequence[Int64Array], columns: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Rows lists[i] of every column go to worker i. Returns: what has come here, of worker 0 first."""
        longest = max(len(rows) for rows in lists)
        heads = self.exchange([np.array([len(rows), longest], np.int64) for rows in lists])
        counts, longest = [int(each[0]) for each in heads], max(int(each[1]) for each in heads)
        return {name: self._moved(lists, column, counts, longest) for name, column in columns.items()}

    def _moved(self, lists: Sequence[Int64Array], column: AnyArray, counts: Sequence[int], longest: int) -> AnyArray:
        """counts: of the rows that come from each worker.  longest: of the lists of all workers."""
        found = np.empty((sum(counts), *column.shape[1:]), column.dtype)
        places = [sum(counts[:source]) for source in range(len(counts))]
        step = max(1, self._chunk_bytes // max(1, column.dtype.itemsize * math.prod(column.shape[1:])))
        for first in range(0, longest, step):
            for source, parcel in enumerate(self._round([column[rows[first : first + step]] for rows in lists])):
                rows = parcel.view(column.dtype).reshape(-1, *column.shape[1:]) if parcel.size else found[:0]
                found[places[source] : places[source] + len(rows)] = rows
                places[source] += len(rows)
        return found

    def exchange(self, arrays: Sequence[Int64Array]) -> list[Int64Array]:
        """Array i goes to worker i. Returns: what each worker has sent here. One round."""
        return [parcel.view(np.int64) for parcel in self._round(arrays)]

    def _round(self, arrays: Sequence[AnyArray]) -> list[npt.NDArray[np.uint8]]:
        """The bytes of array i go to worker i; this worker's own stay here."""
        mine = np.ascontiguousarray(arrays[self._part]).reshape(-1).view(np.uint8)
        if self._parts == 1:
            return [mine]
        sent = [b"" if to == self._part else np.ascontiguousarray(array).tobytes() for to, array in enumerate(arrays)]
        got = self._swap(sent)
        return [mine if source == self._part else np.frombuffer(bytes_, np.uint8) for source, bytes_ in enumerate(got)]
