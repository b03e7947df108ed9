"""Samples by their definition: sort the candidates of a vertex by (rank, tie), take the first. docs/sampling.md."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from livegnn.types import AnyArray, Float64Array, Int64Array

_MASK = 0xFFFFFFFFFFFFFFFF


class EdgeTable(NamedTuple):
    """Every edge of a graph: (m,) each. An undirected edge once, either way round."""

    src: Int64Array
    dst: Int64Array
    ids: Int64Array
    weight: Float64Array
    time: Int64Array
    edge_type: Int64Array

    def at(self, places: Int64Array) -> EdgeTable:
        """The edges at these places, in this order."""
        return EdgeTable._make(column[places] for column in self)


class HopRule(NamedTuple):
    """A one-hop query. edge_type None: all. ttl 0: edges do not expire."""

    direction: Literal["out", "in_", "both"]
    fanout: int
    by: Literal["random", "top_k", "weighted"]
    edge_type: int | None = None
    ttl: int = 0


def _mix(x: int) -> int:
    """The finaliser of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def ranks(hop: HopRule, number: int, seed: int, edges: EdgeTable) -> list[tuple[float, int]]:
    """(rank, tie) of each edge at hop `number` (from 1); the smallest are sampled first."""
    salt = _mix(seed ^ _mix(number))
    found: list[tuple[float, int]] = []
    for edge_id, weight, time in zip(edges.ids.tolist(), edges.weight.tolist(), edges.time.tolist(), strict=True):
        if hop.by == "top_k":
            found.append((-time, -edge_id))
            continue
        h = _mix(salt ^ edge_id)
        if hop.by == "random":
            found.append((h, edge_id))
        else:
            u = ((h >> 11) + 1) * 2.0**-53
            found.append((-float(np.log(u)) / weight if weight > 0 else float("inf"), edge_id))
    return found


def draw(hop: HopRule, number: int, seed: int, edges: EdgeTable, v: int, now: int, undirected: bool) -> list[int]:
    """Places in `edges` of the sample of v, in order."""
    leaves, enters = edges.src == v, edges.dst == v
    if undirected or hop.direction == "both":
        mine = leaves | enters
    else:
        mine = leaves if hop.direction == "out" else enters
    if hop.edge_type is not None:
        mine &= edges.edge_type == hop.edge_type
    if hop.ttl:
        mine &= edges.time > now - hop.ttl
    if hop.by == "weighted":
        mine &= edges.weight > 0
    places = np.flatnonzero(mine)
    order = ranks(hop, number, seed, edges.at(places))
    return [int(places[i]) for i in sorted(range(len(places)), key=order.__getitem__)[: hop.fanout]]


def sample_tree(
    hops: list[HopRule], seed: int, edges: EdgeTable, seeds: AnyArray, now: int = 0, undirected: bool = False
) -> tuple[list[Int64Array], list[Int64Array]]:
    """Vertices and edge ids of each hop, (B, C1, ..., Ck) int64, -1 where there are fewer."""
    parents = np.asarray(seeds, np.int64)
    vertices, ids = [], []
    for number, hop in enumerate(hops, start=1):
        found = np.full((*parents.shape, hop.fanout), -1, np.int64)
        by = found.copy()
        for place, v in np.ndenumerate(parents):
            for i, edge in enumerate(draw(hop, number, seed, edges, int(v), now, undirected) if v >= 0 else []):
                found[(*place, i)] = edges.dst[edge] if edges.src[edge] == v else edges.src[edge]
                by[(*place, i)] = edges.ids[edge]
        vertices.append(found)
        ids.append(by)
        parents = found
    return vertices, ids
