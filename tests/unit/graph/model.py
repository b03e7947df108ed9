"""A graph as one would write it on paper: a dict of vertices and a list of edges. Slow and obvious."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.errors import (
    ColumnMissing,
    EdgeDuplicate,
    EdgeMissing,
    VertexExists,
    VertexIdGap,
    VertexUnknown,
    WidthMismatch,
)

Row = tuple[float, ...]


def row_of(x: Any) -> Row:
    return tuple(float(value) for value in np.asarray(x, np.float32))


@dataclass
class Edge:
    id: int
    u: Any
    v: Any
    weight: float | None
    time: int | None
    type: int | None
    attr: Row | None

    def key(self, undirected: bool) -> tuple[Any, ...]:
        ends = tuple(sorted((self.u, self.v))) if undirected else (self.u, self.v)
        return (*ends, self.weight, self.time, self.type, self.attr)


class GraphModel:
    """Methods are named as those of livegnn.Updates; apply() takes (name, arguments) pairs and is all or none."""

    def __init__(
        self,
        features: dict[Any, Row],
        edges: list[Edge],
        *,
        width: int,
        weight: bool = False,
        time: bool = False,
        type: bool = False,
        attr_width: int = 0,
        undirected: bool = False,
        simple: bool = False,
        external: bool = False,
    ) -> None:
        self.features = dict(features)
        self.edges = list(edges)
        self.width, self.has_weight, self.has_time, self.has_type, self.attr_width = (
            width,
            weight,
            time,
            type,
            attr_width,
        )
        self.undirected, self.simple, self.external = undirected, simple, external
        self.slot_count = len(features)
        self.next_edge_id = len(edges)
        self.version = 0

    def apply(self, batch: list[tuple[str, dict[str, Any]]]) -> None:
        before = copy.deepcopy(self.__dict__)
        try:
            for name, arguments in batch:
                getattr(self, name)(**arguments)
        except Exception:
            self.__dict__ = before
            raise
        self.version += 1

    # ---- updates

    def add_edge(
        self, u: Any, v: Any, weight: Any = None, time: Any = None, edge_type: Any = None, edge_attr: Any = None
    ) -> None:
        self._check(u, v)
        for given, has in (
            (weight is not None, self.has_weight),
            (time is not None, self.has_time),
            (edge_type is not None, self.has_type),
            (edge_attr is not None, self.attr_width > 0),
        ):
            if given != has:
                raise ColumnMissing
        if edge_attr is not None and len(edge_attr) != self.attr_width:
            raise WidthMismatch
        if self.simple and self._matching(u, v):
            raise EdgeDuplicate
        weight = None if weight is None else float(np.float32(weight))
        attr = None if edge_attr is None else row_of(edge_attr)
        self.edges.append(Edge(self.next_edge_id, u, v, weight, time, edge_type, attr))
        self.next_edge_id += 1

    def remove_edge(
        self, u: Any, v: Any, time: Any = None, edge_type: Any = None, edge_id: Any = None, missing: str = "error"
    ) -> None:
        self._check(u, v)
        if (time is not None and not self.has_time) or (edge_type is not None and not self.has_type):
            raise ColumnMissing
        found = [
            edge
            for edge in self._matching(u, v)
            if (time is None or edge.time == time)
            and (edge_type is None or edge.type == edge_type)
            and (edge_id is None or edge.id == edge_id)
        ]
        if found:
            self.edges.remove(max(found, key=lambda edge: edge.id))
        elif missing == "error":
            raise EdgeMissing

    def remove_edges_before(self, time: int) -> None:
        if not self.has_time:
            raise ColumnMissing
        self.edges = [edge for edge in self.edges if edge.time is not None and edge.time >= time]

    def set_weight(self, u: Any, v: Any, w: float, edge_id: Any = None) -> None:
        self._check(u, v)
        if not self.has_weight:
            raise ColumnMissing
        self._newest(u, v, edge_id).weight = float(np.float32(w))

    def set_edge_attr(self, u: Any, v: Any, attr: Any, edge_id: Any = None) -> None:
        self._check(u, v)
        if not self.attr_width:
            raise ColumnMissing
        if len(attr) != self.attr_width:
            raise WidthMismatch
        self._newest(u, v, edge_id).attr = row_of(attr)

    def set_features(self, u: Any, x: Any) -> None:
        self._check(u)
        if len(x) != self.width:
            raise WidthMismatch
        self.features[u] = row_of(x)

    def add_vertex(self, u: Any, x: Any) -> None:
        if u in self.features:
            raise VertexExists
        if not self.external and u > self.slot_count:
            raise VertexIdGap
        if len(x) != self.width:
            raise WidthMismatch
        if not self.external:
            self.slot_count = max(self.slot_count, u + 1)
        self.features[u] = row_of(x)

    def remove_vertex(self, u: Any) -> None:
        self._check(u)
        del self.features[u]
        self.edges = [edge for edge in self.edges if u not in (edge.u, edge.v)]

    # ---- reading

    def in_neighbours(self, v: Any) -> list[Any]:
        into = [edge.u for edge in self.edges if edge.v == v]
        back = [edge.v for edge in self.edges if edge.u == v and edge.v != v] if self.undirected else []
        return sorted(into + back)

    def out_neighbours(self, u: Any) -> list[Any]:
        out = [edge.v for edge in self.edges if edge.u == u]
        back = [edge.u for edge in self.edges if edge.v == u and edge.u != u] if self.undirected else []
        return sorted(out + back)

    # ---- inside

    def _check(self, *vertices: Any) -> None:
        for vertex in vertices:
            if vertex not in self.features:
                raise VertexUnknown

    def _matching(self, u: Any, v: Any) -> list[Edge]:
        ends = {(u, v), (v, u)} if self.undirected else {(u, v)}
        return [edge for edge in self.edges if (edge.u, edge.v) in ends]

    def _newest(self, u: Any, v: Any, edge_id: Any) -> Edge:
        found = [edge for edge in self._matching(u, v) if edge_id is None or edge.id == edge_id]
        if not found:
            raise EdgeMissing
        return max(found, key=lambda edge: edge.id)
