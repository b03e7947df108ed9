"""Batches large enough for bins, threads and the fused last stage: the same bits as a run from scratch."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.testing import random_model
from livegnn.testing.models import FAMILIES

VERTICES, EDGES = 2500, 40_000


def skewed(rng, count, among=None):
    """Vertices with a few hubs among them."""
    among = np.arange(VERTICES) if among is None else among
    return among[(len(among) * rng.random(count) ** 3).astype(np.int64)]


def batch(rng, graph, width, size):
    updates = lg.Updates()
    live = graph.vertices()
    weight = (rng.random(size) + 0.1).astype(np.float32)
    updates.add_edges(skewed(rng, size, live), skewed(rng, size, live), weight=weight)
    edges = graph.edges()
    taken = rng.permutation(len(edges["src"]))[:size]
    updates.remove_edges(edges["src"][taken], edges["dst"][taken])
    for v in np.unique(skewed(rng, size, live)):
        updates.set_features(int(v), rng.standard_normal(width, dtype=np.float32))
    new = graph.slot_count
    updates.add_vertex(new, rng.standard_normal(width, dtype=np.float32))
    updates.add_edge(int(live[0]), new, weight=1.0)
    updates.remove_vertex(int(rng.choice(live[1:])))
    return updates


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_large_batches(family, threads):
    rng = np.random.default_rng(len(family) + threads)
    model = random_model(rng, family=family, depth=2 + threads % 2)
    features = rng.standard_normal((VERTICES, model.input_width), dtype=np.float32)
    weight = (rng.random(EDGES) + 0.1).astype(np.float32)
    graph = lg.Graph(features, skewed(rng, EDGES), skewed(rng, EDGES), weight=weight)
    engine = lg.Engine(model, graph, threads=threads, path="push")
    compact = lg.Engine(model, graph, threads=threads, state="compact")
    for size in (3, 60, 700):
        every = np.arange(VERTICES)
        before = engine.recompute()[every]
        changes = engine.apply(batch(rng, graph, model.input_width, size))
        engine.verify()
        assert compact.state_digest() == engine.state_digest()
        compact.verify()
        now = engine.recompute()[every]
        live = np.isin(every, graph.vertices())
        moved = every[live & (before.view(np.int32) != now.view(np.int32)).any(axis=1)]
        assert np.isin(moved, changes.vertices).all()
        assert set(changes.vertices[changes.vertices < VERTICES].tolist()) == set(moved.tolist())
