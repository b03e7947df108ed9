"""Edges along which a batch did work, layer by layer, on a graph small enough to count by hand."""

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from tests.unit.inference.samples import engine, row, updates


def edges_of(changes: lg.Changes) -> list[int]:
    return [layer.edges for layer in changes.stats.layers]


# Row 0 changes: rows 0 and 1 of the first layer, rows 0, 1 and 2 of the second. Each of them has one in-edge.
@pytest.mark.parametrize(
    ("options", "edges"),
    [
        ({"path": "push"}, [1, 2, 0]),  # out-edges of the changed rows
        ({"path": "pull"}, [2, 3, 0]),  # in-edges of the affected rows
        ({"strategy": "affected"}, [2, 3, 0]),
        ({"path": "sweep"}, [6, 6, 0]),
        ({"strategy": "khop"}, [4, 3, 0]),  # in-edges of 0, 1, 2 and of those of their in-neighbours, 5 among them
        ({"strategy": "full"}, [6, 6, 0]),
    ],
)
def test_edges_are_those_of_the_path(options: Any, edges: list[int]) -> None:
    live = engine(**options)
    changes = live.apply(updates(("set_features", 0, row())))
    assert edges_of(changes) == edges
    read = [0, 0, 0] if options == {"path": "push"} else edges
    assert [layer.reread for layer in changes.stats.layers] == read
    live.verify()


@pytest.mark.parametrize(("strategy", "edges"), [("khop", [6, 3, 0]), ("sampled", [2, 1, 0])])
def test_sampling_counts_the_edges_that_it_draws(strategy: Any, edges: list[int]) -> None:
    live = engine(strategy=strategy, fanout=1)
    changes = live.apply(updates(("add_edge", 1, 4), ("add_edge", 2, 4)))  # 4 hears three, each of which hears one
    assert edges_of(changes) == edges


def test_exposed_extremes_count_the_in_edges_that_they_read() -> None:
    features = np.array([[0, 0], [5, 5], [4, 4], [1, 3], [0, 1]], np.float32)
    graph = lg.Graph(features, [1, 2, 3, 4], [0, 0, 0, 0])
    live = lg.Engine(lg.Model([lg.layers.SAGE(np.eye(2, dtype=np.float32), aggregate="max")]), graph, threads=1)
    changes = live.apply(updates(("remove_edge", 1, 0), ("remove_edge", 2, 0)))
    stage = changes.stats.layers[0]
    assert stage.extremes is not None
    assert stage.extremes.exposed == 1
    assert (stage.edges, stage.reread) == (2, 2)
