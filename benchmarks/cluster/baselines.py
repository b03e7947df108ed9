"""What two other schemes would send on the same parts and batches, counted on arrays; nothing is computed.

RC, layer-wise recompute: for every layer, each worker pulls the rows of the layer before of all remote in-neighbours of
its affected vertices, once per worker and vertex.
RIPPLE, section 5.3: for every layer, each worker sends a row to every affected vertex of another worker that one of its
changed vertices has an edge to, or had one until this batch.

Neither prunes: a vertex counts as changed at a layer if it is affected there. GCN's message of a vertex changes with
its in-degree too, at every layer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from benchmarks.cluster.world import ClusterWorld, Owners
from benchmarks.engine.stream import ADD, Batch, Workload

FLOAT_BYTES = 4


@dataclass
class SentRows:
    """Rows by layer, over all pairs of workers; and messages. Where RC pulls, it asks and is answered: two messages."""

    rc: list[int]
    ripple: list[int]
    rc_messages: list[int]
    ripple_messages: list[int]
    pulled_edges: list[int]  # in-edges of affected vertices by layer: what RC reads, remote or not

    @classmethod
    def none(cls, layers: int = 2) -> Self:
        """Nothing was sent."""
        return cls(*([0] * layers for _ in fields(cls)))

    def add(self, other: SentRows) -> None:
        """Sums of both."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            for layer, count in enumerate(theirs):
                mine[layer] += count


class EdgeTable:
    """Every edge that the graph ever has, and which of them it has now."""

    def __init__(self, work: Workload) -> None:
        added = work.stream.op == ADD
        self.vertices = work.vertices
        self.src = np.concatenate([work.src, work.stream.u[added]])
        self.dst = np.concatenate([work.dst, work.stream.v[added]])
        self.live = np.arange(len(self.src)) < work.edges
        keys = self.src.astype(np.int64) * self.vertices + self.dst
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def places(self, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Of edges that are in the table."""
        wanted = src.astype(np.int64) * self.vertices + dst
        return self._order[np.searchsorted(self._keys, wanted)]

    def apply(self, batch: Batch) -> npt.NDArray[np.int64]:
        """The places of the edges that the batch adds or removes; the table is then that after the batch."""
        added = self.places(batch.add_src, batch.add_dst)
        removed = self.places(batch.remove_src, batch.remove_dst)
        self.live[added] = True
        self.live[removed] = False
        return np.concatenate([added, removed])


def count_rows(world: ClusterWorld, table: EdgeTable, batch: Batch, owners: Owners) -> SentRows:
    """Applies the batch to the table and counts."""
    touched = table.apply(batch)
    src, dst = table.src, table.dst
    crosses = owners[src] != owners[dst]
    carries_ever = table.live.copy()
    carries_ever[touched] = True
    changed = np.zeros(table.vertices, bool)
    changed[batch.feature_ids] = True
    rescaled = np.zeros(table.vertices, bool)
    if world.kind == "gcn":
        rescaled[dst[touched]] = True
    found = SentRows.none(0)
    for _ in world.widths[1:]:
        carries = carries_ever & (changed | rescaled)[src]
        carries[touched] = True
        affected = changed.copy()
        affected[dst[carries]] = True
        found.ripple.append(_distinct(owners[src], dst, carries & crosses))
        found.ripple_messages.append(_distinct(owners[src], owners[dst], carries & crosses))
        pulled = table.live & affected[dst]
        found.pulled_edges.append(int(pulled.sum()))
        found.rc.append(_distinct(owners[dst], src, pulled & crosses))
        found.rc_messages.append(2 * _distinct(owners[dst], owners[src], pulled & crosses))
        changed = affected
    return found


def _distinct(workers: Owners, others: npt.NDArray[np.integer], chosen: npt.NDArray[np.bool_]) -> int:
    """How many pairs of a worker and a vertex, or of two workers, the chosen edges have."""
    return len(np.unique(workers[chosen].astype(np.int64) << 32 | others[chosen]))


def row_bytes(rows: list[int], widths: list[int], *, narrower: bool = False) -> int:
    """Bytes of float32 rows of layers' input widths, or of the narrower of input and output; ids are not counted."""
    each = [min(pair) if narrower else pair[0] for pair in pairwise(widths)]
    return sum(FLOAT_BYTES * count * width for count, width in zip(rows, each, strict=True))
