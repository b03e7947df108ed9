"""Graphs, updates and comparisons for tests of clusters on Ray."""

import random
import time

import numpy as np

import livegnn as lg
from livegnn.errors import UpdateError
from tests.simulation.test_simulation_sampling import random_batch

QUICK = {"log_options": {"synchronous": "NORMAL"}}
QUERY = lg.query().out().sample(3).out().sample(2)


def random_graph(seed=1):
    rng = random.Random(seed)
    src, dst = [[rng.randrange(30) for _ in range(80)] for _ in range(2)]
    return lg.Graph(np.ones((30, 2), np.float32), src, dst, time=[rng.randint(0, 50) for _ in range(80)])


def write_some(rng, graph, count):
    for _ in range(count):
        try:
            graph.apply(random_batch(rng, graph))
        except UpdateError:
            continue


def compare(cluster, alone, seeds=None, hops=2, **options):
    """Reads after a write see it, and equal those of one process, bit for bit."""
    graph = cluster.graph
    seeds = graph.vertices() if seeds is None else seeds
    got = cluster.sample(seeds, at_least=graph.version, timeout=120, **options)
    expected = alone.sample(seeds, **options)
    assert got.version >= graph.version
    for hop in range(1, hops + 1):
        np.testing.assert_array_equal(got.hop(hop), expected.hop(hop))
        np.testing.assert_array_equal(got.edge_ids(hop), expected.edge_ids(hop))
    for level in range(hops + 1):
        np.testing.assert_array_equal(got.features(level), expected.features(level))
    return got, expected


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
