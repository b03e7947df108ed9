"""ClusterParts: workers' parts at the version of a round, also of workers that were replaced in between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import _native
from livegnn.distributed import RemoteEdgeRows, RemoteVertexRows, WorkerCache, hashed, ldg, run_threads
from livegnn.distributed.parts import ClusterParts
from livegnn.errors import LogUnavailable, UpdateError
from livegnn.graph.consumers import Recorder
from tests.composition.temporal import world_of
from tests.composition.world import Setting
from tests.unit.distributed.streams import stream_graph
from tests.unit.distributed.test_partition import batch_of, equal_to_whole


class LocalWorker:
    """What a call of a RayGroup gets, in a thread."""

    def __init__(self, rank):
        self.rank, self.kept, self.exchange = rank, {}, None


class LocalGroup:
    """A RayGroup as far as ClusterParts needs one, of threads."""

    def __init__(self, size):
        self.size, self.starts = size, [1] * size
        self.workers = [LocalWorker(rank) for rank in range(size)]

    def replace(self, rank):
        self.starts[rank] += 1
        self.workers[rank] = LocalWorker(rank)

    def call(self, fn, *args, each=None):
        def work(exchange):
            worker = self.workers[exchange.rank]
            worker.exchange = exchange
            return fn(worker, *(each[exchange.rank] if each else ()), *args)

        return run_threads(work, self.size)

    @property
    def parts(self):
        return [worker.kept["part"] for worker in self.workers]


class Moody(Recorder):
    """Is asked after ClusterParts, and refuses a batch now and then: while preparing, or while appending."""

    def __init__(self, rng):
        self.rng = rng

    def prepare(self, recorded):
        self.refuse()

    append = prepare

    def refuse(self):
        if self.rng.random() < 0.15:
            raise LogUnavailable("[append] expected a disk, got none; mount it")

    def abort(self):
        pass


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 4),
    rule=st.sampled_from(["hash", "ldg", "fennel"]),
    undirected=st.booleans(),
)
def test_parts_are_the_whole_at_each_round(seed, workers, rule, undirected):
    rng = np.random.default_rng(seed)
    graph = stream_graph(seed=seed, vertices=12, edges=60, features=3, attrs=2, undirected=undirected)
    group = LocalGroup(workers)
    parts = ClusterParts(graph, group, ldg(graph, workers), rule)
    graph.host.add_recorder(Moody(rng))
    for _ in range(8):
        for _ in range(int(rng.integers(4))):
            try:
                graph.apply(batch_of(rng, graph))
            except (UpdateError, LogUnavailable):
                continue
        for rank in np.flatnonzero(rng.random(workers) < 0.3):
            group.replace(int(rank))
        with graph.host.lock:
            parts.plan()
        parts.deliver()
        equal_to_whole(group.parts, graph)
        owners = parts.owners(parts.slot_count)
        for part in group.parts:
            np.testing.assert_array_equal(part.keepers_of(np.arange(graph.slot_count)), owners)
    parts.close()
    assert not graph.host.consumers
    assert len(graph.host.recorders) == 1


def test_typed_graphs_with_ids_and_columns():
    world = world_of(Setting(typed=True, named=True, columns=True, half=True), 3)
    graph, group = world.graph(), LocalGroup(2)
    parts = ClusterParts(graph, group, hashed(2), "ldg")
    for number in range(8):
        graph.apply(world.batch())
        group.replace(number % 2)
        with graph.host.lock:
            parts.plan()
        parts.deliver()
        for part in group.parts:
            np.testing.assert_array_equal(part.newcomers.parts.of, parts.owners(graph.slot_count))
            assert part.newcomers.live.sum() == graph.vertex_count


@pytest.mark.parametrize("late", [False, True])
def test_a_batch_between_plan_and_delivery_waits_for_the_next_round(late):
    graph = stream_graph(vertices=12, edges=60, features=3, attrs=2)
    group, rng = LocalGroup(2), np.random.default_rng(0)
    parts = ClusterParts(graph, group, hashed(2), "ldg")
    with graph.host.lock:
        parts.plan()
    before = graph.version, parts.slot_count
    while late and graph.slot_count == before[1]:
        try:
            graph.apply(batch_of(rng, graph))
        except UpdateError:
            continue
    parts.deliver()
    assert [part.graph.version for part in group.parts] == [before[0]] * 2
    assert parts.slot_count == before[1] == group.parts[0].graph.slot_count


def fetch_all(worker, vertices, edge_ids):
    """Rows of both through caches that last, in another order on each worker."""
    part, exchange = worker.kept["part"], worker.exchange
    if "caches" not in worker.kept or worker.kept["made_of"] is not part:
        remotes = RemoteVertexRows(part, exchange), RemoteEdgeRows(part, exchange)
        worker.kept["caches"] = [WorkerCache(capacity=20, max_replace=1.0).over(remote) for remote in remotes]
        worker.kept["made_of"] = part
    found = []
    for cached, ids in zip(worker.kept["caches"], (vertices, edge_ids), strict=True):
        cached.remote._exchange = exchange
        order = np.random.default_rng(worker.rank).permutation(len(ids))
        rows = np.empty((len(ids), cached.width), np.float32)
        rows[order] = cached.fetch(ids[order]).numpy()
        found.append(rows)
    return found, [cached.stats.hits for cached in worker.kept["caches"]]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), workers=st.integers(1, 3), undirected=st.booleans())
def test_caches_of_workers_forget_rows_that_batches_change_in_any_part(seed, workers, undirected):
    rng = np.random.default_rng(seed)
    graph = stream_graph(seed=seed, vertices=8, edges=30, features=3, attrs=2, undirected=undirected)
    group = LocalGroup(workers)
    parts, most = ClusterParts(graph, group, hashed(workers), "ldg"), np.zeros(2)
    for _ in range(10):
        with graph.host.lock:
            parts.plan()
        parts.deliver()
        vertices, edges = graph.vertices(), graph.edges()
        if len(vertices) and len(edges["id"]):
            for (rows, attrs), hits in group.call(fetch_all, vertices, edges["id"]):
                np.testing.assert_array_equal(rows, graph.features(vertices))
                np.testing.assert_array_equal(attrs, _native.edge_attrs(graph.host.store, edges["id"]))
                most = np.maximum(most, hits)
        for _ in range(int(rng.integers(3))):
            try:
                graph.apply(batch_of(rng, graph))
            except UpdateError:
                continue
    assert most.min() > 0
