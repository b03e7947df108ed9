"""Features in 16 bits under any stream: an engine, and the graph, equal those over the rounded features in float32."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import livegnn as lg
from livegnn.testing import graph_columns, random_batch, random_graph, random_model
from livegnn.testing.edge_models import EDGE_FAMILIES
from tests.oracle.half_oracle import DTYPES, assert_twins, rounded, rounded_updates

BY_INPUT = ("sage", "gin", "sgc", "lg", "appnp")  # whose first messages may be the features themselves
OPTIONS = [
    {},
    {"path": "push"},
    {"path": "pull"},
    {"path": "sweep"},
    {"state": "compact"},
    {"mode": "on_demand"},
    {"mode": "hybrid", "hot": 3},
    *({"strategy": strategy} for strategy in ("affected", "khop", "full", "constrained", "sampled")),
]
BEYOND = {"float16": 70000.0, "bfloat16": 3.3999e38}


class HalfMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32 - 1),
        dtype=st.sampled_from(DTYPES),
        family=st.sampled_from([*BY_INPUT, *BY_INPUT, "gcn", "graph_conv", *EDGE_FAMILIES]),
        options=st.sampled_from(OPTIONS),
        threads=st.sampled_from([1, 2]),
    )
    def begin(self, seed, dtype, family, options, threads):
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        model = random_model(self.rng, family=family, depth=int(self.rng.integers(1, 3)))
        columns = graph_columns(model)
        _graph, self.mirror = random_graph(self.rng, model.input_width, model.uses_weights, **columns)
        features, src, dst, weight, _ = self.mirror.arrays()
        attributes, kinds = self.mirror.columns()
        given = {"weight": weight, "edge_attr": attributes, "edge_type": kinds}
        self.half = lg.Graph(features, src, dst, **given, feature_dtype=dtype)
        self.twin = lg.Graph(rounded(dtype, features), src, dst, **given)
        self.engines = [lg.Engine(model, graph, threads=threads, **options) for graph in (self.half, self.twin)]
        self.reads = options.get("mode", "eager") == "eager"

    def apply_both(self, updates):
        changes = [self.engines[0].apply(updates), self.engines[1].apply(rounded_updates(self.dtype, updates))]
        assert changes[0].vertices.tolist() == changes[1].vertices.tolist()

    @rule(size=st.integers(0, 25))
    def apply(self, size):
        self.apply_both(random_batch(self.rng, self.mirror, size))

    @rule(exponent=st.integers(-30, 5), size=st.integers(1, 5))
    def set_small_and_large(self, exponent, size):
        """Subnormals among them, and values that round to zero."""
        if self.mirror.rows:
            ids = self.rng.choice(sorted(self.mirror.rows), size)
            rows = self.rng.standard_normal((size, self.half.feature_width)).astype(np.float32)
            updates = lg.Updates()
            updates.set_features(ids, rows * np.float32(2.0**exponent))
            self.apply_both(updates)

    @precondition(lambda self: self.half.vertex_count > 0 and self.reads)
    @rule(up=st.booleans())
    def set_what_rounds_to_the_same(self, up):
        v = int(self.rng.choice(self.half.vertices()))
        row = self.half.features([v])[0]
        near = np.where(row == 0, row, np.nextafter(row, np.float32(np.inf if up else -np.inf)))  # signs of zero count
        before = self.half.digest()
        updates = lg.Updates()
        updates.set_features(v, near)
        assert self.engines[0].apply(updates).vertices.size == 0
        self.engines[1].apply(lg.Updates())
        assert self.half.digest() == before

    @rule(size=st.integers(1, 10))
    def look_ahead(self, size):
        copy = self.mirror.copy()
        updates = random_batch(self.rng, copy, size)
        seen = []
        for engine, batch in zip(self.engines, (updates, rounded_updates(self.dtype, updates)), strict=True):
            before = engine.state_digest()
            with engine.what_if(batch) as view:
                seen.append(view.embeddings(sorted(copy.rows)).tobytes())
            assert engine.state_digest() == before
        assert seen[0] == seen[1]

    @precondition(lambda self: self.half.vertex_count > 0)
    @rule(size=st.integers(0, 6))
    def refuse(self, size):
        before = self.engines[0].state_digest()
        updates = random_batch(self.rng, self.mirror.copy(), size)
        row = np.zeros(self.half.feature_width, np.float32)
        row[-1] = BEYOND[self.dtype]
        updates.add_vertex(self.half.slot_count + 100, row)
        gap = lg.errors.VertexIdGap if self.half.slot_count else lg.errors.ValueInvalid
        with pytest.raises(gap):
            self.engines[0].apply(updates)
        updates = lg.Updates()
        updates.set_features(self.half.vertices(), np.ones((self.half.vertex_count, len(row))))
        updates.set_features(int(self.half.vertices()[-1]), row)
        with pytest.raises(lg.errors.ValueInvalid, match=f"within {self.dtype}, got .* in column {len(row) - 1}"):
            self.engines[0].apply(updates)
        assert self.engines[0].state_digest() == before

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "engine.lg"
            self.engines[0].save(path)
            loaded = lg.Engine.load(path)
        assert loaded.graph.feature_dtype == self.dtype
        assert_twins(loaded.graph, self.half)
        assert loaded.state_digest() == self.engines[0].state_digest()

    @invariant()
    def agrees(self):
        if not hasattr(self, "engines"):
            return
        assert_twins(self.half, self.twin)
        live = self.half.vertices()
        rows = [engine.embeddings(live).tobytes() for engine in self.engines]
        assert rows[0] == rows[1]
        digests = [engine.state_digest() for engine in self.engines]
        assert digests[0] == digests[1]
        if self.engines[0].strategy != "sampled":
            self.engines[0].verify()


HalfMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
TestHalfMachine = HalfMachine.TestCase
