"""RemoteSampler: workers that hold parts of a graph sample what one process with the whole graph samples."""

import numpy as np
import pytest

from livegnn.distributed import Layout, Partition, RemoteSampler, run_threads
from livegnn.errors import DtypeInvalid, ValueInvalid, VertexUnknown, WidthMismatch
from livegnn.temporal import TemporalSampler
from tests.unit.distributed.streams import stream_graph, targets_of

FIELDS = ("targets", "target_times", "ptr", "src", "edge_ids", "times", "edge_index", "next_targets", "next_times")


def equal(got, expected):
    assert len(got) == len(expected)
    for hop, other in zip(got, expected, strict=True):
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(hop, field), getattr(other, field), err_msg=field)


def remote(graph, layout, fanouts, targets, **options):
    """Each worker's hops for targets of its own."""

    def work(exchange):
        partition = Partition.of(graph, layout, exchange.rank)
        sampler = RemoteSampler(partition, exchange, fanouts, **options)
        sampler.calls = 7 + exchange.rank
        ask = sampler.sample_snapshot_slots if sampler.snapshots > 1 else sampler.sample_slots
        return ask(*targets[exchange.rank])

    return run_threads(work, layout.workers)


OPTIONS = {
    "recent": {},
    "uniform": {"strategy": "uniform", "seed": 2**63 + 5},
    "replace": {"strategy": "uniform", "replace": True, "window": 30},
    "unique": {"unique": True, "inclusive": True},
    "drawn once": {"strategy": "uniform", "unique": True, "prop_time": True},
    "windows": {"strategy": "uniform", "snapshots": 3, "window": 20},
}


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_equal_to_one_process(workers, options, undirected):
    graph = stream_graph(undirected=undirected)
    targets = [targets_of(graph, seed=rank, count=30 + 25 * rank) for rank in range(workers)]
    got = remote(graph, Layout(1, workers), [3, 4], targets, **options)
    for rank in range(workers):
        whole = TemporalSampler(graph, [3, 4], **options)
        whole.calls = 7 + rank
        if whole.snapshots > 1:
            for one, other in zip(got[rank], whole.sample_snapshots(*targets[rank]), strict=True):
                equal(one, other)
        else:
            equal(got[rank], whole.sample(*targets[rank]))


def test_a_partition_for_each_host_is_sampled_by_the_same_local_rank():
    graph, layout = stream_graph(), Layout(hosts=2, workers_per_host=2, shared=True)
    targets = [targets_of(graph, seed=rank) for rank in range(4)]

    def work(exchange):
        partition = Partition.of(graph, layout, exchange.rank)
        sampler = RemoteSampler(partition, exchange, [5])
        return sampler.sample_slots(*targets[exchange.rank]), sampler.held_edges[0][1], sampler.targets_served

    for rank, (hops, servers, _) in enumerate(run_threads(work, 4)):
        equal(hops, TemporalSampler(graph, [5]).sample(*targets[rank]))
        assert set(servers % 2) == {rank % 2}


def test_a_worker_without_targets_takes_part():
    graph = stream_graph()
    none = np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, second = remote(graph, Layout(1, 2), [3, 3], [none, targets_of(graph)])
    assert [hop.edge_count for hop in first] == [0, 0]
    expected = TemporalSampler(graph, [3, 3])
    equal(second, expected.sample(*targets_of(graph)))


def test_refuses_vertices_that_are_not_there_and_missing_times():
    graph = stream_graph(vertices=5)
    with pytest.raises(VertexUnknown, match="got 9 at row 1"):
        remote(graph, Layout(1, 1), [2], [(np.array([0, 9]), np.array([5, 5]))])
    with pytest.raises(WidthMismatch, match="got 1 for 2"):
        remote(graph, Layout(1, 1), [2], [(np.array([0, 1]), np.array([5]))])


@pytest.mark.parametrize(
    ("vertices", "times", "error", "message"),
    [
        ([0, 1], [5.5, 6.0], DtypeInvalid, "times as int64"),
        ([0, -1], [5, 5], ValueInvalid, "-1 at row 1"),
        ([0, 1], np.array(["NaT", 5], "datetime64[s]"), ValueInvalid, "NaT"),
    ],
)
def test_refuses_targets_as_one_process_does(vertices, times, error, message):
    graph = stream_graph(vertices=5)

    def work(exchange):
        RemoteSampler(Partition.of(graph, Layout(1, 1), 0), exchange, [2]).sample(vertices, times)

    with pytest.raises(error, match=message):
        run_threads(work, 1)
    with pytest.raises(error, match=message):
        TemporalSampler(graph, [2]).sample(vertices, times)
