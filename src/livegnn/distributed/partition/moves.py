"""From one assignment to another: which vertices change their part, and no more of them than must.

A partitioner numbers its parts as it likes. The new parts get the numbers of old ones so that as many vertices as
possible stay: a linear assignment on the overlap of old and new parts (Kuhn 1955), exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from livegnn.distributed.partition.parts import Uint16Array, VertexParts
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.optional import need
from livegnn.types import Int64Array

_EDGE_BYTES = 16  # source and id; each column adds its own


class PartMove(NamedTuple):
    """Live vertices that go from one part to another. bytes: of their rows and in-edges."""

    source: int
    target: int
    slots: Int64Array
    bytes: int


@dataclass(frozen=True)
class MovePlan:
    """after: the parts once all moves are done.  moves: by source and target, none of them empty."""

    after: VertexParts
    moves: tuple[PartMove, ...]

    @property
    def vertices(self) -> int:
        """How many move."""
        return sum(len(move.slots) for move in self.moves)

    @property
    def bytes(self) -> int:
        """Of all moves."""
        return sum(move.bytes for move in self.moves)

    def __str__(self) -> str:
        """A table of the moves."""
        lines = [f"{'from':>6} {'to':>6} {'vertices':>12} {'bytes':>16}"]
        lines += [f"{m.source:>6} {m.target:>6} {len(m.slots):>12,} {m.bytes:>16,}" for m in self.moves]
        return "\n".join([*lines, f"{self.vertices:,} vertices, {self.bytes:,} bytes"])


def repartition(
    graph: Graph | Topology, now: VertexParts, wanted: VertexParts, *, row_bytes: int | None = None
) -> MovePlan:
    """The plan that leads from `now` to `wanted`, under numbers of parts that let most vertices stay.

    Args:    wanted: any number of parts; its numbers do not matter.  row_bytes: of a vertex's rows that go with it;
             None counts its features, of a Topology nothing.
    Raises:  UsageError; DataMissing without SciPy.
    """
    topology = Topology.of(graph)
    if row_bytes is not None and (type(row_bytes) is not int or row_bytes < 0):
        raise UsageError(f"[repartition] expected bytes of a vertex from 0, got {row_bytes!r}; give a whole number")
    slots = topology.slot_count
    old, new = now.of_first(slots), wanted.of_first(slots)
    after = _renumbered(old, new, topology, wanted, now.parts)
    table = after.of_first(slots)
    weights = (_row_bytes(graph) if row_bytes is None else row_bytes) + topology.in_edges() * _edge_bytes(graph)
    moving = np.flatnonzero((old != table) & topology.live)
    keys = old[moving].astype(np.int64) * wanted.parts + table[moving]
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    moves = [
        PartMove(pair // wanted.parts, pair % wanted.parts, group, int(weights[group].sum()))
        for pair, group in zip(pairs.tolist(), np.split(moving[order], starts[1:]), strict=False)
    ]
    return MovePlan(after, tuple(moves))


def _renumbered(
    old: Uint16Array, new: Uint16Array, topology: Topology, wanted: VertexParts, old_parts: int
) -> VertexParts:
    """`wanted` under the numbers that keep the most live vertices where they are."""
    scipy: Any = need("scipy.optimize", "distributed")
    overlap = np.zeros((wanted.parts, wanted.parts), np.int64)  # new by old; old parts above are given up
    kept = topology.live & (old < min(old_parts, wanted.parts))
    np.add.at(overlap, (new[kept], old[kept]), 1)
    numbers: Uint16Array = scipy.linear_sum_assignment(overlap, maximize=True)[1].astype(np.uint16)
    return VertexParts(wanted.parts, numbers[new], owners=numbers[wanted.owners])


def _row_bytes(graph: Graph | Topology) -> int:
    if isinstance(graph, Topology):
        return 0
    return graph.feature_width * (4 if graph.feature_dtype == "float32" else 2)


def _edge_bytes(graph: Graph | Topology) -> int:
    if isinstance(graph, Topology):
        return _EDGE_BYTES
    columns = 4 * graph.has_weight + 8 * graph.has_time + 4 * graph.has_type + 4 * graph.attr_width
    return _EDGE_BYTES + columns
