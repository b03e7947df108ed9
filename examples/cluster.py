"""One graph over two workers: the outputs are those of one engine, bit for bit, also after a worker was killed.

pip install 'livegnn[distributed]'
python examples/cluster.py
"""

import os
import signal

import numpy as np

import livegnn as lg

random = np.random.default_rng(3)
vertices, width = 3_000, 16


def matrix(rows: int, columns: int) -> np.ndarray:
    return (random.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)


def batch() -> lg.Updates:
    updates = lg.Updates()
    updates.add_edges(random.integers(0, vertices, 50), random.integers(0, vertices, 50))
    updates.set_features(int(random.integers(vertices)), random.normal(size=width).astype(np.float32))
    return updates


if __name__ == "__main__":
    x = random.normal(size=(vertices, width)).astype(np.float32)
    graph = lg.Graph(x, random.integers(0, vertices, 12_000), random.integers(0, vertices, 12_000))
    model = lg.Model(  # random weights stand for a trained model
        [lg.layers.GCN(matrix(32, width), activation="relu"), lg.layers.GCN(matrix(8, 32))]
    )
    engine = lg.Engine(model, graph)
    with lg.Cluster(model, graph, workers=2) as cluster:
        print(cluster.partition_report)
        for step in range(6):
            updates = batch()
            engine.apply(updates)
            if step == 3:
                os.kill(cluster.report()[1]["process"], signal.SIGKILL)
                print("killed a worker")
            changes = cluster.apply(updates)
            print(f"version {changes.version}: {len(changes)} outputs changed")
        for worker, facts in enumerate(cluster.report()):
            print(f"worker {worker}: {facts['vertices']} vertices, {facts['ghosts']} ghosts, {facts['bytes']:,} bytes")
        print(f"the bits of one engine: {cluster.state_digest() == engine.state_digest()}")
