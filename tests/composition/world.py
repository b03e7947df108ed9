"""A small random graph with what a column of the table asks for, its stream of batches, and a mirror of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg

Triple = tuple[str, str, str]
PLAIN = ""  # the type of vertices that have none
WIDTHS = {PLAIN: 4, "User": 4, "Item": 3}
TTL = {False: 60, True: 150}  # of edges of the first edge type, with or without types, where edges expire; others stay
TRIPLES: dict[bool, list[Triple]] = {
    False: [(PLAIN, PLAIN, PLAIN)],
    True: [("User", "buys", "Item"), ("Item", "liked by", "User")],
}
ATTRIBUTES = 2


@dataclass(frozen=True)
class Setting:
    """A column: what the graph has, and what goes with the part.

    columns: weight, time and attributes on edges.   away: old edges go into a file on the way.   logged: with a log.
    expires: edges of the first edge type have a ttl.   swapped: with swaps and rescales.
    read: with a readout and edge scores.
    """

    typed: bool = False
    named: bool = False
    columns: bool = False
    away: bool = False
    half: bool = False
    expires: bool = False
    logged: bool = False
    swapped: bool = False
    read: bool = False

    @property
    def has_times(self) -> bool:
        return self.columns or self.away or self.expires


@dataclass
class Edge:
    triple: Triple
    src: Any
    dst: Any
    time: int
    weight: float
    attr: np.ndarray


@dataclass
class World:
    """The graph as it must be. Ids of a type are 0, 1, 2, ..., or strings where the setting names them."""

    setting: Setting
    rng: np.random.Generator
    rows: dict[str, dict[Any, np.ndarray]] = field(default_factory=dict)
    edges: dict[int, Edge] = field(default_factory=dict)
    next_edge: int = 0
    now: int = 0
    cut: int = -1  # edges before it are in a file

    def __post_init__(self) -> None:
        for name in self.types:
            self.rows[name] = {}
            for _ in range(10):
                self.new_vertex(name)
        for triple in self.triples:  # loading numbers edges type by type
            for _ in range(40):
                self.new_edge(triple)
        self.edges = dict(enumerate(self.edges.values()))  # a new graph is given what is alive
        self.next_edge = len(self.edges)

    @property
    def types(self) -> list[str]:
        return ["User", "Item"] if self.setting.typed else [PLAIN]

    @property
    def triples(self) -> list[Triple]:
        return TRIPLES[self.setting.typed]

    def new_row(self, name: str) -> np.ndarray:
        row = self.rng.standard_normal(WIDTHS[name]).astype(np.float32)
        return row.astype(np.float16).astype(np.float32) if self.setting.half else row

    def new_vertex(self, name: str) -> Any:
        number = 0
        while (vertex := f"{name}{number}" if self.setting.named else number) in self.rows[name]:
            number += 1
        self.rows[name][vertex] = self.new_row(name)
        return vertex

    def new_edge(self, triple: Triple) -> Edge:
        src = self.pick(triple[0])
        dst = self.pick(triple[2])
        self.now += int(self.rng.integers(1, 4))
        attr = self.rng.standard_normal(ATTRIBUTES).astype(np.float32)
        edge = Edge(triple, src, dst, self.now, float(np.float32(self.rng.uniform(0.1, 2))), attr)
        self.edges[self.next_edge] = edge
        self.next_edge += 1
        self.forget()
        return edge

    def forget(self) -> None:
        """What is not alive any more leaves."""
        if self.setting.expires:
            first = self.triples[0]
            self.edges = {
                e: x for e, x in self.edges.items() if x.triple != first or x.time > self.now - TTL[self.setting.typed]
            }

    def pick(self, name: str) -> Any:
        ids = list(self.rows[name])
        return ids[int(self.rng.integers(len(ids)))]

    # ---- the graph and its batches

    def graph(self) -> lg.Graph:
        """A graph of what is there now."""
        of = {triple: [e for e in self.edges.values() if e.triple == triple] for triple in self.triples}
        found: dict[str, Any] = {"src": {}, "dst": {}, "weight": {}, "time": {}, "edge_attr": {}}
        for triple, edges in of.items():
            found["src"][triple] = [e.src for e in edges]
            found["dst"][triple] = [e.dst for e in edges]
            found["weight"][triple] = np.array([e.weight for e in edges], np.float32)
            found["time"][triple] = np.array([e.time for e in edges], np.int64)
            found["edge_attr"][triple] = np.array([e.attr for e in edges], np.float32).reshape(-1, ATTRIBUTES)
        features: Any = {name: np.array(list(rows.values())) for name, rows in self.rows.items()}
        ids: Any = {name: list(rows) for name, rows in self.rows.items()}
        if self.setting.half:
            features = {name: rows.astype(np.float16) for name, rows in features.items()}
        if not self.setting.typed:
            found = {column: by[self.triples[0]] for column, by in found.items()}
            features, ids = features[PLAIN], ids[PLAIN]
        return lg.Graph(
            features,
            found["src"],
            found["dst"],
            weight=found["weight"] if self.setting.columns else None,
            time=found["time"] if self.setting.has_times else None,
            edge_attr=found["edge_attr"] if self.setting.columns else None,
            ids=ids if self.setting.named else None,
            ttl=self.ttl,
        )

    @property
    def ttl(self) -> Any:
        """As Graph takes it."""
        if not self.setting.expires:
            return None
        ttl = TTL[self.setting.typed]
        return {self.triples[0]: ttl} if self.setting.typed else ttl

    def batch(self, size: int = 12, updates: Any = None) -> lg.Updates:
        """Legal updates of every kind, in `updates` where given; the mirror follows."""
        updates = lg.Updates() if updates is None else updates
        while len(updates) < size:
            kind = self.rng.choice(
                ["add", "remove", "features", "column", "vertex", "gone"], p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]
            )
            getattr(self, f"_{kind}")(updates)
        return updates

    def _options(self, triple: Triple) -> dict[str, Any]:
        return {"edge_type": triple} if self.setting.typed else {}

    def _kind(self, name: str) -> dict[str, Any]:
        return {"vertex_type": name} if self.setting.typed else {}

    def _add(self, updates: lg.Updates) -> None:
        edge = self.new_edge(self.triples[int(self.rng.integers(len(self.triples)))])
        options = self._options(edge.triple)
        if self.setting.columns:
            options |= {"weight": edge.weight, "edge_attr": edge.attr}
        if self.setting.has_times:
            options["time"] = edge.time
        updates.add_edge(edge.src, edge.dst, **options)

    def _newest(self) -> tuple[int, Edge] | None:
        """An edge in memory that (src, dst) alone names."""
        there = [(e, edge) for e, edge in self.edges.items() if edge.time >= self.cut]
        if not there:
            return None
        _, edge = there[int(self.rng.integers(len(there)))]
        ends = (edge.triple, edge.src, edge.dst)
        newest = max(e for e, other in self.edges.items() if (other.triple, other.src, other.dst) == ends)
        return newest, self.edges[newest]

    def _remove(self, updates: lg.Updates) -> None:
        if (found := self._newest()) is not None:
            number, edge = found
            time = {"time": edge.time} if self.setting.away else {}
            updates.remove_edge(edge.src, edge.dst, **self._options(edge.triple), **time)
            del self.edges[number]

    def _features(self, updates: lg.Updates) -> None:
        name = self.types[int(self.rng.integers(len(self.types)))]
        vertex = self.pick(name)
        self.rows[name][vertex] = self.new_row(name)
        updates.set_features(vertex, self.rows[name][vertex], **self._kind(name))

    def _column(self, updates: lg.Updates) -> None:
        if self.setting.columns and (found := self._newest()) is not None:
            _, edge = found
            edge.weight = float(np.float32(self.rng.uniform(0.1, 2)))
            updates.set_weight(edge.src, edge.dst, edge.weight, **self._options(edge.triple))

    def _vertex(self, updates: lg.Updates) -> None:
        name = self.types[int(self.rng.integers(len(self.types)))]
        vertex = self.new_vertex(name)
        updates.add_vertex(vertex, self.rows[name][vertex], **self._kind(name))

    def _gone(self, updates: lg.Updates) -> None:
        name = self.types[int(self.rng.integers(len(self.types)))]
        if self.setting.away or len(self.rows[name]) < 5:
            return
        vertex = self.pick(name)
        updates.remove_vertex(vertex, **self._kind(name))
        del self.rows[name][vertex]
        self.edges = {
            e: edge
            for e, edge in self.edges.items()
            if (name, vertex) not in ((edge.triple[0], edge.src), (edge.triple[2], edge.dst))
        }

    def send_away(self, graph: lg.Graph, folder: Path) -> None:
        """The older half of the edges goes into a file."""
        self.cut = int(np.median([edge.time for edge in self.edges.values()]))
        graph.offload(self.cut, folder / f"before-{self.cut}.parquet")

    # ---- what a model is given

    def arrays(self) -> dict[str, dict[Any, Any]]:
        """x by type; edge_index, edge_weight and edge_attr by edge type, in places among the live vertices."""
        place = {name: {vertex: i for i, vertex in enumerate(rows)} for name, rows in self.rows.items()}
        found: dict[str, dict[Any, Any]] = {"x": {}, "edge_index": {}, "edge_weight": {}, "edge_attr": {}}
        for name, rows in self.rows.items():
            found["x"][name] = np.array(list(rows.values()), np.float64)
        for triple in self.triples:
            mine = [edge for _, edge in sorted(self.edges.items()) if edge.triple == triple]
            ends = [(place[triple[0]][e.src], place[triple[2]][e.dst]) for e in mine]
            found["edge_index"][triple] = np.array(ends, np.int64).reshape(-1, 2).T
            found["edge_weight"][triple] = np.array([e.weight for e in mine])
            found["edge_attr"][triple] = np.array([e.attr for e in mine], np.float64).reshape(-1, ATTRIBUTES)
        return found
