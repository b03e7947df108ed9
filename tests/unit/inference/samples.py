"""A small graph, models on it, and batches: what the tests of engines share."""

import numpy as np

import livegnn as lg

N, WIDTH = 6, 4
SRC, DST = [0, 1, 2, 3, 5, 5], [1, 2, 3, 4, 5, 0]
INT_IDS = [100, 70, 50, 30, 20, 10]
STR_IDS = ["ann", "bob", "cyd", "dan", "eve", "fay"]


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(out=3, *, seed=1, width=WIDTH):
    """GraphConv twice, no weights read: sums over edges, so every update shows."""
    first = lg.layers.GraphConv(array(5, width, seed=seed), array(5, width, seed=seed + 1), activation="tanh")
    return lg.Model([first, lg.layers.GraphConv(array(out, 5, seed=seed + 2), array(out, 5, seed=seed + 3))])


def graph(ids=None, **options):
    src, dst = (SRC, DST) if ids is None else ([ids[u] for u in SRC], [ids[v] for v in DST])
    return lg.Graph(array(N, WIDTH), src, dst, ids=ids, **options)


def weighted_graph():
    return graph(weight=np.ones(len(SRC), np.float32))


def weighted_gcn():
    return lg.Model([lg.layers.GCN(array(3, WIDTH, seed=2), activation="relu", weighted=True)])


def engine(**options):
    return lg.Engine(model(), graph(), threads=1, **options)


def updates(*calls):
    """Updates from calls by name: updates(("add_edge", 0, 2), ("remove_vertex", 4))."""
    batch = lg.Updates()
    for name, *arguments in calls:
        getattr(batch, name)(*arguments)
    return batch


def row(seed=9, scale=1.0):
    return array(WIDTH, seed=seed) * np.float32(scale)
