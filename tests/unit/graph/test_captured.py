"""A captured graph is the one of its version, whatever the graph does before and after the copy is taken."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.graph.saved import CapturedGraph
from livegnn.testing import random_batch, random_graph

KINDS = {
    "plain": {},
    "ids": {"ids": np.arange(40) * 3},
    "text": {"ids": np.array([f"v{i}" for i in range(40)])},
    "columns": {"weight": 1, "time": 1, "edge_type": 1, "edge_attr": 1},
    "undirected": {"undirected": True},
    "half": {"feature_dtype": "float16"},
}


def made(kind, seed=0):
    rng = np.random.default_rng(seed)
    options = dict(KINDS[kind])
    ends = rng.integers(0, 40, (2, 900))
    ends[0, :500] = 7  # a hub: a chain of blocks
    for name, column in (
        ("weight", rng.random(900, dtype=np.float32)),
        ("time", np.arange(900)),
        ("edge_type", np.arange(900, dtype=np.int64) % 3),
        ("edge_attr", rng.random((900, 2), dtype=np.float32)),
    ):
        if name in options:
            options[name] = column
    ids = options.get("ids")
    ends = ends if ids is None else ids[ends]
    return lg.Graph(rng.random((40, 3), dtype=np.float32), ends[0], ends[1], **options)


def same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def change(graph, kind):
    updates = lg.Updates()
    name = {"ids": lambda v: v * 3, "text": lambda v: f"v{v}"}.get(kind, lambda v: v)
    more = {"weight": 2.0, "time": 1000, "edge_type": 1, "edge_attr": [1.0, 2.0]} if kind == "columns" else {}
    for i in range(300):
        updates.add_edge(name(i % 40), name((i * 7) % 40), **more)
    updates.remove_vertex(name(3))
    updates.set_features(name(4), np.ones(3, np.float32))
    graph.apply(updates)


@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_is_of_the_version_at_which_it_was_taken(kind):
    graph = made(kind)
    captured = CapturedGraph(graph.host)
    change(graph, kind)  # more than there was room for
    with graph.host.lock:
        captured.take()
    digest, expected = graph.digest(), graph.to_arrays()
    graph.compact()
    edges = lg.Updates()
    edges.remove_vertex({"ids": 15, "text": "v5"}.get(kind, 5))
    graph.apply(edges)
    assert graph.digest() != digest
    same(captured.to_arrays(), expected)
    again = lg.Graph.from_arrays(captured.to_arrays())
    assert (again.digest(), again.version) == (digest, captured.version)
    assert graph.to_arrays()["store.counters"][0] == captured.version + 1


@pytest.mark.parametrize("seed", range(6))
def test_a_graph_of_its_arrays_goes_on_as_the_graph(seed):
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, 3, bool(seed % 2))
    for _ in range(5):
        graph.apply(random_batch(rng, mirror, 20))
    again = lg.Graph.from_arrays(graph.to_arrays())
    batch = random_batch(rng, mirror, 20)
    graph.apply(batch)
    again.apply(batch)
    assert again.digest() == graph.digest()
    same(again.to_arrays(), graph.to_arrays())
