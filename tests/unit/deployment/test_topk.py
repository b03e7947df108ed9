"""What the best vertices by live rows need of the graph."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import topk


def test_out_neighbours_are_not_left_out_while_their_edges_lie_in_files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3)).astype(np.float32)
    graph = lg.Graph(x, [0, 0, 1], [1, 2, 3], time=[1, 9, 9])
    engine = lg.Engine(lg.Model([lg.layers.GCN(rng.normal(size=(3, 3)), np.zeros(3))]), graph)
    graph.offload(before=5, path=tmp_path / "old.parquet")
    with pytest.raises(lg.errors.EdgeOffloaded, match="1 of the vertex in files"):
        topk.best(engine, vertex=0, linked=False)
    assert sorted(topk.best(engine, vertex=0).vertices.tolist()) == [1, 2, 3, 4]
    assert sorted(topk.best(engine, vertex=1, linked=False).vertices.tolist()) == [0, 2, 4]
    graph.reload()
    assert sorted(topk.best(engine, vertex=0, linked=False).vertices.tolist()) == [3, 4]
