"""A model from plain arrays, without PyTorch: layer specs, a stream of updates, and the proof that nothing drifted."""

import numpy as np

import livegnn as lg

random = np.random.default_rng(0)
vertices, width, hidden, classes = 1_000, 12, 16, 3


def matrix(rows: int, columns: int) -> np.ndarray:
    return (random.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)


model = lg.Model(
    [
        lg.layers.GCN(matrix(hidden, width), np.zeros(hidden, dtype=np.float32), activation="relu"),
        lg.layers.SAGE(matrix(hidden, hidden), matrix(hidden, hidden), activation="relu"),
        lg.layers.Dense(matrix(classes, hidden)),
    ]
)
x = random.normal(size=(vertices, width)).astype(np.float32)
src, dst = random.integers(0, vertices, 5_000), random.integers(0, vertices, 5_000)
graph = lg.Graph(x, src, dst)
engine = lg.Engine(model, graph)
print("classes at the start: ", np.bincount(engine.predict(np.arange(vertices)), minlength=classes))

changed = 0
for batch in range(50):
    updates = lg.Updates()
    updates.add_edges(random.integers(0, vertices, 10), random.integers(0, vertices, 10))
    updates.remove_edge(int(src[batch]), int(dst[batch]))
    updates.set_features(batch, random.normal(size=width).astype(np.float32))
    changed += len(engine.apply(updates).vertices)

print("classes at the end:   ", np.bincount(engine.predict(np.arange(vertices)), minlength=classes))
print(f"{graph.version} batches changed {changed} outputs in all")
engine.verify()
print("same bits as a run from scratch:", np.array_equal(engine.recompute(), engine.embeddings(np.arange(vertices))))
