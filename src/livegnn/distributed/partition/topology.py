"""What a partitioner reads of a graph: ends of edges and live slots, without features, weights or times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.types import BoolArray, Int64Array


@dataclass(frozen=True)
class Topology:
    """Edges between slots. Make it of a graph with of(), or, before there is one, of arrays with of_edges().

    src, dst: (E,) int64 slots; an undirected edge stands once.  live: (slots,) bool.  undirected: whether messages flow
    both ways.  vertex_type: (slots,) int32 codes, None without types.  type_names: in order of the codes.
    work: (slots,) int64 from 0, what each vertex adds to the load of its part where edges are balanced, next to its
    in-edges + 1.
    """

    src: Int64Array
    dst: Int64Array
    live: BoolArray
    undirected: bool = False
    vertex_type: npt.NDArray[np.int32] | None = None
    type_names: tuple[str, ...] = ()
    work: Int64Array | None = None

    @classmethod
    def of(cls, graph: Graph | Topology) -> Topology:
        """That of a graph, all of its edges; of a topology itself. Raises: UsageError where edges lie in files."""
        if isinstance(graph, Topology):
            return graph
        if not isinstance(graph, Graph):
            raise UsageError(f"[partition] expected a Graph or a Topology, got {type(graph).__name__}; give one")
        with graph.host.lock:
            graph.host.need_whole("partition")
            graph.host.need_all_edges("partition")
            ends = _native.edge_ends(graph.host.store)
            names = tuple(graph.vertex_types or ())
            types = graph.host.store.vertex_types() if names else None
            live = graph.host.store.live()
        return cls(ends["src"], ends["dst"], live, graph.undirected, types, names)

    @classmethod
    def of_edges(cls, src: object, dst: object, slot_count: int, *, undirected: bool = False) -> Self:
        """Edges between slots that are all live. Raises: UsageError, for ends outside of the slots too."""
        ends = [np.ascontiguousarray(end, np.int64) for end in (src, dst)]
        if ends[0].ndim != 1 or ends[0].shape != ends[1].shape:
            raise UsageError(
                f"[Topology] expected two ends an edge, got {ends[0].shape} and {ends[1].shape}; give both"
            )
        for end in ends:
            if len(end) and not 0 <= end.min() <= end.max() < slot_count:
                raise UsageError(
                    f"[Topology] expected slots below {slot_count}, got {end.min()} to {end.max()}; give more slots"
                )
        return cls(ends[0], ends[1], np.ones(slot_count, np.bool_), undirected)

    @property
    def slot_count(self) -> int:
        """Slots, free ones included."""
        return len(self.live)

    def in_edges(self) -> Int64Array:
        """How many edges the owner of each slot keeps: those into it, of an undirected graph those at it; (slots,)."""
        counts = np.bincount(self.dst, minlength=self.slot_count)
        if self.undirected:
            other_way = self.src[self.src != self.dst]
            counts += np.bincount(other_way, minlength=self.slot_count)
        return counts.astype(np.int64, copy=False)

    def lists(self) -> tuple[Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Neighbours over both directions, without self-loops: starts, neighbours, how many edges lead to each."""
        found: tuple[Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]
        found = _native.undirected_lists(self.src, self.dst, self.slot_count)
        return found


def live_slots(graph: Graph | Topology) -> BoolArray:
    """Which slots hold a vertex, (slots,) bool; edges may lie in files."""
    if not isinstance(graph, Graph):
        return Topology.of(graph).live
    with graph.host.lock:
        live: BoolArray = graph.host.store.live()
    return live
