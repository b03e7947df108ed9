"""What temporal sampling gives: TemporalHop, flat arrays that PyG's layers take as they are, and TemporalWalks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from livegnn.types import Float32Array, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class TemporalHop:
    """The sampled in-edges of B targets, each a vertex at a time; E edges, B' rows at the next hop.

    Row i is vertex targets[i] at target_times[i]. The edges of a target stand together, targets in order, and each
    target's edges in order of (time, edge id), oldest first. Vertices are slots: the ids themselves, unless the graph
    has ids of its own or types (then graph.to_external names them).

    Args:    targets, target_times: (B,) int64.  ptr: (B + 1,) int64, the edges of row i are ptr[i] to ptr[i + 1].
             src, edge_ids, times: (E,) int64, the in-neighbour, the edge, and when it came.
             edge_index: (2, E) int64; row 0 is the row of the source among the next hop's targets, row 1 the row of the
             target. As PyG's layers take it for inputs (x_next, x_next[:B]).
             next_targets, next_times: (B',) int64, the next hop's targets: these targets, then the sources, each at its
             edge's time (with prop_time at its target's time). Deduplicated, a pair of vertex and time stands once
             after the first B.
             next_types: (B',) int64, codes of the next targets' vertex types, where vertices have types.
             edge_types: (E,) int64 codes, where edges have types.  weights: (E,) float32, where edges have weights.
    """

    targets: Int64Array
    target_times: Int64Array
    ptr: Int64Array
    src: Int64Array
    edge_ids: Int64Array
    times: Int64Array
    edge_index: Int64Array
    next_targets: Int64Array
    next_times: Int64Array
    next_types: Int64Array | None = None
    edge_types: Int64Array | None = None
    weights: Float32Array | None = None

    @property
    def dst(self) -> Int64Array:
        """(E,) int64, the row of the target that each edge belongs to."""
        row: Int64Array = self.edge_index[1]
        return row

    @property
    def src_rows(self) -> Int64Array:
        """(E,) int64, the row of each source among the next hop's targets."""
        row: Int64Array = self.edge_index[0]
        return row

    @property
    def target_types(self) -> Int64Array | None:
        """(B,) int64, codes of the targets' vertex types, where vertices have types."""
        return None if self.next_types is None else self.next_types[: len(self.targets)]

    @property
    def edge_count(self) -> int:
        """E, how many edges were sampled."""
        return len(self.src)


class TemporalWalks(NamedTuple):
    """B walks of at most L steps; step i leads from vertices[:, i] against an edge to vertices[:, i + 1].

    Args:    vertices: (B, L + 1) int64 slots, -1 after the end.  times: (B, L) int64, of the edges (without times the
             target's own), 0 after the end.
             edge_ids: (B, L) int64, -1 after the end.
    """

    vertices: Int64Array
    times: Int64Array
    edge_ids: Int64Array
