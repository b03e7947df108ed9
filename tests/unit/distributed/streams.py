"""Small temporal graphs for tests of distributed training."""

import numpy as np

import livegnn as lg


def stream_graph(*, seed=0, vertices=40, edges=400, features=0, attrs=0, undirected=False, times=100, ttl=None):
    """Random edges at random times, many of them at the same one; features and attributes that tell ids apart."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, vertices, (2, edges))
    columns = {"time": rng.integers(0, times, edges)}
    if attrs:
        columns["edge_attr"] = rng.normal(size=(edges, attrs)).astype(np.float32)
    x = rng.normal(size=(vertices, features)).astype(np.float32)
    return lg.Graph(x, src, dst, undirected=undirected, ttl=ttl, **columns)


def targets_of(graph, *, seed=1, count=60, times=110):
    """Vertices and times, in no order."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, graph.slot_count, count), rng.integers(0, times, count)
