"""Rows of features from the workers that hold them, with and without a cache in front."""

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.distributed import (
    Cached,
    Layout,
    Partition,
    RemoteEdgeRows,
    RemoteSampler,
    RemoteVertexRows,
    WorkerCache,
    run_threads,
)
from livegnn.errors import EdgeMissing, ValueInvalid, VertexUnknown
from livegnn.temporal import FeatureCache
from tests.unit.distributed.streams import stream_graph, targets_of

GRAPH = stream_graph(features=5, attrs=3)


def in_workers(work, workers=2, graph=GRAPH):
    """work(exchange, partition) in each."""
    return run_threads(lambda e: work(e, Partition.of(graph, Layout(1, workers), e.rank)), workers)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_of_vertices_in_the_order_asked(workers):
    def work(exchange, partition):
        ids = np.random.default_rng(exchange.rank).integers(0, 40, 30 * exchange.rank)  # worker 0 asks for none
        rows = RemoteVertexRows(partition, exchange).fetch(ids)
        return ids, rows

    for ids, rows in in_workers(work, workers):
        np.testing.assert_array_equal(rows.numpy(), GRAPH.features(ids))


@pytest.mark.parametrize("undirected", [False, True])
def test_attributes_of_sampled_edges_of_events_and_of_any(undirected):
    graph = stream_graph(features=5, attrs=3, undirected=undirected)
    expected = graph.edges()["attr"]

    def work(exchange, partition):
        sampler = RemoteSampler(partition, exchange, [4, 4])
        rows = RemoteEdgeRows(partition, exchange, sampler)
        hops = sampler.sample_slots(*targets_of(graph, seed=exchange.rank))
        found = [(hop.edge_ids, rows.fetch(hop.edge_ids)) for hop in hops]
        events = np.arange(10) + 10 * exchange.rank
        rows.expect(events, graph.edges()["dst"][events].astype(np.int64))
        found.append((events, rows.fetch(events)))
        anything = np.random.default_rng(exchange.rank).permutation(400)
        found.append((anything, rows.fetch(anything)))
        assert rows.row_count == 400
        return found

    for found in in_workers(work, 3, graph):
        for ids, rows in found:
            np.testing.assert_array_equal(rows.numpy(), expected[ids])


def test_an_edge_that_is_nowhere_is_named():
    def work(exchange, partition):
        return RemoteEdgeRows(partition, exchange).rows(np.array([3, 4000]))

    with pytest.raises(EdgeMissing, match="4000"):
        in_workers(work)


def test_no_features_no_questions():
    def work(exchange, partition):
        if exchange.rank == 0:  # alone: nobody would answer
            assert RemoteVertexRows(partition, exchange).rows(np.arange(4)).shape == (4, 0)
            assert RemoteEdgeRows(partition, exchange).rows(np.arange(4)).shape == (4, 0)
        return True

    assert all(in_workers(work, 2, stream_graph()))


def test_a_cache_in_front_gives_the_same_rows_whoever_misses():
    def work(exchange, partition):
        remote = RemoteVertexRows(partition, exchange)
        rows = Cached(FeatureCache(remote, capacity=20, max_replace=1.0, threads=1), remote)
        rng = np.random.default_rng(exchange.rank)
        rows.checkpoint()
        for step in range(6):
            # worker 0 always asks for the same, and misses nothing after the first step
            ids = np.arange(5) if exchange.rank == 0 else rng.integers(0, 40, 12)
            torch.testing.assert_close(rows.fetch(ids), torch.from_numpy(GRAPH.features(ids)))
            if step == 3:
                rows.restore()
        return rows.cache.stats.hits

    first, _ = in_workers(work)
    assert first == 5 * 4  # all but the first fetch and the one after the restored, empty cache


@pytest.mark.parametrize("slot", [-1, 7, 40])
def test_a_slot_without_a_vertex_is_named(slot):
    graph = stream_graph(features=2)
    updates = lg.Updates()
    updates.remove_vertex(7)
    graph.apply(updates)

    def work(exchange, partition):
        return RemoteVertexRows(partition, exchange).rows(np.array([3, slot]))

    with pytest.raises(VertexUnknown, match=f"got {slot} at row 1"):
        in_workers(work, 2, graph)


def changing_batches(graph, rng, count=8):
    """Batches that change rows: features, vertices gone and there again, attributes by ends and by id, edges gone."""
    for _ in range(count):
        updates = lg.Updates()
        live = graph.vertices()
        slots = rng.choice(live, 4, replace=False)
        updates.set_features(slots[:2], rng.normal(size=(2, 5)).astype(np.float32))
        updates.remove_vertex(int(slots[2]))
        if rng.random() < 0.5:
            updates.add_vertex(int(slots[2]), rng.normal(size=5).astype(np.float32))
        edges = graph.edges()
        staying = np.flatnonzero((edges["src"] != slots[2]) & (edges["dst"] != slots[2]))
        for place in rng.choice(staying, 3, replace=False).tolist():
            ends = int(edges["src"][place]), int(edges["dst"][place])
            updates.set_edge_attr(*ends, rng.normal(size=3).astype(np.float32))  # the newest of these ends
        updates.remove_edge(*ends)
        updates.remove_edges_before(int(edges["time"].min()))
        graph.apply(updates)
        yield updates


@pytest.mark.parametrize("policy", ["lru", "static"])
def test_cached_rows_follow_batches_wherever_they_lie(policy):
    """After each batch rows of the cache are those of the whole graph, whichever worker holds and changes them."""
    start = {"features": 5, "attrs": 3}
    whole = stream_graph(**start)
    truths = []
    for updates in changing_batches(whole, np.random.default_rng(2)):
        edges = whole.edges()
        truths.append((updates, whole.vertices(), whole.features(whole.vertices()), edges["id"], edges["attr"]))

    def cached(remote, capacity):
        cache = FeatureCache(remote, capacity=capacity, max_replace=1.0, threads=1, policy=policy)
        return Cached(cache, remote)

    def work(exchange, partition):
        vertices = cached(RemoteVertexRows(partition, exchange), 40)
        edges = cached(RemoteEdgeRows(partition, exchange), 400)
        for rows, count in ((vertices, 40), (edges, 400)):
            if policy == "static":
                rows.together(lambda rows=rows, count=count: rows.cache.warm(np.arange(count)))
            else:
                rows.fetch(np.arange(count))  # all of them are cached
            rows.checkpoint()
        for updates, slots, features, edge_ids, attrs in truths:
            partition.apply(updates, exchange)
            if exchange.rank == 0:  # alone: these read nothing
                vertices.checkpoint()
                edges.checkpoint()
            for rows in (vertices, edges):
                rows.restore()
                rows.together(rows.cache.verify)
            np.testing.assert_array_equal(vertices.fetch(slots).numpy(), features)
            np.testing.assert_array_equal(edges.fetch(edge_ids).numpy(), attrs)
        return vertices.cache.stats.hits, edges.cache.stats.hits

    for hits in in_workers(work, 3, stream_graph(**start)):
        assert min(hits) > 0


def test_additions_leave_the_cache_as_it_is():
    updates = lg.Updates()
    updates.add_edge(0, 1, time=3, edge_attr=np.ones(3, np.float32))
    updates.add_vertex(40, np.ones(5, np.float32))

    def work(exchange, partition):
        remote = RemoteVertexRows(partition, exchange)
        rows = Cached(FeatureCache(remote, capacity=20, max_replace=1.0, threads=1), remote)
        rows.fetch(np.arange(10))
        partition.apply(updates, exchange)
        assert len(rows.cache) == 10
        return rows.fetch(np.array([40, 3])).numpy(), rows.cache.stats.last.hits

    for found, hits in in_workers(work):
        np.testing.assert_array_equal(found[0], np.ones(5, np.float32))
        assert hits == 1


def test_a_workers_cache_is_checked_where_it_is_described():
    with pytest.raises(ValueInvalid, match=r"^\[WorkerCache\] expected a capacity from 1"):
        WorkerCache(capacity=0)
    with pytest.raises(ValueInvalid, match=r"^\[WorkerCache\] expected a policy among"):
        WorkerCache(policy="mru")
    with pytest.raises(ValueInvalid, match=r"^\[WorkerCache\] expected 0 < max_replace"):
        WorkerCache(max_replace=0.0)
    with pytest.raises(ValueInvalid, match=r"got 'static'"):
        WorkerCache(policy="static")
