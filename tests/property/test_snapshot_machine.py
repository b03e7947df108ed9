"""Snapshots at many versions at once, under everything that happens to an engine (Hypothesis, stateful)."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import livegnn as lg
from livegnn.testing import random_batch, random_graph, random_model

SNAPSHOTS_MAX = 6


class SnapshotMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(["eager", "on_demand", "hybrid"]))
    def begin(self, seed, mode):
        self.rng = np.random.default_rng(seed)
        self.model = random_model(self.rng, depth=2, weighted=False)
        self.graph, self.mirror = random_graph(self.rng, self.model.input_width, False)
        self.engine = lg.Engine(self.model, self.graph, threads=1, mode=mode)
        self.open = []  # (view, version, ids, rows) as recorded when it was opened

    @rule(size=st.integers(0, 12))
    def apply(self, size):
        self.engine.apply(random_batch(self.rng, self.mirror, size))

    @rule(count=st.integers(1, 3))
    def ask(self, count):
        live = self.graph.vertices()
        if len(live):
            self.engine.embeddings(self.rng.choice(live, count))

    @rule()
    def remove_and_add_again(self):
        live = self.graph.vertices()
        if not len(live):
            return
        v = int(self.rng.choice(live))
        row = self.rng.standard_normal(self.graph.feature_width).astype(np.float32)
        for name, arguments in (("remove_vertex", (v,)), ("add_vertex", (v, row))):
            updates = lg.Updates()
            getattr(updates, name)(*arguments)
            self.engine.apply(updates)
        self.mirror.remove_vertex(v)
        self.mirror.rows[v] = row

    @rule()
    def open_one(self):
        if len(self.open) == SNAPSHOTS_MAX:
            return
        view, ids = self.engine.snapshot(), self.graph.vertices()
        view.__enter__()
        rows = self.engine.embeddings(ids)
        self.open.append((view, self.engine.version, ids, rows.tobytes(), self.graph.slot_count))

    @rule(place=st.integers(0, SNAPSHOTS_MAX - 1))
    def close_one(self, place):
        if place < len(self.open):
            self.open.pop(place)[0].__exit__(None, None, None)

    @rule(size=st.integers(1, 8))
    def look_ahead(self, size):
        updates = random_batch(self.rng, self.mirror.copy(), size)
        with self.engine.what_if(updates):
            self.agrees()

    @rule(size=st.integers(0, 6))
    def fail(self, size):
        updates = random_batch(self.rng, self.mirror.copy(), size)
        updates.remove_vertex(10_000)
        with pytest.raises(lg.errors.VertexUnknown):
            self.engine.apply(updates)

    @rule()
    def rescale(self):
        self.engine.rescale()

    @rule(out=st.integers(1, 4))
    def swap(self, out):
        self.engine.swap(
            lg.Model([lg.layers.Dense(self.rng.standard_normal((out, self.graph.feature_width))), lg.layers.LG()])
        )

    @invariant()
    def agrees(self):
        for view, version, ids, rows, slots in self.open:
            assert (view.version, view.vertex_count) == (version, len(ids))
            assert view.embeddings(ids).tobytes() == rows
            for other in np.setdiff1d(np.arange(slots + 2), ids)[:4]:
                with pytest.raises(lg.errors.VertexUnknown):
                    view.embeddings([other])

    def teardown(self):
        for view, *_ in getattr(self, "open", []):
            view.__exit__(None, None, None)
        if hasattr(self, "engine"):
            self.engine.verify()


SnapshotMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestSnapshotMachine = SnapshotMachine.TestCase
