"""Random graphs and batches over a mirror: a plain dict of edges and rows that knows what is legal next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.graph import Graph, Updates


@dataclass
class Mirror:
    """What the graph must hold: edges by id, feature rows by vertex, and the next ids."""

    width: int
    weighted: bool
    attr_width: int = 0
    types: int = 0  # how many; 0: edges have none
    rows: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    edges: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    attributes: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    kinds: dict[int, int] = field(default_factory=dict)
    slots: int = 0
    next_edge: int = 0

    def add_edge(self, u: int, v: int, w: float, attribute: NDArray[np.float32] | None = None, kind: int = 0) -> None:
        self.edges[self.next_edge] = (u, v, w)
        if attribute is not None:
            self.attributes[self.next_edge] = attribute
        self.kinds[self.next_edge] = kind
        self.next_edge += 1

    def newest(self, u: int, v: int) -> int:
        return max(e for e, (a, b, _) in self.edges.items() if (a, b) == (u, v))

    def remove_vertex(self, v: int) -> None:
        del self.rows[v]
        self.edges = {e: edge for e, edge in self.edges.items() if v not in edge[:2]}

    def arrays(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[np.float32] | None, NDArray[Any]]:
        """(features of all slots, src, dst, weight or None, live vertices); edges in order of id, zeros for removed
        vertices.
        """
        features = np.zeros((self.slots, self.width), np.float32)
        for v, row in self.rows.items():
            features[v] = row
        edges = [self.edges[e] for e in sorted(self.edges)]
        src = np.array([u for u, _, _ in edges], np.int64)
        dst = np.array([v for _, v, _ in edges], np.int64)
        weight = np.array([w for _, _, w in edges], np.float32) if self.weighted else None
        return features, src, dst, weight, np.array(sorted(self.rows), np.int64)

    def columns(self) -> tuple[NDArray[np.float32] | None, NDArray[np.int32] | None]:
        """(attributes (m, a), types (m,)) of the edges in order of id, None where they have none."""
        ids = sorted(self.edges)
        rows = np.array([self.attributes[e] for e in ids], np.float32) if self.attr_width else None
        kinds = np.array([self.kinds[e] for e in ids], np.int32) if self.types else None
        return None if rows is None else rows.reshape(len(ids), self.attr_width), kinds

    def copy(self) -> Mirror:
        held: dict[str, Any] = {name: dict(getattr(self, name)) for name in ("rows", "edges", "attributes", "kinds")}
        return replace(self, **held)


def _row(rng: np.random.Generator, width: int) -> NDArray[np.float32]:
    return rng.standard_normal(width, dtype=np.float32)


def _weight(rng: np.random.Generator) -> float:
    return float(np.float32(rng.random() * 2 + 0.01))


def random_graph(
    rng: np.random.Generator,
    width: int,
    weighted: bool,
    *,
    vertices: int | None = None,
    attr_width: int = 0,
    types: int = 0,
) -> tuple[Graph, Mirror]:
    """A small graph with self-loops, parallel edges and isolated vertices, and its mirror."""
    n = int(rng.integers(1, 30)) if vertices is None else vertices
    mirror = Mirror(width, weighted, attr_width, types, {v: _row(rng, width) for v in range(n)}, slots=n)
    for _ in range(int(rng.integers(0, 3 * n + 1))):
        u, v = int(rng.integers(n)), int(rng.integers(n))
        mirror.add_edge(u, v, _weight(rng) if weighted else 1.0, *_columns(rng, mirror))
    features, src, dst, weight, _ = mirror.arrays()
    attributes, kinds = mirror.columns()
    return Graph(features, src, dst, weight=weight, edge_attr=attributes, edge_type=kinds), mirror


def _columns(rng: np.random.Generator, mirror: Mirror) -> tuple[NDArray[np.float32] | None, int]:
    attribute = _row(rng, mirror.attr_width) if mirror.attr_width else None
    return attribute, int(rng.integers(mirror.types)) if mirror.types else 0


def random_batch(rng: np.random.Generator, mirror: Mirror, size: int) -> Updates:
    """Legal updates of every kind, deletions as common as additions; the mirror follows."""
    updates = Updates()
    while len(updates) < size:
        _random_update(rng, mirror, updates)
    return updates


def _random_update(rng: np.random.Generator, mirror: Mirror, updates: Updates) -> None:
    live, edges = sorted(mirror.rows), list(mirror.edges.values())
    kind = rng.choice(
        ["add", "remove", "features", "column", "add_vertex", "remove_vertex"], p=[0.3, 0.3, 0.15, 0.1, 0.08, 0.07]
    )
    if kind == "add" and live:
        u, v = (int(x) for x in rng.choice(live, 2))
        w = _weight(rng) if mirror.weighted else 1.0
        attribute, edge_type = _columns(rng, mirror)
        given = (w if mirror.weighted else None, edge_type if mirror.types else None)
        updates.add_edge(u, v, weight=given[0], edge_type=given[1], edge_attr=attribute)
        mirror.add_edge(u, v, w, attribute, edge_type)
    elif kind == "remove" and edges:
        u, v, _ = edges[rng.integers(len(edges))]
        updates.remove_edge(u, v)
        del mirror.edges[mirror.newest(u, v)]
    elif kind == "features" and live:
        u = int(rng.choice(live))
        mirror.rows[u] = _row(rng, mirror.width)
        updates.set_features(u, mirror.rows[u])
    elif kind == "column" and edges and mirror.weighted:
        u, v, _ = edges[rng.integers(len(edges))]
        w = _weight(rng)
        updates.set_weight(u, v, w)
        mirror.edges[mirror.newest(u, v)] = (u, v, w)
    elif kind == "column" and edges and mirror.attr_width:
        u, v, _ = edges[rng.integers(len(edges))]
        mirror.attributes[mirror.newest(u, v)] = row = _row(rng, mirror.attr_width)
        updates.set_edge_attr(u, v, row)
    elif kind == "add_vertex":
        free = [v for v in range(mirror.slots) if v not in mirror.rows]
        v = int(rng.choice(free)) if free and rng.integers(2) else mirror.slots
        mirror.slots = max(mirror.slots, v + 1)
        mirror.rows[v] = _row(rng, mirror.width)
        updates.add_vertex(v, mirror.rows[v])
    elif kind == "remove_vertex" and len(live) > 1:
        v = int(rng.choice(live))
        updates.remove_vertex(v)
        mirror.remove_vertex(v)
