"""Rows of features from the workers that hold them, with and without a cache in front."""

import numpy as np
import pytest
import torch

from livegnn.distributed import (
    Cached,
    Layout,
    Partition,
    RemoteEdgeRows,
    RemoteSampler,
    RemoteVertexRows,
    run_threads,
)
from livegnn.errors import EdgeMissing
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
