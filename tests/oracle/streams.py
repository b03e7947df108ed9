"""Random updates of a live graph, mirrored: the engine's rows against a module on the same graph, and from scratch."""

import copy

import numpy as np
import torch

import livegnn as lg
from tests.oracle.pyg_oracle import liven


def normal_rows(rng, count, width):
    return rng.standard_normal((count, width)).astype(np.float32)


class Mirror:
    """A graph as arrays: features by vertex, and edges, of which parallel ones are alike."""

    def __init__(self, rng, width, rows, vertices=12, edges=40):
        self.rng, self.width, self.rows = rng, width, rows
        self.x = rows(rng, vertices, width)
        self.edges = [tuple(each) for each in rng.integers(0, vertices, (edges, 2)).tolist()]

    def updates(self):
        """One batch of every kind of update; a new vertex comes with its edges."""
        updates, rng, count = lg.Updates(), self.rng, len(self.x)
        for _ in range(3):
            u, v = self.edges.pop(int(rng.integers(len(self.edges))))
            updates.remove_edge(u, v)
        self.x = np.concatenate([self.x, self.rows(rng, 1, self.width)])
        updates.add_vertex(count, self.x[count])
        for u, v in rng.integers(0, count + 1, (5, 2)).tolist():
            self.edges.append((u, v))
            updates.add_edge(u, v)
        changed = int(rng.integers(count))
        self.x[changed] = self.rows(rng, 1, self.width)[0]
        updates.set_features(changed, self.x[changed])
        return updates

    def arrays(self):
        return self.x, np.array(self.edges, np.int64).reshape(-1, 2).T.copy()


def assert_live(module, *, width, rows=normal_rows, batches=4, run=None, **options):
    """After every batch the engine's rows are the module's in float64, and bit for bit those from scratch."""
    liven(module)
    model, truth = lg.from_pyg(module, **options), copy.deepcopy(module).double()
    mirror = Mirror(np.random.default_rng(5), width, rows)
    graph = lg.Graph(mirror.x, *mirror.arrays()[1])
    engine = lg.Engine(model, graph)
    for batch in range(batches + 1):
        if batch:
            engine.apply(mirror.updates())
        x, pairs = mirror.arrays()
        with torch.no_grad():
            given = torch.tensor(x).double(), torch.tensor(pairs)
            want = (truth(*given) if run is None else run(truth, *given)).numpy().reshape(len(x), -1)
        got = engine.embeddings(np.arange(len(x)))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * max(1.0, np.abs(want).max()), err_msg=f"{batch}")
        np.testing.assert_array_equal(got, engine.recompute())
        engine.verify()
    return model
