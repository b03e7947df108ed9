"""LoadFollower: what it counts, and when it asks for other maps."""

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native
from livegnn.distributed.sampling_host import following
from livegnn.distributed.sampling_host.following import LoadFollower
from livegnn.distributed.sampling_host.worker_host import HostStatus
from livegnn.sampling import ClusterSpec, even_owners, even_serving
from livegnn.sampling.cluster.front_end import FrontEnd, SeedDemand
from livegnn.sampling.cluster.sizes import SizeRules
from livegnn.sampling.presample.source import Response

RULES = SizeRules(look_seconds=1.0, patience=1, rest=0, waiting_high=0.5)


class Worker:
    def answer(self, seeds, options):
        shape = (len(seeds), 2)
        return Response(0, (np.zeros(shape, np.int64),), (np.zeros(shape, np.int64),), ())


class Coordinator:
    """Keeps what it is asked for."""

    is_moving = is_moving_seeds = False

    def __init__(self):
        self.serving, self.owners, self.asked = even_serving(1), even_owners(1), []

    def serve(self, serving):
        self.asked.append(("serve", serving))

    def move(self, owners):
        self.asked.append(("move", owners))


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(following, "time", made)
    return made


def follower(direction="out"):
    graph = lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3])
    spec = ClusterSpec.of(graph, getattr(lg.query(), direction)().sample(2))
    return LoadFollower(RULES, FrontEnd(spec, {0: Worker()}, even_serving(1)))


def status(busy_seconds):
    return {("sampling", 0): HostStatus(1, 5, 0.0, busy_seconds, 0.0, 0.0, "", 0)}


def test_a_busy_sampling_worker_gets_help_by_what_it_did_since_the_last_look(clock):
    found, coordinator = follower(), Coordinator()
    clock.now += 10
    found.look(coordinator, status(9.5))
    ((kind, owners),) = coordinator.asked
    assert (kind, owners.max()) == ("move", 1)
    clock.now += 10
    found.look(coordinator, status(11.0))  # 1.5 of 10 s
    assert (len(coordinator.asked), found.changes) == (1, 1)


def test_a_queue_of_readers_brings_a_replica(clock):
    found, coordinator = follower(), Coordinator()
    found._front_end.take_demand = lambda: SeedDemand(np.ones(1024, np.int64), {0: 8.0})
    clock.now += 10
    found.look(coordinator, {})
    ((kind, serving),) = coordinator.asked
    assert (kind, set(serving.tolist())) == ("serve", {3})


def test_it_looks_from_time_to_time_and_not_during_a_move(clock):
    found, coordinator = follower(), Coordinator()
    clock.now += 0.5
    found.look(coordinator, status(0.5))
    coordinator.is_moving = True
    clock.now += 10
    found.look(coordinator, status(10.0))
    assert coordinator.asked == []


@pytest.mark.parametrize(("direction", "ends"), [("out", [0]), ("in_", [1]), ("both", [0, 1])])
def test_records_count_where_they_are_kept(direction, ends):
    found, updates = follower(direction), lg.Updates()
    updates.add_edge(0, 4)
    updates.add_edge(0, 5)
    found.count(updates.slot_buffer)
    slots = np.array([[0, 4], [0, 5]])[:, ends].ravel()
    expected = np.bincount(_native.buckets(slots), minlength=1024)
    np.testing.assert_array_equal(found._records, expected)
