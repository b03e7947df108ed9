"""Graph against a dict and a list, over random streams of every kind of update.

After every batch the graph equals the model; a batch with one bad update leaves everything as it was; the same updates
applied one by one to a second graph give the same content and the same edge ids; and blocks are tiny, so that they
split and merge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from livegnn.errors import LiveGnnError, UpdateError
from livegnn.graph import Graph, Updates
from tests.unit.graph.model import Edge, GraphModel, row_of

WIDTH = 2
FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.25, 1e-8, 1e30])
ROWS = st.lists(FLOATS, min_size=WIDTH, max_size=WIDTH)
TIMES = st.integers(-3, 12)
Update = tuple[str, dict[str, Any]]


class SmallBlocks(Graph):
    _block_edges_max = 4


def column(edges: list[dict[str, Any]], name: str, dtype: Any) -> Any:
    return np.array([edge[name] for edge in edges], dtype)


class GraphMachine(RuleBasedStateMachine):
    """Draws a graph, then batches. Updates that the model refuses are tried alone and must be refused by the graph."""

    @initialize(data=st.data(), kind=st.sampled_from(["dense", "int", "text"]))
    def start(self, data: st.DataObject, kind: str) -> None:
        flags = {
            name: data.draw(st.booleans(), name) for name in ("weight", "time", "type", "attr", "undirected", "simple")
        }
        self.flags, self.kind = flags, kind
        self.columns = {
            "weight": FLOATS if flags["weight"] else None,
            "time": TIMES if flags["time"] else None,
            "edge_type": st.integers(0, 2) if flags["type"] else None,
            "edge_attr": ROWS if flags["attr"] else None,
        }
        count = data.draw(st.integers(1, 4), "vertices")
        self.pool = {"dense": list(range(9)), "int": [7, 3, 2**62, 0, 11, 5, 100], "text": list("abcdefg")}[kind]
        names = self.pool[:count]
        rows = data.draw(st.lists(ROWS, min_size=count, max_size=count), "features")
        edges: list[dict[str, Any]] = []
        for _ in range(data.draw(st.integers(0, 6), "edges")):
            edge = self.draw_edge(data, names)
            ends = {(e["u"], e["v"]) for e in edges} | (
                {(e["v"], e["u"]) for e in edges} if flags["undirected"] else set()
            )
            if not (flags["simple"] and (edge["u"], edge["v"]) in ends):
                edges.append(edge)
        self.build(names, rows, edges)

    def build(self, names: list[Any], rows: list[list[float]], edges: list[dict[str, Any]]) -> None:
        flags = self.flags
        arrays: dict[str, Any] = {}
        if flags["weight"]:
            arrays["weight"] = column(edges, "weight", np.float32)
        if flags["time"]:
            arrays["time"] = column(edges, "time", np.int64)
        if flags["type"]:
            arrays["edge_type"] = column(edges, "edge_type", np.int64)
        if flags["attr"]:
            arrays["edge_attr"] = column(edges, "edge_attr", np.float32).reshape(len(edges), WIDTH)
        if self.kind != "dense":
            arrays["ids"] = names
        src, dst = [edge["u"] for edge in edges], [edge["v"] for edge in edges]
        options = {"undirected": flags["undirected"], "simple": flags["simple"]}
        self.graph, self.twin = (SmallBlocks(np.array(rows), src, dst, **arrays, **options) for _ in range(2))
        kept = [
            Edge(
                i,
                edge["u"],
                edge["v"],
                float(np.float32(edge["weight"])) if flags["weight"] else None,
                edge.get("time"),
                edge.get("edge_type"),
                row_of(edge["edge_attr"]) if flags["attr"] else None,
            )
            for i, edge in enumerate(edges)
        ]
        self.model = GraphModel(
            {name: row_of(row) for name, row in zip(names, rows, strict=True)},
            kept,
            width=WIDTH,
            weight=flags["weight"],
            time=flags["time"],
            type=flags["type"],
            attr_width=WIDTH if flags["attr"] else 0,
            undirected=flags["undirected"],
            simple=flags["simple"],
            external=self.kind != "dense",
        )

    # ---- drawing updates

    def draw_edge(self, data: st.DataObject, names: list[Any]) -> dict[str, Any]:
        edge = {"u": data.draw(st.sampled_from(names)), "v": data.draw(st.sampled_from(names))}
        edge.update({name: data.draw(values) for name, values in self.columns.items() if values is not None})
        return edge

    def draw_ends(self, data: st.DataObject, model: GraphModel) -> dict[str, Any]:
        """Ends of a live edge more often than not, so that deletions are as common as additions."""
        if model.edges and data.draw(st.integers(0, 4)):
            edge = data.draw(st.sampled_from(model.edges))
            turn = model.undirected and data.draw(st.booleans())
            return {"u": edge.v, "v": edge.u} if turn else {"u": edge.u, "v": edge.v}
        return {"u": data.draw(st.sampled_from(self.pool)), "v": data.draw(st.sampled_from(self.pool))}

    def draw_update(self, data: st.DataObject, model: GraphModel) -> Update:
        live = sorted(model.features)
        names = live or self.pool
        kind = data.draw(
            st.sampled_from(["add", "add", "remove", "remove", "before", "weight", "attr", "x", "in", "out"])
        )
        if kind == "add":
            return "add_edge", self.draw_edge(data, names)
        if kind == "remove":
            arguments = self.draw_ends(data, model)
            if data.draw(st.booleans()):
                arguments["missing"] = "ignore"
            if self.flags["time"] and not data.draw(st.integers(0, 3)):
                arguments["time"] = data.draw(TIMES)
            if self.flags["type"] and not data.draw(st.integers(0, 3)):
                arguments["edge_type"] = data.draw(st.integers(0, 2))
            if not data.draw(st.integers(0, 3)):
                arguments["edge_id"] = data.draw(st.integers(0, model.next_edge_id + 1))
            return "remove_edge", arguments
        if kind == "before":
            return "remove_edges_before", {"time": data.draw(st.integers(-3, 4))}
        if kind == "weight":
            return "set_weight", {**self.draw_ends(data, model), "w": data.draw(FLOATS)}
        if kind == "attr":
            return "set_edge_attr", {**self.draw_ends(data, model), "attr": data.draw(ROWS)}
        if kind == "x":
            return "set_features", {"u": data.draw(st.sampled_from(self.pool)), "x": data.draw(ROWS)}
        if kind == "in":
            return "add_vertex", {"u": data.draw(st.sampled_from(self.pool)), "x": data.draw(ROWS)}
        return "remove_vertex", {"u": data.draw(st.sampled_from(names))}

    # ---- rules

    @rule(data=st.data(), size=st.integers(1, 12))
    def apply_batch(self, data: st.DataObject, size: int) -> None:
        """Good updates go in as one batch, and into the twin one by one; a bad one drawn on the way spoils a trial."""
        scratch = self.copy_model()
        batch: list[Update] = []
        for _ in range(size):
            update = self.draw_update(data, scratch)
            try:
                scratch.apply([update])
            except UpdateError as refused:
                self.refuse([*batch, update], refused)
                continue
            batch.append(update)
        self.graph.apply(fill(batch))
        for update in batch:
            self.twin.apply(fill([update]))
        self.model.apply(batch)

    @rule(data=st.data(), size=st.integers(1, 6))
    def apply_arrays(self, data: st.DataObject, size: int) -> None:
        """The array forms of addition and removal."""
        names = sorted(self.model.features)
        if not names or self.flags["simple"]:
            return
        edges = [self.draw_edge(data, names) for _ in range(size)]
        columns = {name: column(edges, name, None) for name, values in self.columns.items() if values is not None}
        src, dst = [edge["u"] for edge in edges], [edge["v"] for edge in edges]
        gone = data.draw(st.integers(0, size))
        for graph in (self.graph, self.twin):
            updates = Updates()
            updates.add_edges(src, dst, **columns)
            updates.remove_edges(src[:gone], dst[:gone])
            graph.apply(updates)
        removals = [("remove_edge", {"u": u, "v": v}) for u, v in zip(src[:gone], dst[:gone], strict=True)]
        self.model.apply([("add_edge", edge) for edge in edges] + removals)

    @rule()
    def compact(self) -> None:
        self.graph.compact()

    @rule()
    def save_and_load(self) -> None:
        self.graph = SmallBlocks.from_arrays(self.graph.to_arrays())

    @precondition(lambda self: self.model.edges)
    @rule()
    def undo_by_opposites(self) -> None:
        """An edge added and removed in one batch leaves the content as it was and uses up an id."""
        edge = self.model.edges[0]
        if self.model.simple:
            return
        values = {"weight": edge.weight, "time": edge.time, "edge_type": edge.type, "edge_attr": edge.attr}
        batch: list[Update] = [
            ("add_edge", {"u": edge.u, "v": edge.v, **values}),
            ("remove_edge", {"u": edge.u, "v": edge.v}),
        ]
        before = self.graph.digest()
        self.graph.apply(fill(batch))
        assert self.graph.digest() == before
        self.twin.apply(fill(batch))
        self.model.apply(batch)

    # ---- what must hold

    @invariant()
    def graph_equals_model(self) -> None:
        if not hasattr(self, "graph"):
            return
        assert contents(self.graph) == expected(self.model)
        assert self.graph.vertex_count == len(self.model.features)
        assert self.graph.edge_count == len(self.model.edges)
        for vertex in self.model.features:
            assert sorted(self.graph.in_neighbours(vertex)["src"].tolist()) == self.model.in_neighbours(vertex)
            assert sorted(self.graph.out_neighbours(vertex)["dst"].tolist()) == self.model.out_neighbours(vertex)
        for vertex in set(self.pool) - set(self.model.features):
            assert vertex not in self.graph
            with pytest.raises(LiveGnnError):
                self.graph.features([vertex])
        self.graph.host.store.check_invariants()

    @invariant()
    def batching_does_not_matter(self) -> None:
        if hasattr(self, "graph"):
            assert self.graph.digest() == self.twin.digest()
            assert self.graph.edges()["id"].tolist() == self.twin.edges()["id"].tolist()
            live = sorted(self.model.features)
            assert self.graph.to_slots(live).tolist() == self.twin.to_slots(live).tolist()

    # ---- helpers

    def refuse(self, batch: list[Update], refused: UpdateError) -> None:
        before = self.graph.digest(), contents(self.graph), self.graph.version, self.graph.slot_count
        with pytest.raises(type(refused)):
            self.graph.apply(fill(batch))
        assert (self.graph.digest(), contents(self.graph), self.graph.version, self.graph.slot_count) == before

    def copy_model(self) -> GraphModel:
        scratch = GraphModel.__new__(GraphModel)
        scratch.__dict__ = {**self.model.__dict__}
        scratch.features = dict(self.model.features)
        scratch.edges = [Edge(**edge.__dict__) for edge in self.model.edges]
        return scratch


def fill(batch: list[Update]) -> Updates:
    updates = Updates()
    for name, arguments in batch:
        getattr(updates, name)(**arguments)
    return updates


def contents(graph: Graph) -> Any:
    edges = graph.edges()
    names = {"weight": "weight", "time": "time", "type": "type", "attr": "attr"}
    rows = []
    for i, edge_id in enumerate(edges["id"].tolist()):
        values = [edges[name][i].tolist() if name in edges else None for name in names]
        ends = [edges["src"][i], edges["dst"][i]]
        rows.append((edge_id, *(sorted(ends) if graph.undirected else ends), *values))
    vertices = graph.vertices().tolist()
    return dict(zip(vertices, map(tuple, graph.features(graph.vertices()).tolist()), strict=True)), rows


def expected(model: GraphModel) -> Any:
    rows = []
    for edge in sorted(model.edges, key=lambda edge: edge.id):
        ends = sorted((edge.u, edge.v)) if model.undirected else [edge.u, edge.v]
        rows.append((edge.id, *ends, edge.weight, edge.time, edge.type, None if edge.attr is None else list(edge.attr)))
    return model.features, rows


GraphMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGraphMachine = GraphMachine.TestCase
