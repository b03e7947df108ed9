"""Parts as arrays: which vertices they hold, and in which order."""

import numpy as np

import livegnn as lg
from livegnn.distributed.cluster.cut import cut


def test_own_vertices_come_before_ghosts():
    src, dst = np.array([0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0])
    graph = lg.Graph(np.arange(5, dtype=np.float32)[:, None], src, dst)
    parts = cut(graph, np.array([1, 0, 1, 0, 1], np.uint16), 2)
    assert [part.globals.tolist() for part in parts] == [[1, 3, 0, 2, 4], [0, 2, 4, 1, 3]]
    for part in parts:
        names, store = part.globals, part.store
        assert store["features"][:, 0].tolist() == names.tolist()
        held = (part.owners[src] == part.part) | (part.owners[dst] == part.part)
        assert names[store["src"]].tolist() == src[held].tolist()
        assert names[store["dst"]].tolist() == dst[held].tolist()
