"""Random graphs and batches over vertex types, over a mirror: dicts of rows and edges that know what is legal next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.graph import Graph, Updates

__all__ = ["TypedMirror", "random_typed_batch", "random_typed_graph"]

Triple: TypeAlias = tuple[str, str, str]
Row: TypeAlias = NDArray[np.float32]


@dataclass
class TypedMirror:
    """What the graph must hold: feature rows by type and id, edges by id, and the next ids.

    widths: of the features by vertex type.   triples: the edge types.   counts: the next new id by vertex type.
    """

    widths: dict[str, int]
    triples: list[Triple]
    weighted: bool = False
    attr_width: int = 0
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    edges: dict[int, tuple[Triple, int, int, float, Row]] = field(default_factory=dict)
    next_edge: int = 0

    def newest(self, triple: Triple, u: int, v: int) -> int:
        """The edge that an update of (u, v) means."""
        return max(e for e, edge in self.edges.items() if edge[:3] == (triple, u, v))

    def ids(self, name: str) -> list[int]:
        """Live vertices of a type, ascending."""
        return sorted(self.rows[name])

    def features(self) -> dict[str, Row]:
        """Rows of the live vertices by type, in order of ids."""
        return {
            name: np.array([self.rows[name][v] for v in self.ids(name)], np.float32).reshape(-1, width)
            for name, width in self.widths.items()
        }

    def columns(self) -> dict[Triple, tuple[NDArray[Any], Row, Row]]:
        """(edge_index in places among the live vertices, weights, attributes) by edge type, in order of edge ids."""
        place = {name: {v: i for i, v in enumerate(self.ids(name))} for name in self.widths}
        found: dict[Triple, tuple[NDArray[Any], Row, Row]] = {}
        for triple in self.triples:
            mine = [edge for _, edge in sorted(self.edges.items()) if edge[0] == triple]
            pairs = [(place[triple[0]][u], place[triple[2]][v]) for _, u, v, _, _ in mine]
            found[triple] = (
                np.array(pairs, np.int64).reshape(-1, 2).T,
                np.array([edge[3] for edge in mine], np.float32),
                np.array([edge[4] for edge in mine], np.float32).reshape(len(mine), self.attr_width),
            )
        return found

    def remove_vertex(self, name: str, v: int) -> None:
        """Takes a vertex away with its edges."""
        del self.rows[name][v]
        self.edges = {
            e: edge for e, edge in self.edges.items() if (name, v) not in ((edge[0][0], edge[1]), (edge[0][2], edge[2]))
        }


def _row(rng: np.random.Generator, width: int) -> Row:
    return rng.standard_normal(width, dtype=np.float32)


def _edge(rng: np.random.Generator, mirror: TypedMirror) -> tuple[Triple, int, int, float, Row] | None:
    triple = mirror.triples[int(rng.integers(len(mirror.triples)))]
    ends = mirror.ids(triple[0]), mirror.ids(triple[2])
    if not all(ends):
        return None
    u, v = (int(rng.choice(ids)) for ids in ends)
    weight = float(np.float32(rng.random() * 2 + 0.01)) if mirror.weighted else 1.0
    return triple, u, v, weight, _row(rng, mirror.attr_width)


def random_typed_graph(
    rng: np.random.Generator,
    widths: dict[str, int],
    triples: list[Triple],
    *,
    weighted: bool = False,
    attr_width: int = 0,
) -> tuple[Graph, TypedMirror]:
    """A small graph with self-loops, parallel edges and isolated vertices, and its mirror."""
    counts = {name: int(rng.integers(1, 8)) for name in widths}
    rows = {name: {v: _row(rng, widths[name]) for v in range(count)} for name, count in counts.items()}
    mirror = TypedMirror(widths, triples, weighted, attr_width, rows, counts)
    for _ in range(int(rng.integers(0, 40))):
        edge = _edge(rng, mirror)
        assert edge is not None
        mirror.edges[mirror.next_edge] = edge
        mirror.next_edge += 1
    found = mirror.columns()  # loading numbers edges type by type
    mirror.edges = dict(enumerate(sorted(mirror.edges.values(), key=lambda edge: triples.index(edge[0]))))
    graph = Graph(
        mirror.features(),
        {triple: found[triple][0][0] for triple in triples},
        {triple: found[triple][0][1] for triple in triples},
        weight={triple: found[triple][1] for triple in triples} if weighted else None,
        edge_attr={triple: found[triple][2] for triple in triples} if attr_width else None,
    )
    return graph, mirror


def random_typed_batch(rng: np.random.Generator, mirror: TypedMirror, size: int) -> Updates:
    """Legal updates of every kind, deletions as common as additions; the mirror follows.

    A removed vertex's slot is often taken by a new one of another type.
    """
    updates = Updates()
    while len(updates) < size:
        kind = rng.choice(
            ["add", "remove", "features", "column", "add_vertex", "remove_vertex"], p=[0.3, 0.25, 0.15, 0.1, 0.1, 0.1]
        )
        if kind == "add":
            _add_edge(rng, mirror, updates)
        elif kind in ("remove", "column"):
            _change_edge(rng, mirror, updates, remove=kind == "remove")
        else:
            _change_vertex(rng, mirror, updates, str(kind))
    return updates


def _add_edge(rng: np.random.Generator, mirror: TypedMirror, updates: Updates) -> None:
    edge = _edge(rng, mirror)
    if edge is None:
        return
    triple, u, v, weight, attribute = edge
    updates.add_edge(
        u,
        v,
        edge_type=triple,
        weight=weight if mirror.weighted else None,
        edge_attr=attribute if mirror.attr_width else None,
    )
    mirror.edges[mirror.next_edge] = edge
    mirror.next_edge += 1


def _change_edge(rng: np.random.Generator, mirror: TypedMirror, updates: Updates, *, remove: bool) -> None:
    if not mirror.edges:
        return
    triple, u, v, _, _ = list(mirror.edges.values())[int(rng.integers(len(mirror.edges)))]
    newest = mirror.newest(triple, u, v)
    weight, attribute = mirror.edges[newest][3:]
    if remove:
        updates.remove_edge(u, v, edge_type=triple)
        del mirror.edges[newest]
        return
    if mirror.weighted:
        weight = float(np.float32(rng.random() * 2 + 0.01))
        updates.set_weight(u, v, weight, edge_type=triple)
    elif mirror.attr_width:
        attribute = _row(rng, mirror.attr_width)
        updates.set_edge_attr(u, v, attribute, edge_type=triple)
    mirror.edges[newest] = (triple, u, v, weight, attribute)


def _change_vertex(rng: np.random.Generator, mirror: TypedMirror, updates: Updates, kind: str) -> None:
    name = str(rng.choice(list(mirror.widths)))
    live = mirror.ids(name)
    if kind == "add_vertex":
        free = [v for v in range(mirror.counts[name]) if v not in mirror.rows[name]]
        v = int(rng.choice(free)) if free and rng.integers(2) else mirror.counts[name]
        mirror.counts[name] = max(mirror.counts[name], v + 1)
        mirror.rows[name][v] = _row(rng, mirror.widths[name])
        updates.add_vertex(v, mirror.rows[name][v], vertex_type=name)
    elif live and kind == "features":
        v = int(rng.choice(live))
        mirror.rows[name][v] = _row(rng, mirror.widths[name])
        updates.set_features(v, mirror.rows[name][v], vertex_type=name)
    elif live:
        v = int(rng.choice(live))
        updates.remove_vertex(v, vertex_type=name)
        mirror.remove_vertex(name, v)
