"""lg.Cluster with a log: what stands is in the log, and what does not is not, whatever fails between."""

import logging
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.log import UpdateLog, replay
from livegnn.testing import streams
from livegnn.testing.models import random_model
from tests.simulation.world import MemoryLog


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="livegnn")


class FailingLog(MemoryLog):
    """fails: "before" an append, or "after" it, next time."""

    def __init__(self):
        super().__init__("failing", [], lambda: None)
        self.fails = ""

    def _put(self, offset, key, framed):
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise lg.errors.LogUnavailable("[append] expected a disk, got none; wait")
        put = super()._put(offset, key, framed)
        if fails == "after":
            raise lg.errors.LogUnavailable("[append] expected an answer, got none; read on")
        return put


class Logged:
    """An engine without a log, and a cluster with one, of the same graph."""

    def __init__(self, seed, workers, **options):
        self.rng = np.random.default_rng(seed)
        self.model = random_model(self.rng, weighted=False)
        self.first, self.mirror = streams.random_graph(self.rng, self.model.input_width, False, vertices=14)
        self.start = self.first.to_arrays()
        self.engine = lg.Engine(self.model, self.first, threads=1, name="scores")
        crew, self.log = ThreadCrew(workers, timeout_s=30), UpdateLog(FailingLog())
        self.cluster = lg.Cluster(
            self.model, self.first, workers, crew=crew, partition="hash", name="scores", **options
        )
        self.attachment = self.log.attach(self.cluster.graph)

    @property
    def crew(self):
        return self.cluster._crew._crew

    def batch(self):
        return streams.random_batch(self.rng, self.mirror, int(self.rng.integers(1, 9)))

    def losing(self, method, worker):
        """Loses a worker just before the crew is called for a method next time."""
        call, lost = self.crew.call, []

        def losing(calls):
            if calls[0][0] == method and not lost:
                lost.append(self.crew.kill(worker))
            return call(calls)

        self.crew.call = losing
        return lost

    def check(self, note):
        assert self.cluster.version == self.engine.graph.version == self.log.tail, note
        assert self.cluster.state_digest() == self.engine.state_digest(), note

    def check_replay(self):
        graph = lg.Graph.from_arrays(self.start)
        engine = lg.Engine(self.model, graph, threads=1, name="scores", scales=self.scales_at_start)
        replay(self.log, graph)
        assert engine.state_digest() == self.cluster.state_digest()
        other = lg.Graph.from_arrays(self.start)
        options = {"crew": ThreadCrew(3), "partition": "ldg", "name": "scores", "scales": self.scales_at_start}
        with lg.Cluster(self.model, other, 3, **options) as cluster:
            self.log.attach(cluster.graph).catch_up()
            assert cluster.state_digest() == self.cluster.state_digest()

    @property
    def scales_at_start(self):
        return lg.Engine(self.model, lg.Graph.from_arrays(self.start), threads=1).scales


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]), st.integers(1, 4))
def test_that_graph_log_and_workers_agree_whatever_fails(seed, workers, snapshot_batches):
    world = Logged(seed, workers, snapshot_batches=snapshot_batches)
    for number in range(8):
        kind = world.rng.choice(
            ["batch", "before", "after", "lost", "swap", "rescale"], p=[0.3, 0.15, 0.15, 0.2, 0.1, 0.1]
        )
        if kind == "swap":
            world.engine.swap(world.model)
            world.engine.graph.apply(lg.Updates())  # without a log a swap of an engine is no version
            world.cluster.swap(world.model)
        elif kind == "rescale":
            world.engine.rescale(16.0)
            world.engine.graph.apply(lg.Updates())
            world.cluster.rescale(16.0)
        else:
            updates = world.batch()
            if kind in ("before", "after"):
                world.log.log.fails = kind
                with pytest.raises(lg.errors.LogUnavailable):
                    world.cluster.apply(updates)
            delays = [float(world.rng.random() * 0.004)] if kind == "lost" else []
            timers = [threading.Timer(delay, world.crew.kill, [int(world.rng.integers(workers))]) for delay in delays]
            for timer in timers:
                timer.start()
            world.engine.apply(updates)
            if kind == "after":  # the log has it, and the graph follows
                assert world.log.tail == world.cluster.version + 1
                world.attachment.catch_up()
            else:
                world.cluster.apply(updates)
            for timer in timers:
                timer.join()
        world.check(f"{kind} at {number}")
    world.cluster.verify()
    world.check_replay()
    world.cluster.close()


@pytest.mark.parametrize("method", ["hold", "decide"])
def test_that_a_worker_lost_between_the_two_steps_comes_back_to_the_batch(method):
    world = Logged(3, 3, snapshot_batches=2)
    for _ in range(3):
        updates = world.batch()
        world.engine.apply(updates)
        lost = world.losing(method, 1)
        world.cluster.apply(updates)
        assert lost
        world.check(method)
    world.check_replay()


def test_that_a_batch_in_the_log_stands_though_no_worker_comes_back_at_once():
    world = Logged(4, 2)
    seen = []
    world.cluster.on_change(lambda changes: seen.append((changes.version, len(changes))))
    call, gone = world.crew.call, [True]

    def losing(calls):
        if calls[0][0] in ("decide", "start_again", "repeat_start") and gone:
            world.crew.kill(0)
            raise lg.errors.WorkerUnavailable("[cluster] expected worker 0, got none; reform the crew")
        return call(calls)

    updates = world.batch()
    world.engine.apply(updates)
    world.crew.call = losing
    world.cluster.apply(updates)
    assert seen == [(1, world.cluster.graph.vertex_count)]  # any of them may have changed
    with pytest.raises(lg.errors.WorkerUnavailable):
        world.cluster.state_digest()
    gone.clear()
    world.check("when they are back")
    world.check_replay()


def test_that_a_refused_batch_is_not_in_the_log():
    world = Logged(5, 3)
    updates = lg.Updates()
    updates.add_edge(0, 1)
    updates.remove_edge(0, 12345)
    with pytest.raises(lg.errors.VertexUnknown, match="12345"):
        world.cluster.apply(updates)
    assert world.log.tail == 0
    good = world.batch()
    world.engine.apply(good)
    world.cluster.apply(good)
    world.check("after a good one")


def test_that_a_swap_that_the_log_refuses_is_made_nowhere():
    world = Logged(6, 2)
    before = world.cluster.state_digest()
    world.log.log.fails = "before"
    with pytest.raises(lg.errors.LogUnavailable):
        world.cluster.rescale(64.0)
    assert world.cluster.state_digest() == before
    assert world.log.tail == world.cluster.version == 0
    updates = world.batch()
    world.engine.apply(updates)
    world.cluster.apply(updates)
    world.check("after")
