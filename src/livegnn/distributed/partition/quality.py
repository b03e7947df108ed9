"""How good an assignment is: what it cuts, how even it is, and what workers must know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from livegnn.distributed.partition.parts import VertexParts
from livegnn.distributed.partition.topology import Topology
from livegnn.graph import Graph
from livegnn.types import BoolArray, Int64Array

_ROWS_MAX = 32  # of a printed table


class TypeShare(NamedTuple):
    """Of one vertex type, by part: its live vertices, and how many of it are remote in-neighbours."""

    vertices: Int64Array
    halo: Int64Array


@dataclass(frozen=True)
class PartitionReport:
    """Counts of one assignment; print it. Make it with of().

    An edge is cut if its ends are of two parts. Messages flow src -> dst, and the part of dst keeps the edge. In an
    undirected graph they flow both ways: the parts of both ends keep it, and all but edges and cut count it twice.

    edges, cut: how many there are, and are cut.  vertices: (k,) live ones of each part.  in_edges: (k,) edges that each
    part keeps.  between: (k, k) edges from part p into part q.  sources: (k, k), off the diagonal, distinct vertices of
    p with an edge into q: rows that p may send to q for changed sources.  targets: likewise, distinct vertices of q
    with an edge from p: rows for affected destinations.  by_type: of typed graphs.
    """

    parts: int
    edges: int
    cut: int
    vertices: Int64Array
    in_edges: Int64Array
    between: Int64Array
    sources: Int64Array
    targets: Int64Array
    by_type: dict[str, TypeShare] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph | Topology, parts: VertexParts) -> Self:
        """The report on the graph as it is. Raises: UsageError where edges lie in files. Cost: O(E + k V)."""
        topology = Topology.of(graph)
        count, table = parts.parts, parts.of_first(topology.slot_count).astype(np.int64)
        src, dst = topology.src, topology.dst
        crossing = table[src] != table[dst]
        cut, near, far = int(crossing.sum()), src[crossing], dst[crossing]
        if topology.undirected:
            near, far = np.concatenate([near, far]), np.concatenate([far, near])
        between = np.bincount(table[near] * count + table[far], minlength=count * count).reshape(count, count)
        in_edges = _by_part(table, topology.in_edges(), count)
        np.fill_diagonal(between, in_edges - between.sum(axis=0))
        seen = [_distinct(table, near, far, count), _distinct(table, far, near, count)]
        shares, types = {}, topology.vertex_type
        for code, name in enumerate(topology.type_names if types is not None else ()):
            of_type = topology.live & (types == code)
            halo = [int(of_type[remote].sum()) for remote in seen[0]]
            shares[name] = TypeShare(_by_part(table, of_type, count), np.array(halo, np.int64))
        matrices = [
            np.array([np.bincount(table[remote], minlength=count) for remote in remotes], np.int64) for remotes in seen
        ]
        vertices = _by_part(table, topology.live, count)
        return cls(count, len(src), cut, vertices, in_edges, between, matrices[0].T, matrices[1], shares)

    @classmethod
    def joined(cls, reports: Sequence[PartitionReport]) -> Self:
        """The report on a whole graph. reports: of each part, on the edges that have an end in it."""
        cut = sum(each.cut for each in reports) // 2  # in the parts of both ends

        def columns(name: str) -> Int64Array:
            return np.stack([getattr(each, name)[..., part] for part, each in enumerate(reports)], axis=-1)

        shares = {
            name: TypeShare(
                np.array([each.by_type[name].vertices[part] for part, each in enumerate(reports)], np.int64),
                np.array([each.by_type[name].halo[part] for part, each in enumerate(reports)], np.int64),
            )
            for name in reports[0].by_type
        }
        edges = cut + sum(each.edges - each.cut for each in reports)
        found = {name: columns(name) for name in ("vertices", "in_edges", "between", "sources", "targets")}
        return cls(len(reports), edges, cut, by_type=shares, **found)

    @property
    def cut_share(self) -> float:
        """Cut edges of all edges."""
        return self.cut / self.edges if self.edges else 0.0

    @property
    def vertex_balance(self) -> float:
        """The most vertices of a part over the mean."""
        return _over_mean(self.vertices)

    @property
    def edge_balance(self) -> float:
        """The most edges that a part keeps over the mean."""
        return _over_mean(self.in_edges)

    @property
    def halo(self) -> Int64Array:
        """Distinct remote in-neighbours of each part, (k,)."""
        found: Int64Array = self.sources.sum(axis=0)
        return found

    @property
    def halo_sum(self) -> int:
        """Those of all parts: rows that would be kept twice."""
        return int(self.sources.sum())

    @property
    def pairs(self) -> int:
        """Ordered pairs of parts with an edge from one into the other; at most k (k - 1)."""
        return int((self.sources > 0).sum())

    def __str__(self) -> str:
        """A table: a line for each of the first parts, one for each type, and the sums."""
        lines = [f"{'part':>6} {'vertices':>12} {'in-edges':>12} {'cut in':>12} {'halo':>12}"]
        cut_in = self.between.sum(axis=0) - np.diag(self.between)
        rows = np.stack([np.arange(self.parts), self.vertices, self.in_edges, cut_in, self.halo], axis=1)
        for part, *numbers in rows[:_ROWS_MAX].tolist():
            lines.append(f"{part:>6} " + " ".join(f"{number:>12,}" for number in numbers))
        if self.parts > _ROWS_MAX:
            lines.append(f"   ... {self.parts - _ROWS_MAX} more parts")
        for name, share in self.by_type.items():
            lines.append(
                f"{name}: {int(share.vertices.sum()):,} vertices, max/mean {_over_mean(share.vertices):.2f}, "
                f"halo {int(share.halo.sum()):,}"
            )
        lines.append(
            f"cut {self.cut:,} of {self.edges:,} edges ({self.cut_share:.1%}); max/mean {self.vertex_balance:.2f} of "
            f"vertices, {self.edge_balance:.2f} of edges; halo {self.halo_sum:,}; "
            f"pairs {self.pairs} of {self.parts * (self.parts - 1)}"
        )
        return "\n".join(lines)


def _by_part(table: Int64Array, weights: Int64Array | BoolArray, count: int) -> Int64Array:
    """The sums of the weights of each part's slots."""
    return np.bincount(table, weights, minlength=count).astype(np.int64)


def _over_mean(values: Int64Array) -> float:
    total = int(values.sum())
    return float(values.max()) * len(values) / total if total else 1.0


def _distinct(table: Int64Array, near: Int64Array, other: Int64Array, count: int) -> list[Int64Array]:
    """For each part the distinct slots of `near` whose edge has its other end there."""
    parts = table[other].astype(np.uint16)
    order = np.argsort(parts, kind="stable")  # by radix: linear
    ends = np.cumsum(np.bincount(parts, minlength=count))[:-1]
    seen, found = np.zeros(len(table), np.bool_), []
    for slots in np.split(near[order], ends):
        seen[slots] = True
        found.append(np.flatnonzero(seen))
        seen[slots] = False
    return found
