"""Random histories of a graph with a ttl, and the edges that must be left: one update after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegnn as lg

Triple = tuple[str, str, str]
TRIPLES: list[Triple] = [("User", "buys", "Item"), ("Item", "liked by", "User"), ("User", "follows", "User")]
TYPED_TTL: dict[Any, int] = {TRIPLES[0]: 12, "follows": 30}  # likes stay
PLAIN_TTL = 20
WIDTH = 4


@dataclass(frozen=True)
class Kind:
    """What the graph is like."""

    typed: bool = False
    simple: bool = False
    undirected: bool = False

    def ttl_of(self, triple: Triple | None) -> int | None:
        if not self.typed:
            return PLAIN_TTL
        return TYPED_TTL.get(triple, TYPED_TTL.get(triple[1])) if triple else None


@dataclass
class Edge:
    triple: Triple | None
    u: Any
    v: Any
    time: int
    weight: float


@dataclass
class Op:
    """A call of a method of Updates, and the edges that leave by it before and after: what a twin removes by id."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    before: dict[int, Edge] = field(default_factory=dict)
    after: dict[int, Edge] = field(default_factory=dict)


@dataclass
class History:
    """Draws legal updates, and keeps the edges that must be there after each."""

    kind: Kind
    rng: np.random.Generator
    edges: dict[int, Edge] = field(default_factory=dict)
    next_edge: int = 0
    now: int | None = None
    clock: int = 100  # around which times are drawn

    @property
    def triples(self) -> list[Triple | None]:
        return list(TRIPLES) if self.kind.typed else [None]

    def ids(self, name: str) -> list[Any]:
        return [f"{name}{i}" for i in range(7)] if self.kind.typed else list(range(8))

    def graph(self, ttl: bool) -> lg.Graph:
        """A graph without edges."""
        rng, options = np.random.default_rng(5), {"simple": self.kind.simple, "undirected": self.kind.undirected}
        if not self.kind.typed:
            rows = rng.standard_normal((8, WIDTH)).astype(np.float32)
            none = np.zeros(0, np.int64)
            return lg.Graph(
                rows, none, none, weight=np.zeros(0, np.float32), time=none, ttl=PLAIN_TTL if ttl else None, **options
            )
        names = {name: self.ids(name) for name in ("User", "Item")}
        features = {name: rng.standard_normal((7, WIDTH)).astype(np.float32) for name in names}
        empty: Any = {triple: np.zeros(0, np.int64) for triple in TRIPLES}
        ends: Any = {triple: [] for triple in TRIPLES}
        return lg.Graph(
            features,
            ends,
            ends,
            weight={triple: np.zeros(0, np.float32) for triple in TRIPLES},
            time=empty,
            ids=names,
            ttl=TYPED_TTL if ttl else None,
            **options,
        )

    # ---- the definition

    def expire(self) -> dict[int, Edge]:
        """Takes out what has expired."""
        now = self.now
        gone = {}
        for id, edge in self.edges.items():
            ttl = self.kind.ttl_of(edge.triple)
            if ttl is not None and now is not None and edge.time <= now - ttl:
                gone[id] = edge
        for id in gone:
            del self.edges[id]
        return gone

    def joins(self, edge: Edge, triple: Triple | None, u: Any, v: Any) -> bool:
        ends = (edge.u, edge.v)
        return edge.triple == triple and (ends == (u, v) or (self.kind.undirected and ends == (v, u)))

    def newest(self, triple: Triple | None, u: Any, v: Any) -> int | None:
        found = [id for id, edge in self.edges.items() if self.joins(edge, triple, u, v)]
        return max(found, default=None)

    # ---- drawing

    def op(self) -> Op:
        kind = self.rng.choice(
            ["add", "remove", "weight", "features", "before", "again"], p=[0.55, 0.2, 0.1, 0.1, 0.03, 0.02]
        )
        if kind == "weight" and not self.edges:
            kind = "add"
        made: Op = getattr(self, f"_{kind}")()
        return made

    def _typed(self, triple: Triple | None) -> dict[str, Any]:
        if triple is None:
            return {}
        return {"edge_type": triple if self.rng.integers(2) else triple[1]}

    def _pair(self) -> tuple[Triple | None, Any, Any]:
        triple = self.triples[int(self.rng.integers(len(self.triples)))]
        ends = (triple[0], triple[2]) if triple else ("", "")
        u, v = (self.ids(name)[int(self.rng.integers(7))] for name in ends)
        return triple, u, v

    def _add(self) -> Op:
        triple, u, v = self._pair()
        self.clock += int(self.rng.integers(0, 3))
        late = int(self.rng.integers(0, 45)) if self.rng.integers(4) == 0 else 0
        time, weight = self.clock - late, float(np.float32(self.rng.uniform(0.1, 2)))
        now, self.now = self.now, time if self.now is None else max(self.now, time)
        before = self.expire()
        if self.kind.simple and self.newest(triple, u, v) is not None:
            self.edges.update(before)
            self.now = now
            return self._features()
        self.edges[self.next_edge] = Edge(triple, u, v, time, weight)
        self.next_edge += 1
        return Op("add_edge", (u, v), {"time": time, "weight": weight, **self._typed(triple)}, before, self.expire())

    def _remove(self) -> Op:
        triple, u, v = self._pair()
        if self.edges and self.rng.integers(3):
            edge = list(self.edges.values())[int(self.rng.integers(len(self.edges)))]
            triple, u, v = edge.triple, edge.u, edge.v
        found = self.newest(triple, u, v)
        options: dict[str, Any] = {"missing": "ignore"} if found is None or self.rng.integers(2) else {}
        if self.rng.integers(3) == 0 and self.next_edge:  # by id, perhaps of one that has expired
            id = int(self.rng.integers(self.next_edge))
            found = id if id in self.edges and self.joins(self.edges[id], triple, u, v) else None
            options = {"missing": "ignore", "edge_id": id}
        if found is not None:
            del self.edges[found]
        return Op("remove_edge", (u, v), {**options, **self._typed(triple)})

    def _weight(self) -> Op:
        edge = list(self.edges.values())[int(self.rng.integers(len(self.edges)))]
        id = self.newest(edge.triple, edge.u, edge.v)
        assert id is not None
        weight = float(np.float32(self.rng.uniform(0.1, 2)))
        self.edges[id].weight = weight
        return Op("set_weight", (edge.u, edge.v, weight), self._typed(edge.triple))

    def _features(self) -> Op:
        kind = {"vertex_type": "User"} if self.kind.typed else {}
        vertex = self.ids("User")[int(self.rng.integers(7))]
        return Op("set_features", (vertex, self.rng.standard_normal(WIDTH).astype(np.float32)), kind)

    def _before(self) -> Op:
        time = self.clock - int(self.rng.integers(1, 30))
        triple = self.triples[int(self.rng.integers(len(self.triples)))] if self.rng.integers(2) else None
        self.edges = {
            id: edge
            for id, edge in self.edges.items()
            if edge.time >= time or (triple is not None and edge.triple != triple)
        }
        return Op("remove_edges_before", (time,), self._typed(triple))

    def _again(self) -> Op:
        """A vertex loses its edges: those that name it next come from others."""
        kind = {"vertex_type": "User"} if self.kind.typed else {}
        vertex = self.ids("User")[int(self.rng.integers(7))]
        gone = [
            id
            for id, e in self.edges.items()
            if (e.u == vertex and (e.triple is None or e.triple[0] == "User"))
            or (e.v == vertex and (e.triple is None or e.triple[2] == "User"))
        ]
        for id in gone:
            del self.edges[id]
        return Op("replace_vertex", (vertex, self.rng.standard_normal(WIDTH).astype(np.float32)), kind)


def write(op: Op, updates: lg.Updates) -> None:
    """The op itself: expiry is the graph's."""
    if op.name == "replace_vertex":
        updates.remove_vertex(op.args[0], **op.options)
        updates.add_vertex(*op.args, **op.options)
        return
    getattr(updates, op.name)(*op.args, **op.options)


def write_for_twin(op: Op, updates: lg.Updates) -> None:
    """The op, and each edge that expires by it as a removal of its own."""
    for gone, then in ((op.before, True), (op.after, False)):
        for id, edge in gone.items():
            typed = {} if edge.triple is None else {"edge_type": edge.triple}
            updates.remove_edge(edge.u, edge.v, edge_id=id, **typed)
        if then:
            write(op, updates)


def cut(rng: np.random.Generator, ops: list[Op], longest: int) -> list[list[Op]]:
    """The ops in batches of any length."""
    batches, at = [], 0
    while at < len(ops):
        size = int(rng.integers(1, longest + 1))
        batches.append(ops[at : at + size])
        at += size
    return batches


def batch_of(ops: list[Op], *, twin: bool = False) -> lg.Updates:
    """One Updates."""
    updates = lg.Updates()
    for op in ops:
        (write_for_twin if twin else write)(op, updates)
    return updates


def check_edges(graph: lg.Graph, history: History) -> None:
    """The graph holds the edges of the history, under their ids."""
    found = graph.edges()
    graph.host.store.check_invariants()
    got = {
        id: (frozenset((u, v)) if history.kind.undirected else (u, v), time, np.float32(weight))
        for id, u, v, time, weight in zip(
            found["id"].tolist(),
            found["src"].tolist(),
            found["dst"].tolist(),
            found["time"].tolist(),
            found["weight"],
            strict=True,
        )
    }
    expected = {
        id: (frozenset((e.u, e.v)) if history.kind.undirected else (e.u, e.v), e.time, np.float32(e.weight))
        for id, e in history.edges.items()
    }
    assert got == expected
    assert graph.host.store.next_edge_id == history.next_edge
    if graph.ttl is not None:
        assert graph.now == history.now
