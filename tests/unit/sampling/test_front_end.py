"""FrontEnd: whom it asks, how long it waits, what it counts."""

import threading
import time

import numpy as np

import livegnn as lg
from livegnn import _native
from livegnn.sampling import ClusterSpec
from livegnn.sampling.cluster.front_end import FrontEnd
from livegnn.sampling.presample.source import Response

QUERY = lg.query().out().sample(2)


def new_spec():
    return ClusterSpec.of(lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3]), QUERY)


def two_owners():
    serving = np.full(1024, 1, np.uint64)
    serving[::2] = 2
    return serving


def response(seeds):
    shape = (len(seeds), 2)
    return Response(0, (np.zeros(shape, np.int64),), (np.zeros(shape, np.int64),), ())


def test_owners_share_one_deadline():
    asked = []

    class Slow:
        def answer(self, seeds, reading):
            asked.append(reading.timeout)
            time.sleep(0.05)
            return response(seeds)

    front_end = FrontEnd(new_spec(), {0: Slow(), 1: Slow()}, two_owners())
    front_end.sample(np.arange(6), features=False, timeout=10.0)
    assert len(asked) == 2
    assert asked[1] <= asked[0] - 0.05
    front_end.sample(np.arange(6), features=False, timeout=None)
    assert asked[2:] == [None, None]


def test_owners_elsewhere_are_asked_together():
    both = threading.Barrier(2, timeout=10)

    class Elsewhere:
        def ask(self, seeds, reading):
            thread = threading.Thread(target=both.wait)
            thread.start()

            def wait():
                thread.join()
                return response(seeds)

            return wait

        def answer(self, seeds, reading):
            raise AssertionError("one after another")

    FrontEnd(new_spec(), {0: Elsewhere(), 1: Elsewhere()}, two_owners()).sample(np.arange(6), features=False)
    assert not both.broken


def test_a_version_is_asked_of_the_owners_after_a_move():
    second = np.full(1024, 2, np.uint64)

    class Moving(dict):
        def __missing__(self, owner):  # the buckets moved while the first owner was asked
            front_end.set_serving(second)
            raise KeyError(owner)

    class Worker:
        def answer(self, seeds, options):
            return Response(4, (), (), ())

    front_end = FrontEnd(new_spec(), Moving({1: Worker()}), np.full(1024, 1, np.uint64))
    assert front_end.version == 4


def test_a_worker_that_is_down_is_passed_over_where_a_replica_is_up():
    asked, down = [], {0}

    class Worker:
        def __init__(self, number):
            self.number = number

        def answer(self, seeds, reading):
            asked.append(self.number)
            return response(seeds)

    workers = {number: Worker(number) for number in range(2)}
    front_end = FrontEnd(new_spec(), workers, np.full(1024, 3, np.uint64), is_down=down.__contains__)
    for _ in range(4):
        front_end.sample([3], features=False)
    assert asked == [1] * 4
    down.update((0, 1))  # there is none to choose from: either is asked
    for _ in range(4):
        front_end.sample([3], features=False)
    assert sorted(asked[4:]) == [0, 0, 1, 1]


def test_it_counts_what_readers_ask():
    class Worker:
        def answer(self, seeds, reading):
            time.sleep(0.01)
            return response(seeds)

    front_end = FrontEnd(new_spec(), {0: Worker(), 1: Worker()}, two_owners())
    front_end.sample([3, 3, 4], features=False)
    front_end.sample([3], features=False)
    seeds, seconds = front_end.take_demand()
    expected = np.zeros(1024, np.int64)
    np.add.at(expected, _native.buckets(np.array([3, 3, 3, 4])), 1)
    np.testing.assert_array_equal(seeds, expected)
    owners = {int(two_owners()[bucket]) // 2 for bucket in np.flatnonzero(expected)}
    assert set(seconds) == owners
    assert sum(seconds.values()) >= 0.02
    assert front_end.take_demand().seeds.sum() == 0
