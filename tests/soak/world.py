"""Random graphs and batches as arrays: what a graph must hold after millions of updates, kept apart from the graph.

Vertices are labels 0, 1, ...; their ids are the labels, or names of their own. Edges are rows in order of id, so of
parallel edges the newest is the last row. A batch is made of segments (so many edges added, removed, ...) in random
order; the world follows each segment at once, as the graph must.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.testing import Mirror

Rng = np.random.Generator


@dataclass(frozen=True)
class Shape:
    """What a graph is made of.

    names: None, "int" or "text".   times: whether edges have times.   kept: so many vertices never go.
    """

    width: int
    vertices: int = 300
    edges: int = 1500
    weighted: bool = False
    attr_width: int = 0
    types: int = 0
    times: bool = False
    undirected: bool = False
    simple: bool = False
    names: str | None = None
    feature_dtype: str = "float32"
    kept: int = 0


class Edges:
    """Columns of the edges, one row an edge, in order of id."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.src = self.dst = np.zeros(0, np.int64)
        self.columns: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.src)

    def random_columns(self, rng: Rng, count: int, now: int) -> dict[str, Any]:
        """Random values for the columns that the shape has."""
        found: dict[str, Any] = {}
        if self.shape.weighted:
            found["weight"] = (rng.random(count) * 2 + 0.01).astype(np.float32)
        if self.shape.attr_width:
            found["edge_attr"] = rng.standard_normal((count, self.shape.attr_width), dtype=np.float32)
        if self.shape.types:
            found["edge_type"] = rng.integers(0, self.shape.types, count, dtype=np.int32)
        if self.shape.times:
            found["time"] = np.maximum(now - rng.integers(0, 30, count), 0)
        return found

    def add(self, src: Any, dst: Any, columns: dict[str, Any]) -> None:
        """Rows at the end."""
        self.src, self.dst = np.concatenate([self.src, src]), np.concatenate([self.dst, dst])
        for name, values in columns.items():
            there = self.columns.get(name)
            self.columns[name] = values.copy() if there is None else np.concatenate([there, values])

    def keep(self, kept: Any) -> None:
        """Only these rows, given as booleans."""
        self.src, self.dst = self.src[kept], self.dst[kept]
        self.columns = {name: values[kept] for name, values in self.columns.items()}

    def keys(self, src: Any, dst: Any) -> Any:
        """One number for each pair of ends."""
        if self.shape.undirected:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        return src << 32 | dst

    def newest(self, keys: Any) -> Any:
        """Rows of the newest edges of these pairs: of a pair that is there twice, its two newest."""
        mine = self.keys(self.src, self.dst)
        order = np.argsort(mine, kind="stable")
        unique, counts = np.unique(keys, return_counts=True)
        ends = np.repeat(np.searchsorted(mine[order], unique, "right"), counts)
        back = np.arange(len(ends)) - np.repeat(np.cumsum(counts) - counts, counts)
        return order[ends - 1 - back]


class World:
    """Vertices with features, and edges between them."""

    def __init__(self, rng: Rng, shape: Shape) -> None:
        self.shape, self.now, self.fresh_names = shape, 100, 0
        self.alive = np.ones(shape.vertices, bool)
        self.rows = self.rounded(rng.standard_normal((shape.vertices, shape.width), dtype=np.float32))
        self.names = self._new_names(shape.vertices)
        self.edges = Edges(shape)
        src, dst = self._new_pairs(rng, shape.edges)
        self.edges.add(src, dst, self.edges.random_columns(rng, len(src), self.now))

    def copy(self) -> World:
        """Another one of the same content."""
        return copy.deepcopy(self)

    # ---- what it is

    def rounded(self, rows: Any) -> Any:
        """Feature rows as the graph stores them, to nearest even."""
        if self.shape.feature_dtype == "float16":
            return rows.astype(np.float16).astype(np.float32)
        if self.shape.feature_dtype == "bfloat16":
            bits = rows.view(np.uint32)
            return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
        return rows

    def labels(self) -> Any:
        """Of the live vertices, ascending."""
        return np.flatnonzero(self.alive)

    def ids(self, labels: Any) -> Any:
        """As the graph names them."""
        return labels if self.names is None else self.names[labels]

    def graph(self) -> lg.Graph:
        """A graph of this content, its vertices in the order of labels."""
        named = self.names is not None
        kept = self.labels() if named else np.arange(len(self.alive))
        columns = {name: values for name, values in self.edges.columns.items() if name != "time"}
        graph = lg.Graph(
            self.rows[kept],
            self.ids(self.edges.src),
            self.ids(self.edges.dst),
            time=self.edges.columns.get("time"),
            ids=self.names[kept] if self.names is not None else None,
            undirected=self.shape.undirected,
            simple=self.shape.simple,
            feature_dtype=self.shape.feature_dtype,
            **columns,
        )
        if not named and not self.alive.all():
            updates = lg.Updates()
            updates.remove_vertices(np.flatnonzero(~self.alive))
            graph.apply(updates)
        return graph

    def mirror(self) -> Mirror:
        """The same for livegnn.testing; of a directed graph."""
        shape, columns = self.shape, self.edges.columns
        count = len(self.edges)
        weight = columns.get("weight", np.ones(count)).tolist()
        ends = zip(self.edges.src.tolist(), self.edges.dst.tolist(), weight, strict=True)
        return Mirror(
            shape.width,
            shape.weighted,
            shape.attr_width,
            shape.types,
            {int(v): self.rows[v] for v in self.labels()},
            dict(enumerate(ends)),
            dict(enumerate(columns.get("edge_attr", []))),
            dict(enumerate(columns.get("edge_type", np.zeros(count, np.int32)).tolist())),
            len(self.alive),
            count,
        )

    # ---- what happens to it

    def batch(self, rng: Rng, size: int) -> lg.Updates:
        """About `size` legal updates of every kind, deletions as common as additions."""
        updates = lg.Updates()
        share = rng.dirichlet([3, 3, 1.5, 1]) * size
        sizes = [int(part) for part in share]
        few = 1 + size // 200
        parts: list[tuple[Any, int]] = [(self._add, sizes[0]), (self._remove, sizes[1])]
        parts += [(self._features, sizes[2]), (self._columns, sizes[3])]
        parts += [(self._vertices_come, int(rng.integers(0, few + 1))), (self._vertices_go, int(rng.integers(0, few)))]
        for place in rng.permutation(len(parts)):
            work, count = parts[place]
            if count or work is self._add:
                work(rng, updates, max(count, 1))
        self.now += 1
        return updates

    def expire(self, updates: lg.Updates, before: int) -> None:
        """Every edge older than that goes."""
        updates.remove_edges_before(before)
        self.edges.keep(self.edges.columns["time"] >= before)

    def _new_pairs(self, rng: Rng, count: int) -> tuple[Any, Any]:
        labels = self.labels()
        skewed = labels[np.minimum(rng.geometric(0.02, count) - 1, len(labels) - 1)]  # a few hubs
        ends = np.where(rng.random((2, count)) < 0.2, skewed, rng.choice(labels, (2, count)))
        if not self.shape.simple:
            return ends[0], ends[1]
        keys = self.edges.keys(ends[0], ends[1])
        _, first = np.unique(keys, return_index=True)
        first = first[~np.isin(keys[first], self.edges.keys(self.edges.src, self.edges.dst))]
        return ends[0][first], ends[1][first]

    def _add(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        count = max(1, min(count, 2 * self.shape.edges - len(self.edges)))
        src, dst = self._new_pairs(rng, count)
        if not len(src):
            return
        columns = self.edges.random_columns(rng, len(src), self.now)
        updates.add_edges(self.ids(src), self.ids(dst), **columns)
        self.edges.add(src, dst, columns)

    def _remove(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        count = min(count, max(0, len(self.edges) - self.shape.edges // 2))
        if not count:
            return
        rows = rng.choice(len(self.edges), count, replace=False)
        src, dst = self.edges.src[rows], self.edges.dst[rows]
        updates.remove_edges(self.ids(src), self.ids(dst))
        kept = np.ones(len(self.edges), bool)
        kept[self.edges.newest(self.edges.keys(src, dst))] = False
        self.edges.keep(kept)

    def _features(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        labels = rng.choice(self.labels(), min(count, int(self.alive.sum())), replace=False)
        rows = rng.standard_normal((len(labels), self.shape.width), dtype=np.float32)
        updates.set_features(self.ids(labels), rows)
        self.rows[labels] = self.rounded(rows)

    def _columns(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        """New weights, else new attributes."""
        if not len(self.edges) or not (self.shape.weighted or self.shape.attr_width):
            return
        rows = rng.integers(0, len(self.edges), count)
        keys, first = np.unique(self.edges.keys(self.edges.src[rows], self.edges.dst[rows]), return_index=True)
        src, dst = self.edges.src[rows[first]], self.edges.dst[rows[first]]
        newest = self.edges.newest(keys)
        values = self.edges.random_columns(rng, len(keys), self.now)
        if self.shape.weighted:
            updates.set_weights(self.ids(src), self.ids(dst), values["weight"])
            self.edges.columns["weight"][newest] = values["weight"]
            return
        for at, row in enumerate(newest[:50]):  # one call each
            u, v = self.ids(src[at : at + 1])[0], self.ids(dst[at : at + 1])[0]
            updates.set_edge_attr(u, v, values["edge_attr"][at])
            self.edges.columns["edge_attr"][row] = values["edge_attr"][at]

    def _vertices_come(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        """Under ids of vertices that have gone, where there are any, else under new ones."""
        free = np.flatnonzero(~self.alive)
        count = max(1, min(count, len(free) + 1))
        labels = np.concatenate([rng.permutation(free)[:count], len(self.alive) + np.arange(count - len(free))])
        new = max(0, count - len(free))
        rows = rng.standard_normal((count, self.shape.width), dtype=np.float32)
        self.alive = np.concatenate([self.alive, np.zeros(new, bool)])
        self.rows = np.concatenate([self.rows, np.zeros((new, self.shape.width), np.float32)])
        if self.names is not None:
            self.names = np.concatenate([self.names, self._new_names(new)])
            renamed = labels[: count - new][rng.random(count - new) < 0.5]
            self.names[renamed] = self._new_names(len(renamed))
        self.alive[labels], self.rows[labels] = True, self.rounded(rows)
        updates.add_vertices(self.ids(labels), rows)

    def _vertices_go(self, rng: Rng, updates: lg.Updates, count: int) -> None:
        live = self.labels()
        room = min(len(live) - self.shape.vertices // 2, len(live) - self.shape.kept)
        if room < 1:
            return
        labels = rng.choice(live[self.shape.kept :], min(count, room), replace=False)
        updates.remove_vertices(self.ids(labels))
        self.alive[labels] = False
        self.edges.keep(self.alive[self.edges.src] & self.alive[self.edges.dst])

    def _new_names(self, count: int) -> Any:
        if self.shape.names is None:
            return None
        numbers = np.arange(self.fresh_names, self.fresh_names + count)
        self.fresh_names += count
        if self.shape.names == "int":
            return 10**9 + 7 * numbers
        return np.array([f"vertex {number}" for number in numbers], object)
