"""A small graph to serve, and a source that stops at a gate, so that requests pile up behind it."""

import threading
import time

import numpy as np

import livegnn as lg

VERTICES, WIDTH = 60, 4
QUERY = lg.query().out().sample(4).out().sample(3, by="top_k")


def small_sampler(query=QUERY):
    rng = np.random.default_rng(7)
    src, dst = rng.integers(0, VERTICES, 400), rng.integers(0, VERTICES, 400)
    src[src == 5] = 6  # vertex 5 has no samples
    features = rng.normal(size=(VERTICES, WIDTH)).astype(np.float32)
    return lg.PreSampler(lg.Graph(features, src, dst, time=rng.integers(0, 50, 400)), query, seed=3, threads=1)


def one_edge(u=5, v=9):
    updates = lg.Updates()
    updates.add_edge(u, v, time=60)
    return updates


def assert_same_sample(got, expected):
    assert got.version == expected.version
    np.testing.assert_array_equal(got.seeds, expected.seeds)
    for k in range(1, expected.hops + 1):
        np.testing.assert_array_equal(got.hop(k), expected.hop(k))
        np.testing.assert_array_equal(got.edge_ids(k), expected.edge_ids(k))
    for k in range(expected.hops + 1):
        np.testing.assert_array_equal(got.features(k), expected.features(k))


def waiting(server, count):
    """Waits until so many requests stand in the queue."""
    until = time.monotonic() + 30
    while server.stats.waiting < count:
        assert time.monotonic() < until
        time.sleep(0.001)


class Gated(lg.sampling.SampleSource):
    """A source whose calls wait until the gate is open, and are counted."""

    def __init__(self, sampler):
        self.sampler, self.graph = sampler, sampler.graph
        self.gate, self.entered = threading.Event(), threading.Event()
        self.calls = []

    @property
    def plan(self):
        return self.sampler.plan

    @property
    def version(self):
        return self.sampler.version

    def wait_for(self, version, timeout):
        self.sampler.wait_for(version, timeout)

    def answer(self, slots, options):
        self.calls.append(len(slots))
        self.entered.set()
        assert self.gate.wait(30)
        return self.sampler.answer(slots, options)

    def stopped_by(self, server):
        """Starts a request that stands at the gate; gives its thread."""
        thread = threading.Thread(target=server.sample, args=([0],))
        thread.start()
        assert self.entered.wait(30)
        return thread
