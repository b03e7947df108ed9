"""An engine over vertex types against the reference, over random streams of updates in batches of any size.

The model has every way in which rows go along edges: sums with a vertex's own row folded in, means, extremes, degree
normalisation, split attention, and messages of several relations under one softmax. After every batch the state equals
a run from scratch bit for bit and the outputs equal the float64 truth; a batch that fails, or is only supposed, leaves
every bit as it was. Slots go from one type to another all the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import livegnn as lg
from livegnn.errors import UpdateError
from livegnn.models import ir
from livegnn.models.edges import ByRelation, Gather, HeadDot, Source, Target
from livegnn.reference.evaluate import evaluate
from livegnn.testing.oracle import check_rows

WIDTHS = {"A": 3, "B": 1, "C": 2}
TRIPLES = [("A", "to", "B"), ("B", "back", "A"), ("A", "peer", "A"), ("C", "tag", "A"), ("A", "name", "C")]
ENDS = [(src, dst) for src, _, dst in TRIPLES]
A, B, C = range(3)
TO, BACK, PEER, TAG, NAME = range(5)
FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -0.25])


def model() -> lg.Model:
    """Two layers over three types; weights from a fixed seed."""
    rng = np.random.default_rng(5)

    def linear(x: ir.Value, width: int, bias: bool = True) -> ir.Value:
        return ir.Linear(x, rng.standard_normal((width, x.width)), rng.standard_normal(width) if bias else None)

    x = ir.Input(3)
    a, b, c = (ir.OfType(x, code, width) for code, width in enumerate(WIDTHS.values()))
    own = ir.Combine(((1.0, ir.Propagate(linear(b, 4, False), relation=BACK, target=A)), (1.0, linear(a, 4))))
    peers = ir.Propagate(linear(a, 4, False), "gcn", self_loops=True, relation=PEER)
    tags = ir.Propagate(linear(c, 4), relation=TAG, target=A, reduce="max")
    h_a = ir.Activation(ir.Combine(((1.0, own), (1.0, peers), (0.5, tags))), "relu")
    h_b = ir.Activation(ir.Propagate(linear(a, 4), "mean", relation=TO, target=B), "tanh")
    score = ir.Combine(((1.0, Source(linear(a, 1))), (1.0, Target(linear(c, 1)))))
    h_c = Gather(Source(linear(a, 4)), "softmax", ir.Activation(score, "leaky_relu", 0.2), relation=NAME, target=C)
    query = Target(linear(h_a, 4))
    scores = tuple(HeadDot(query, Source(linear(h, 4)), 2) for h in (h_b, h_a, h_c))
    messages = tuple(Source(linear(h, 4)) for h in (h_b, h_a, h_c))
    relations = (BACK, PEER, TAG)
    attended = Gather(
        ByRelation(messages, relations), "softmax", ByRelation(scores, relations), 2, relation=relations, target=A
    )
    y_b = ir.Propagate(linear(h_a, 2), relation=TO, target=B, reduce="min")
    y = ir.ByType((ir.Concat((attended, h_a)), y_b, linear(h_c, 3)))
    return lg.Model.from_output(y, vertex_types=list(WIDTHS), edge_types=TRIPLES)


class Machine(RuleBasedStateMachine):
    """Updates are collected and applied as one batch, or supposed, or broken."""

    @initialize(
        counts=st.tuples(*(st.integers(0, 3),) * 3),
        path=st.sampled_from(["auto", "push", "pull", "sweep"]),
        turned=st.booleans(),
    )
    def start(self, counts: tuple[int, ...], path: str, turned: bool) -> None:
        order = list(WIDTHS)[:: -1 if turned else 1]  # the graph's numbers need not be the model's
        triples = TRIPLES[:: -1 if turned else 1]
        self.rows: dict[str, dict[int, list[float]]] = {
            name: {v: [1.0 + v] * WIDTHS[name] for v in range(count)} for name, count in zip(order, counts, strict=True)
        }
        self.next_id = {name: len(rows) for name, rows in self.rows.items()}
        self.edges: list[tuple[int, int, int]] = []
        features = {
            name: np.array(list(rows.values()), np.float32).reshape(-1, WIDTHS[name])
            for name, rows in self.rows.items()
        }
        graph = lg.Graph(features, {triple: [] for triple in triples}, {triple: [] for triple in triples})
        self.engine = lg.Engine(model(), graph, path=path, threads=2, scales=SCALES)
        self.updates = lg.Updates()

    @rule(relation=st.integers(0, 4), data=st.data())
    def add_edge(self, relation: int, data: Any) -> None:
        ends = [sorted(self.rows[name]) for name in ENDS[relation]]
        if all(ends):
            u, v = (data.draw(st.sampled_from(ids)) for ids in ends)
            self.updates.add_edge(u, v, edge_type=TRIPLES[relation])
            self.edges.append((relation, u, v))

    @rule(data=st.data())
    def remove_edge(self, data: Any) -> None:
        if self.edges:
            relation, u, v = edge = data.draw(st.sampled_from(self.edges))
            self.updates.remove_edge(u, v, edge_type=TRIPLES[relation])
            last = max(place for place, each in enumerate(self.edges) if each == edge)
            del self.edges[last]

    @rule(name=st.sampled_from(list(WIDTHS)), row=st.tuples(FLOATS, FLOATS, FLOATS), again=st.booleans())
    def add_vertex(self, name: str, row: tuple[float, ...], again: bool) -> None:
        free = [v for v in range(self.next_id[name]) if v not in self.rows[name]]
        v = free[0] if free and again else self.next_id[name]
        self.next_id[name] = max(self.next_id[name], v + 1)
        self.rows[name][v] = list(row[: WIDTHS[name]])
        self.updates.add_vertex(v, self.rows[name][v], vertex_type=name)

    @rule(name=st.sampled_from(list(WIDTHS)), data=st.data())
    def remove_vertex(self, name: str, data: Any) -> None:
        if self.rows[name]:
            v = data.draw(st.sampled_from(sorted(self.rows[name])))
            self.updates.remove_vertex(v, vertex_type=name)
            del self.rows[name][v]
            self.edges = [(r, s, d) for r, s, d in self.edges if (name, v) not in ((ENDS[r][0], s), (ENDS[r][1], d))]

    @rule(name=st.sampled_from(list(WIDTHS)), row=st.tuples(FLOATS, FLOATS, FLOATS), data=st.data())
    def set_features(self, name: str, row: tuple[float, ...], data: Any) -> None:
        if self.rows[name]:
            v = data.draw(st.sampled_from(sorted(self.rows[name])))
            self.rows[name][v] = list(row[: WIDTHS[name]])
            self.updates.set_features(v, self.rows[name][v], vertex_type=name)

    @rule()
    def apply(self) -> None:
        self.engine.apply(self.updates)
        self.updates = lg.Updates()

    @rule()
    def suppose_then_apply(self) -> None:
        """What a view showed is what the batch brings; leaving the view puts every bit back."""
        digest = self.engine.state_digest()
        ids = {name: sorted(rows) for name, rows in self.rows.items()}
        with self.engine.what_if(self.updates) as view:
            shown = {name: view.embeddings(each, vertex_type=name) for name, each in ids.items()}
        assert self.engine.state_digest() == digest
        self.engine.verify()
        self.apply()
        for name, each in ids.items():
            assert self.engine.embeddings(each, vertex_type=name).tobytes() == shown[name].tobytes()

    @rule()
    def fail(self) -> None:
        digest = self.engine.state_digest()
        broken = lg.Updates()
        broken.extend(self.updates)
        broken.remove_vertex(10**6, vertex_type="B")
        with pytest.raises(UpdateError):
            self.engine.apply(broken)
        assert self.engine.state_digest() == digest

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "engine") or len(self.updates):
            return
        self.engine.verify()
        truth, float32 = self.truth(np.float64), self.truth(np.float32)
        fresh, graph = self.engine.recompute(), self.engine.graph
        for name, rows in self.rows.items():
            ids = sorted(rows)
            assert sorted(graph.vertices(name).tolist()) == ids
            got = self.engine.embeddings(ids, vertex_type=name)
            slots = graph.to_slots(ids, vertex_type=name)
            assert got.tobytes() == np.ascontiguousarray(fresh[slots, : got.shape[1]]).tobytes()
            check_rows(got, truth[name], float32[name], name, on_edges=True)

    def truth(self, dtype: Any) -> dict[str, Any]:
        """The reference on the vertices in order of type and id."""
        place = {(name, v): 0 for name in WIDTHS for v in sorted(self.rows[name])}
        place = {key: number for number, key in enumerate(place)}
        features = np.zeros((len(place), 3), np.float32)
        for (name, v), number in place.items():
            features[number, : WIDTHS[name]] = self.rows[name][v]
        src = np.array([place[ENDS[r][0], u] for r, u, _ in self.edges], np.int64)
        dst = np.array([place[ENDS[r][1], v] for r, _, v in self.edges], np.int64)
        codes = np.array([list(WIDTHS).index(name) for name, _ in place], np.int32)
        types = np.array([r for r, _, _ in self.edges], np.int32)
        spec = self.engine.model.to_arrays()
        y = evaluate(spec, features, src, dst, dtype=dtype, types=types, vertex_types=codes)
        widths = self.engine.model.output_widths
        return {name: y[codes == code, : widths[name]] for code, name in enumerate(WIDTHS)}


def _scales() -> list[list[int]]:
    """Units that hold every message that a stream can make, whatever the first graph was."""
    features = {name: np.full((1, width), 2.0, np.float32) for name, width in WIDTHS.items()}
    edges = {triple: [0] for triple in TRIPLES}
    engine = lg.Engine(model(), lg.Graph(features, edges, edges))
    *rows, capacity = engine.scales
    return [[min(each, 30) for each in row] for row in rows] + [capacity]


SCALES = _scales()
TestHeteroMachine = Machine.TestCase
TestHeteroMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
