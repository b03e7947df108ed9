"""A long-lived engine under everything that can be done to it, step by step (Hypothesis, stateful)."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import livegnn as lg
from livegnn.inference import memory
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph, random_model


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(memory, "LEAST_LIMIT", 1)


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32 - 1), threads=st.sampled_from([1, 2]), memory_limit=st.sampled_from([None, 24 << 10])
    )
    def begin(self, seed, threads, memory_limit):
        self.rng = np.random.default_rng(seed)
        self.model = random_model(self.rng, depth=int(self.rng.integers(1, 4)), on_edges=True)
        weighted = self.model.uses_weights
        columns = graph_columns(self.model)
        self.graph, self.mirror = random_graph(self.rng, self.model.input_width, weighted, **columns)
        self.engine = lg.Engine(self.model, self.graph, threads=threads, memory_limit=memory_limit)
        self.events = []
        self.engine.on_change(lambda changes: self.events.append(changes.version))

    @rule(size=st.integers(0, 25))
    def apply(self, size):
        version = self.engine.version
        changes = self.engine.apply(random_batch(self.rng, self.mirror, size))
        assert changes.version == self.engine.version == version + 1
        assert self.events[-1] == changes.version

    @rule(size=st.integers(1, 12))
    def look_ahead(self, size):
        before, version = self.engine.state_digest(), self.engine.version
        copy = self.mirror.copy()
        updates = random_batch(self.rng, copy, size)
        committed = self.engine.embeddings(self.graph.vertices())
        with self.engine.what_if(updates) as view:
            live = np.array(sorted(copy.rows), np.int64)
            seen = view.embeddings(live)
            fresh = lg.Engine(self.model, copy_graph(copy), scales=self.engine.scales)
            assert seen.tobytes() == fresh.embeddings(live).tobytes()
            ids = np.array(sorted(self.mirror.rows), np.int64)
            assert self.engine.embeddings(ids).tobytes() == committed.tobytes()
        assert self.engine.state_digest() == before
        assert self.engine.version == version

    @rule(size=st.integers(0, 6))
    def fail(self, size):
        before = self.engine.state_digest()
        updates = random_batch(self.rng, self.mirror.copy(), size)
        updates.remove_vertex(10_000)
        with pytest.raises(lg.errors.VertexUnknown, match="10000"):
            self.engine.apply(updates)
        assert self.engine.state_digest() == before

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "engine.lg"
            self.engine.save(path)
            loaded = lg.Engine.load(path)
        assert loaded.state_digest() == self.engine.state_digest()
        live = self.graph.vertices()
        assert loaded.embeddings(live).tobytes() == self.engine.embeddings(live).tobytes()

    @rule()
    def rescale(self):
        self.engine.rescale()

    @rule()
    def swap(self):
        model = random_model(self.rng, depth=1, weighted=False)
        if model.input_width != self.graph.feature_width:
            model = lg.Model([lg.layers.Dense(self.rng.standard_normal((3, self.graph.feature_width))), lg.layers.LG()])
        self.engine.swap(model)
        self.model = model

    @invariant()
    def agrees(self):
        check_engine(self.engine, self.mirror)


def copy_graph(mirror):
    """The mirror as a graph with the same slots: removed ones are removed there too."""
    features, src, dst, weight, live = mirror.arrays()
    attributes, kinds = mirror.columns()
    graph = lg.Graph(features, src, dst, weight=weight, edge_attr=attributes, edge_type=kinds)
    dead = np.setdiff1d(np.arange(mirror.slots), live)
    if len(dead):
        updates = lg.Updates()
        updates.remove_vertices(dead)
        graph.apply(updates)
    return graph


EngineMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)


@pytest.mark.usefixtures("small_limits")
class TestEngineMachine(EngineMachine.TestCase):
    """Some of its engines keep a part of their rows in memory only."""
