"""A graph with types against a dict of vertices and a list of edges, over random streams of every kind of update.

After every batch the graph equals the model; a batch with one bad update leaves everything as it was, types of slots
included; the same updates applied one by one to a second graph give the same content, edge ids and slots. The graph
translates ids by arrays, as large batches are, the second one without.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from livegnn.errors import (
    ColumnMissing,
    EdgeMissing,
    LiveGnnError,
    UpdateError,
    VertexExists,
    VertexIdGap,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates

WIDTHS = {"A": 2, "B": 1, "C": 0}
DIRECTED = (("A", "to", "B"), ("B", "back", "A"), ("A", "peer", "A"), ("C", "tag", "B"), ("C", "peer", "C"))
UNDIRECTED = (("A", "peer", "A"), ("B", "like", "B"), ("C", "peer", "C"))
NAMES = {
    "counted": {kind: list(range(6)) for kind in WIDTHS},
    "int": {"A": [7, 2**62, 0, 11, 5], "B": list(range(6)), "C": [3, 7, 8]},
    "text": {"A": list("abcde"), "B": list("abxy"), "C": ["", "a", "ü"]},
}
COUNTED = {"counted": {"A", "B", "C"}, "int": {"B"}, "text": set()}
FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-8])
Update = tuple[str, dict[str, Any]]


class SmallBlocks(Graph):
    _block_edges_max = 4


class Model:
    """Vertices {type: {id: row}}; edges [id, triple, u, v, weight] in order of id."""

    def __init__(self, counted: set[str], triples: tuple[tuple[str, str, str], ...], undirected: bool) -> None:
        self.rows: dict[str, dict[Any, list[float]]] = {kind: {} for kind in WIDTHS}
        self.counts = dict.fromkeys(counted, 0)
        self.edges: list[list[Any]] = []
        self.triples, self.undirected = triples, undirected
        self.next_edge_id = 0

    def apply(self, batch: list[Update]) -> None:
        before = copy.deepcopy(self.__dict__)
        try:
            for name, arguments in batch:
                getattr(self, name)(**arguments)
        except UpdateError:
            self.__dict__ = before
            raise

    def add_vertex(self, u: Any, x: list[float], vertex_type: str) -> None:
        if u in self.rows[vertex_type]:
            raise VertexExists
        if vertex_type in self.counts:
            if u > self.counts[vertex_type]:
                raise VertexIdGap
            self.counts[vertex_type] = max(self.counts[vertex_type], u + 1)
        self.set_row(u, x, vertex_type)

    def set_features(self, u: Any, x: list[float], vertex_type: str) -> None:
        self.check(vertex_type, u)
        self.set_row(u, x, vertex_type)

    def set_row(self, u: Any, x: list[float], vertex_type: str) -> None:
        if len(x) != WIDTHS[vertex_type]:
            raise WidthMismatch
        self.rows[vertex_type][u] = [float(np.float32(value)) for value in x]

    def remove_vertex(self, u: Any, vertex_type: str) -> None:
        self.check(vertex_type, u)
        del self.rows[vertex_type][u]
        gone = (vertex_type, u)
        self.edges = [e for e in self.edges if gone not in ((e[1][0], e[2]), (e[1][2], e[3]))]

    def add_edge(self, u: Any, v: Any, edge_type: Any, weight: float | None = None) -> None:
        self.ends(edge_type, u, v)
        if weight is None:
            raise ColumnMissing
        self.edges.append([self.next_edge_id, edge_type, u, v, float(np.float32(weight))])
        self.next_edge_id += 1

    def remove_edge(self, u: Any, v: Any, edge_type: Any, missing: str = "error") -> None:
        found = self.found(edge_type, u, v)
        if found:
            self.edges.remove(found[-1])
        elif missing == "error":
            raise EdgeMissing

    def set_weight(self, u: Any, v: Any, w: float, edge_type: Any) -> None:
        found = self.found(edge_type, u, v)
        if not found:
            raise EdgeMissing
        found[-1][4] = float(np.float32(w))

    def found(self, edge_type: Any, u: Any, v: Any) -> list[list[Any]]:
        self.ends(edge_type, u, v)
        pairs = [(u, v), (v, u)] if self.undirected else [(u, v)]
        return [e for e in self.edges if e[1] == edge_type and (e[2], e[3]) in pairs]

    def ends(self, edge_type: Any, u: Any, v: Any) -> None:
        self.check(edge_type[0], u)
        self.check(edge_type[2], v)

    def check(self, kind: str, vertex: Any) -> None:
        if vertex not in self.rows[kind]:
            raise VertexUnknown


class TypedGraphMachine(RuleBasedStateMachine):
    """Draws a graph, then batches. Updates that the model refuses are tried alone and must be refused by the graph."""

    @initialize(data=st.data(), kind=st.sampled_from(["counted", "int", "text"]), undirected=st.booleans())
    def start(self, data: st.DataObject, kind: str, undirected: bool) -> None:
        self.pool, self.kind = NAMES[kind], kind
        self.model = Model(COUNTED[kind], UNDIRECTED if undirected else DIRECTED, undirected)
        for name, width in WIDTHS.items():
            for u in self.pool[name][: data.draw(st.integers(0, 3), name)]:
                self.model.add_vertex(u, data.draw(st.lists(FLOATS, min_size=width, max_size=width)), name)
        rows = self.model.rows
        for triple in self.model.triples:
            if rows[triple[0]] and rows[triple[2]]:
                for _ in range(data.draw(st.integers(0, 2))):
                    u, v = (data.draw(st.sampled_from(list(rows[each]))) for each in (triple[0], triple[2]))
                    self.model.add_edge(u, v, triple, data.draw(FLOATS))
        self.graph, self.twin = self.build(), self.build()
        self.graph.host.ids.small_max = 0

    def build(self) -> Graph:
        model, pool = self.model, {True: object, False: np.int64}[self.kind == "text"]
        of = {triple: [e for e in model.edges if e[1] == triple] for triple in model.triples}
        features = {
            name: np.array(list(rows.values()), np.float32).reshape(len(rows), WIDTHS[name])
            for name, rows in model.rows.items()
        }
        named = {name: np.array(list(model.rows[name]), pool) for name in WIDTHS if name not in model.counts}
        return SmallBlocks(
            features,
            {triple: np.array([e[2] for e in edges], pool) for triple, edges in of.items()},
            {triple: np.array([e[3] for e in edges], pool) for triple, edges in of.items()},
            weight={triple: np.array([e[4] for e in edges], np.float32) for triple, edges in of.items()},
            ids=named or None,
            undirected=model.undirected,
        )

    def draw_update(self, data: st.DataObject, model: Model) -> Update:
        kind = data.draw(st.sampled_from(["add", "add", "add", "remove", "remove", "weight", "x", "in", "in", "out"]))
        if kind in ("add", "remove", "weight"):
            triple = data.draw(st.sampled_from(model.triples))
            if kind != "add" and model.edges and data.draw(st.integers(0, 3)):
                _, triple, u, v, _ = data.draw(st.sampled_from(model.edges))
            else:
                u, v = (data.draw(st.sampled_from(self.pool[each])) for each in (triple[0], triple[2]))
            ends = {"u": u, "v": v, "edge_type": triple}
            if kind == "add":
                return "add_edge", {**ends, "weight": data.draw(st.none() | FLOATS)}
            if kind == "weight":
                return "set_weight", {**ends, "w": data.draw(FLOATS)}
            return "remove_edge", {**ends, "missing": data.draw(st.sampled_from(["error", "ignore"]))}
        name = data.draw(st.sampled_from(list(WIDTHS)))
        arguments: dict[str, Any] = {"u": data.draw(st.sampled_from(self.pool[name])), "vertex_type": name}
        if kind == "out":
            return "remove_vertex", arguments
        arguments["x"] = data.draw(st.lists(FLOATS, min_size=WIDTHS[name], max_size=WIDTHS[name]))
        if not data.draw(st.integers(0, 9)):
            arguments["x"] = [*arguments["x"], 1.0]
        return ("set_features" if kind == "x" else "add_vertex"), arguments

    @rule(data=st.data(), size=st.integers(1, 12))
    def apply_batch(self, data: st.DataObject, size: int) -> None:
        """Good updates go in as one batch, and into the twin one by one; a bad one drawn on the way spoils a trial."""
        scratch = copy.deepcopy(self.model)
        batch: list[Update] = []
        for _ in range(size):
            update = self.draw_update(data, scratch)
            try:
                scratch.apply([update])
            except UpdateError as refused:
                self.refuse([*batch, update], refused)
                continue
            batch.append(update)
        self.graph.apply(self.fill(batch))
        for update in batch:
            self.twin.apply(self.fill([update]))
        self.model = scratch

    @rule(data=st.data(), size=st.integers(1, 6))
    def apply_arrays(self, data: st.DataObject, size: int) -> None:
        """The array forms: one type for all, and codes."""
        model = self.model
        usable = [t for t in model.triples if model.rows[t[0]] and model.rows[t[2]]]
        if not usable:
            return
        drawn = [data.draw(st.sampled_from(usable)) for _ in range(size)]
        src, dst = ([data.draw(st.sampled_from(list(model.rows[triple[end]]))) for triple in drawn] for end in (0, 2))
        codes = np.array([model.triples.index(triple) for triple in drawn])
        one = usable[0]
        u, v = next(iter(model.rows[one[0]])), next(iter(model.rows[one[2]]))
        for graph in (self.graph, self.twin):
            updates = Updates()
            updates.add_edges(src, dst, weight=[1.0] * size, edge_type=codes)
            updates.add_edges([u, u], [v, v], weight=[2.0, 3.0], edge_type=one)
            updates.set_weights(src, dst, [4.0] * size, edge_type=codes)
            updates.remove_edges([u], [v], edge_type=one)
            updates.remove_edges(src[:1], dst[:1], edge_type=codes[:1])
            graph.apply(updates)
        model.apply(
            [
                ("add_edge", {"u": a, "v": b, "edge_type": t, "weight": 1.0})
                for a, b, t in zip(src, dst, drawn, strict=True)
            ]
        )
        model.apply([("add_edge", {"u": u, "v": v, "edge_type": one, "weight": w}) for w in (2.0, 3.0)])
        model.apply(
            [
                ("set_weight", {"u": a, "v": b, "edge_type": t, "w": 4.0})
                for a, b, t in zip(src, dst, drawn, strict=True)
            ]
        )
        model.apply([("remove_edge", {"u": u, "v": v, "edge_type": one})])
        model.apply([("remove_edge", {"u": src[0], "v": dst[0], "edge_type": drawn[0]})])

    @rule()
    def save_and_load(self) -> None:
        self.graph = SmallBlocks.from_arrays(self.graph.to_arrays())
        self.graph.host.ids.small_max = 0

    @invariant()
    def graph_equals_model(self) -> None:
        if not hasattr(self, "graph"):
            return
        self.graph.host.store.check_invariants()
        assert contents(self.graph) == expected(self.model)
        for name, rows in self.model.rows.items():
            live = self.graph.is_live(
                np.array(self.pool[name], object if self.kind == "text" else None), vertex_type=name
            )
            assert live.tolist() == [u in rows for u in self.pool[name]]
            assert all(((name, u) in self.graph) == (u in rows) for u in self.pool[name])
            names = list(rows)
            slots = self.graph.to_slots(names, vertex_type=name)
            assert self.graph.to_external(slots, vertex_type=name).tolist() == names
            assert set(self.graph.slot_types(slots).tolist()) <= {self.graph.vertex_types.index(name)}
            for u in set(self.pool[name]) - set(rows):
                with pytest.raises(LiveGnnError):
                    self.graph.features([u], vertex_type=name)

    @invariant()
    def batching_does_not_matter(self) -> None:
        if not hasattr(self, "graph"):
            return
        assert self.graph.digest() == self.twin.digest()
        assert self.graph.edges()["id"].tolist() == self.twin.edges()["id"].tolist()
        for name, rows in self.model.rows.items():
            ours, theirs = (g.to_slots(list(rows), vertex_type=name).tolist() for g in (self.graph, self.twin))
            assert ours == theirs

    def refuse(self, batch: list[Update], refused: UpdateError) -> None:
        def state() -> Any:
            types = self.graph.host.store.vertex_types().tolist()
            return self.graph.digest(), contents(self.graph), self.graph.version, self.graph.slot_count, types

        before = state()
        with pytest.raises(type(refused)):
            self.graph.apply(self.fill(batch))
        assert state() == before

    def fill(self, batch: list[Update]) -> Updates:
        """Types by name, by triple and by code in turn."""
        updates, triples = Updates(), self.model.triples
        for place, (name, arguments) in enumerate(batch):
            chosen = dict(arguments)
            if "edge_type" in chosen and place % 3 == 1:
                chosen["edge_type"] = triples.index(chosen["edge_type"])
            elif "edge_type" in chosen and place % 3 == 2 and sum(t[1] == chosen["edge_type"][1] for t in triples) == 1:
                chosen["edge_type"] = chosen["edge_type"][1]
            elif "vertex_type" in chosen and place % 2:
                chosen["vertex_type"] = list(WIDTHS).index(chosen["vertex_type"])
            getattr(updates, name)(**chosen)
        return updates


def contents(graph: Graph) -> Any:
    edges = graph.edges()
    columns = (edges[name].tolist() for name in ("id", "type", "src", "dst", "weight"))
    rows = [
        (i, code, *(sorted((u, v)) if graph.undirected else (u, v)), w)
        for i, code, u, v, w in zip(*columns, strict=True)
    ]
    vertices = {}
    for name in graph.vertex_types:
        ids = graph.vertices(name).tolist()
        vertices[name] = dict(zip(ids, graph.features(ids, vertex_type=name).tolist(), strict=True))
    return vertices, rows


def expected(model: Model) -> Any:
    rows = []
    for edge_id, triple, u, v, weight in model.edges:
        ends = sorted((u, v)) if model.undirected else (u, v)
        rows.append((edge_id, model.triples.index(triple), *ends, weight))
    return model.rows, rows


TypedGraphMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTypedGraphMachine = TypedGraphMachine.TestCase
