"""ClusterParts: workers' parts at the version of a round, also of workers that were replaced in between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.distributed import hashed, ldg
from livegnn.distributed.parts import ClusterParts
from livegnn.errors import LogUnavailable, UpdateError
from livegnn.graph.consumers import Recorder
from tests.composition.temporal import world_of
from tests.composition.world import Setting
from tests.unit.distributed.streams import stream_graph
from tests.unit.distributed.test_partition import batch_of, equal_to_whole


class LocalWorker:
    """What a call of a RayGroup gets, in this process."""

    def __init__(self, rank):
        self.rank, self.kept = rank, {}


class LocalGroup:
    """A RayGroup as far as ClusterParts needs one."""

    def __init__(self, size):
        self.size, self.starts = size, [1] * size
        self.workers = [LocalWorker(rank) for rank in range(size)]

    def replace(self, rank):
        self.starts[rank] += 1
        self.workers[rank] = LocalWorker(rank)

    def call(self, fn, each):
        return [fn(worker, *mine) for worker, mine in zip(self.workers, each, strict=True)]

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
