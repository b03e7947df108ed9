"""Minima and maxima: values, ties, empty neighbourhoods, and which case a change is."""

from typing import Any

import numpy as np
import pytest

import livegnn as lg

EYE = np.eye(2, dtype=np.float32)


def engine(features: Any, edges: Any, aggregate: str = "max", **options: Any) -> lg.Engine:
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    model = lg.Model([lg.layers.SAGE(EYE, aggregate=aggregate)])
    return lg.Engine(model, lg.Graph(np.array(features, np.float32), src, dst), threads=1, **options)


def batch(*updates: Any) -> lg.Updates:
    made = lg.Updates()
    for name, *arguments in updates:
        getattr(made, name)(*arguments)
    return made


def counts(changes: lg.Changes) -> Any:
    found = changes.stats.layers[0].extremes
    assert found is not None
    return found


# vertex 0 hears 1, 2, 3
FEATURES = [[0, 0], [5, 1], [3, 2], [1, 3]]
EDGES = [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize(("aggregate", "expected"), [("max", [5, 3]), ("min", [1, 1])])
def test_the_extremum_of_each_column(aggregate, expected):
    assert engine(FEATURES, EDGES, aggregate).embeddings([0]).tolist() == [expected]


def test_no_messages_give_zero_and_a_negative_maximum_stays_negative():
    live = engine([[0, 0], [-5, -1], [7, 7]], [(1, 0)])
    assert live.embeddings([0, 1]).tolist() == [[-5, -1], [0, 0]]
    live.apply(batch(("remove_edge", 1, 0)))
    assert live.embeddings([0]).tolist() == [[0, 0]]
    live.apply(batch(("add_edge", 1, 0)))
    assert live.embeddings([0]).tolist() == [[-5, -1]]
    live.verify()


def test_an_edge_that_only_comes_is_no_deletion():
    found = counts(engine(FEATURES, EDGES).apply(batch(("add_edge", 0, 0))))
    assert (found.no_deletion, found.resilient, found.reread_bytes) == (1, 1, 0)


def test_a_message_that_leaves_without_an_extremum_has_no_effect():
    live = engine([[0, 0], [5, 5], [3, 2]], [(1, 0), (2, 0)])
    changes = live.apply(batch(("remove_edge", 2, 0)))
    found = counts(changes)
    assert (found.no_effect, found.resilient) == (1, 1)
    assert changes.vertices.tolist() == []


def test_an_extremum_that_leaves_is_covered_by_the_next_best():
    live = engine(FEATURES, EDGES)
    found = counts(live.apply(batch(("remove_edge", 1, 0))))
    assert (found.covered, found.exposed, found.reread_bytes, found.resilient) == (1, 0, 0, 0)
    assert live.embeddings([0]).tolist() == [[3, 3]]


def test_two_extrema_that_leave_expose_the_column():
    live = engine(FEATURES, EDGES)
    found = counts(live.apply(batch(("remove_edge", 1, 0), ("remove_edge", 2, 0))))
    assert (found.covered, found.exposed) == (0, 1)
    assert found.reread_bytes == 64  # one cache line of the one message left
    assert live.embeddings([0]).tolist() == [[1, 3]]
    live.verify()


def test_a_new_message_of_the_batch_covers_an_exposed_column():
    live = engine(FEATURES, EDGES)
    removed = [("remove_edge", u, 0) for u in (1, 2, 3)]
    found = counts(live.apply(batch(*removed, ("add_vertex", 4, [9, 9]), ("add_edge", 4, 0))))
    assert (found.covered, found.exposed, found.reread_bytes) == (1, 0, 0)
    assert live.embeddings([0]).tolist() == [[9, 9]]
    live.verify()


def test_ties_hold_without_reading_again():
    live = engine([[0, 0], [4, 4], [4, 4], [4, 4]], EDGES)
    changes = live.apply(batch(("remove_edge", 1, 0)))
    assert counts(changes).reread_bytes == 0
    assert changes.vertices.tolist() == []
    live.verify()


def test_parallel_edges_are_messages_of_their_own():
    live = engine([[0, 0], [4, 4], [1, 1]], [(1, 0), (1, 0), (2, 0)])
    live.apply(batch(("remove_edge", 1, 0)))
    assert live.embeddings([0]).tolist() == [[4, 4]]
    live.apply(batch(("remove_edge", 1, 0)))
    assert live.embeddings([0]).tolist() == [[1, 1]]
    live.verify()


def test_zero_has_one_sign():
    live = engine([[0, 0], [-0.0, 1], [0.0, 1]], [(1, 0), (2, 0)])
    live.apply(batch(("remove_edge", 2, 0)))
    assert not np.signbit(live.embeddings([0])).any()
    live.verify()


def test_a_weight_that_makes_a_message_infinite_rolls_the_batch_back():
    features = np.array([[0.0], [3e38]], np.float32)
    graph = lg.Graph(features, [1], [0], weight=np.array([1.0], np.float32))
    one = np.eye(1, dtype=np.float32)
    live = lg.Engine(lg.Model([lg.layers.GraphConv(one, one, aggregate="max", weighted=True)]), graph, threads=1)
    before = live.state_digest()
    with pytest.raises(lg.errors.RangeOverflow, match=r"expected finite messages .* at vertex 0"):
        live.apply(batch(("set_weight", 1, 0, 100.0)))
    assert live.state_digest() == before
    live.verify()


def test_layers_without_extremes_have_no_counts():
    model = lg.Model([lg.layers.SAGE(EYE)])
    live = lg.Engine(model, lg.Graph(np.zeros((2, 2), np.float32), [0], [1]), threads=1)
    assert live.apply(batch(("add_edge", 1, 0))).stats.layers[0].extremes is None


@pytest.mark.parametrize("aggregate", ["max", "min"])
@pytest.mark.parametrize("state", ["fast", "compact"])
@pytest.mark.parametrize("width", [1, 15, 16, 17, 48])
def test_long_streams_of_hub_changes_stay_equal_to_a_fresh_run(aggregate, state, width):
    rng = np.random.default_rng(width)
    features = rng.integers(-3, 4, (40, width)).astype(np.float32)  # many ties
    src, dst = rng.integers(0, 40, 200), rng.integers(0, 3, 200)
    weight = rng.standard_normal((width, width)).astype(np.float32)
    layers = [
        lg.layers.SAGE(weight, weight, aggregate=aggregate, activation="relu"),
        lg.layers.SAGE(weight, aggregate=aggregate),
    ]
    live = lg.Engine(lg.Model(layers), lg.Graph(features, src, dst), threads=2, state=state)
    for _ in range(25):
        updates = lg.Updates()
        for vertex in rng.integers(0, 40, 6):
            updates.set_features(int(vertex), rng.integers(-3, 4, width).astype(np.float32))
        for edge in rng.integers(0, live.graph.edge_count, 3):
            updates.remove_edge(int(src[edge % 200]), int(dst[edge % 200]), missing="ignore")
        updates.add_edges(rng.integers(0, 40, 4), rng.integers(0, 3, 4))
        live.apply(updates)
        live.verify()
