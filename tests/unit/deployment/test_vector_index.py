"""Indexes follow adds, removals and changes; they say their recall and version, and survive a swap and a restart."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import topk
from livegnn.deployment.config import checked_config
from livegnn.deployment.config_index import IndexConfig
from livegnn.deployment.vector_index import VectorIndex
from livegnn.errors import UsageError, ValueInvalid, VersionPending, VertexUnknown
from tests.unit.deployment.world import abandon, deployment, edge, model, prepared

WAIT = 60.0
METRICS = ("dot", "cosine", "l2")


def engine_of(rng, count=600, ids=None):
    graph = lg.Graph(
        rng.normal(size=(count, 8)).astype(np.float32),
        rng.integers(0, count, 3 * count) if ids is None else [ids[i] for i in rng.integers(0, count, 3 * count)],
        rng.integers(0, count, 3 * count) if ids is None else [ids[i] for i in rng.integers(0, count, 3 * count)],
        ids=ids,
    )
    return lg.Engine(lg.Model([lg.layers.SAGE(rng.normal(size=(6, 8)), rng.normal(size=(6, 8)))]), graph)


@pytest.fixture
def made(request):
    """index(engine, metric): an index that is stopped after the test."""

    def make(engine, metric="cosine", **more):
        found = VectorIndex(engine, IndexConfig(name="near", engine="scores", metric=metric, **more))
        request.addfinalizer(found.stop)
        return found

    return make


def recall_of(index, engine, rng, metric, k=10):
    hits = 0
    sample = rng.choice(engine.graph.vertices(), 40, replace=False).tolist()
    for vertex in sample:
        exact = topk.best(engine, vertex=vertex, k=k, metric=metric)
        found = index.nearest(vertex=vertex, k=k, at_least=engine.version, timeout=WAIT)
        assert found.version == engine.version
        assert vertex not in found.vertices
        hits += len(set(found.vertices.tolist()) & set(exact.vertices.tolist()))
        scores = dict(zip(exact.vertices.tolist(), exact.scores.tolist(), strict=True))
        for each, score in zip(found.vertices.tolist(), found.scores.tolist(), strict=True):
            assert score == pytest.approx(scores.get(each, score), rel=1e-5, abs=1e-6)
    return hits / (k * len(sample))


def batch(rng, graph, step):
    updates, live = lg.Updates(), graph.vertices()
    for _ in range(20):
        updates.add_edge(*rng.choice(live, 2).tolist())
    for vertex in rng.choice(live, 10, replace=False).tolist():
        updates.set_features(vertex, rng.normal(size=8))
    updates.remove_vertex(int(live[rng.integers(len(live))]))
    updates.add_vertex(int(graph.slot_count), rng.normal(size=8))
    return updates


@pytest.mark.parametrize("metric", METRICS)
def test_it_finds_what_is_near_and_follows(made, metric):
    rng = np.random.default_rng(1)
    engine = engine_of(rng)
    index = made(engine, metric)
    for step in range(4):
        if step:
            for _ in range(5):
                engine.apply(batch(rng, engine.graph, step))
        assert recall_of(index, engine, rng, metric) >= 0.9
    assert index.recall >= 0.9
    assert index.bytes > 0
    live = set(engine.graph.vertices().tolist())
    everything = index.nearest(row=np.ones(6, np.float32), k=len(live), timeout=WAIT)
    assert set(everything.vertices.tolist()) <= live
    assert len(everything.vertices) > 0.8 * len(live)  # rows that no other is near may be out of reach


def test_text_ids_and_the_rows_asked_for(made):
    rng = np.random.default_rng(2)
    engine = engine_of(rng, 50, [f"v{i}" for i in range(50)])
    index = made(engine, "l2")
    row = engine.embeddings(["v7"])[0]
    found = index.nearest(row=row, k=3, timeout=WAIT)
    assert found.vertices[0] == "v7"
    assert found.scores[0] == 0
    updates = lg.Updates()
    updates.remove_vertex("v7")
    updates.add_vertex("new", rng.normal(size=8))
    engine.apply(updates)
    found = index.nearest(row=row, k=50, at_least=1, timeout=WAIT)
    assert "v7" not in found.vertices
    assert "new" in found.vertices
    assert found.version == 1


def test_a_swap_and_a_rescale_build_it_anew(made):
    rng = np.random.default_rng(3)
    engine = engine_of(rng, 100)
    index = made(engine)
    index.wait(0, WAIT)
    engine.swap(lg.Model([lg.layers.SAGE(rng.normal(size=(3, 8)))]))
    engine.apply(edge(1, 2))
    index.wait(1, WAIT)
    found = index.nearest(vertex=5, k=5)
    assert found.model is engine.model
    exact = topk.best(engine, vertex=5, k=5, metric="cosine")
    assert found.scores.tolist() == pytest.approx(exact.scores.tolist(), rel=1e-5)
    engine.rescale(1024.0)
    engine.apply(edge(2, 1))
    index.wait(2, WAIT)
    assert len(index.nearest(vertex=5, k=5).vertices) == 5


def test_out_neighbours_are_left_out_on_request(made):
    rng = np.random.default_rng(4)
    engine = engine_of(rng, 60)
    index = made(engine)
    for vertex in range(5):
        there = set(engine.graph.out_neighbours(vertex)["dst"].tolist())
        found = index.nearest(vertex=vertex, k=20, linked=False, timeout=WAIT)
        assert not there & set(found.vertices.tolist())
        assert len(found.vertices) == 20


def test_a_low_recall_builds_it_anew(made):
    rng = np.random.default_rng(5)
    engine = engine_of(rng, 100)
    index = made(engine, rebuild_below=1.0)
    index.wait(0, WAIT)
    index._measured = lambda: 0.5
    builds = []
    make = index._made
    index._made = lambda width: builds.append(width) or make(width)
    engine.apply(batch(rng, engine.graph, 1))
    engine.apply(batch(rng, engine.graph, 2))
    index.wait(2, WAIT)
    with index._moved:
        assert index._moved.wait_for(lambda: builds, WAIT)


def test_what_cannot_be_answered_is_refused(made):
    engine = engine_of(np.random.default_rng(6), 30)
    index = made(engine)
    with pytest.raises(VersionPending, match="near"):
        index.wait(9, 0.01)
    index.wait(0, WAIT)
    with pytest.raises(UsageError, match="one of vertex and row"):
        index.nearest()
    with pytest.raises(ValueInvalid, match="6 finite numbers"):
        index.nearest(row=np.ones(5, np.float32))
    with pytest.raises(VertexUnknown):
        index.nearest(vertex=300)
    lazy = lg.Engine(engine.model, engine.graph, mode="on_demand")
    with pytest.raises(ValueInvalid, match="eager"):
        made(lazy)
    with pytest.raises(ValueInvalid, match="index 'near' among scores"):
        checked_config({"engine": [{"name": "scores", "model": "m"}], "index": [{"name": "near", "engine": "other"}]})


def test_a_model_without_rows_for_it_is_said(made):
    engine = engine_of(np.random.default_rng(7), 30)
    index = made(engine)
    index.wait(0, WAIT)
    index._live = None  # what a fault in the worker does
    engine.apply(edge(1, 2))
    with pytest.raises(UsageError, match="near"):
        index.wait(1, WAIT)
    del index._live
    engine.apply(edge(1, 2))
    with index._moved:
        assert index._moved.wait_for(lambda: index.version == 2, WAIT)


def test_a_deployment_builds_it_again_after_a_crash(tmp_path):
    more = {"index": [{"name": "near", "engine": "scores", "metric": "l2"}]}
    live = deployment(prepared(tmp_path), **more).start()
    live.apply(edge(4, 2))
    abandon(live)
    with deployment(tmp_path, **more) as again:
        index = again.indexes["near"]
        index.wait(again.version, WAIT)
        found = index.nearest(row=again.engine("scores").embeddings([2])[0], k=1)
        assert found.vertices.tolist() == [2]
        assert again.key_of(found.model) == "fraud/1"
    assert model().output_width == 3
