"""Updates: what each method asks of a graph, and how calls are counted, joined and cleared."""

from __future__ import annotations

import numpy as np
import pytest

from livegnn.errors import DtypeInvalid, EdgeMissing, UsageError
from livegnn.graph import Graph, Updates


def make_graph(**options: object) -> Graph:
    """0 -> 1 -> 2 -> 0 and a second 0 -> 1; weights 1, 2, 3, 4; times 10, 20, 30, 40; types 0, 1, 0, 1."""
    columns: dict[str, object] = {
        "weight": np.array([1, 2, 3, 4], np.float32),
        "time": np.array([10, 20, 30, 40]),
        "edge_type": np.array([0, 1, 0, 1]),
        "edge_attr": np.arange(8, dtype=np.float32).reshape(4, 2),
    }
    return Graph(np.eye(3, dtype=np.float32), [0, 1, 2, 0], [1, 2, 0, 1], **{**columns, **options})  # type: ignore[arg-type]


def edge_list(graph: Graph) -> list[tuple[int, int, int]]:
    edges = graph.edges()
    return list(zip(edges["src"].tolist(), edges["dst"].tolist(), edges["id"].tolist(), strict=True))


def test_add_edge_gives_the_next_id_and_keeps_its_columns() -> None:
    graph, updates = make_graph(), Updates()
    updates.add_edge(2, 2, weight=0.5, time=25, edge_type=3, edge_attr=[7.0, 8.0])
    assert graph.apply(updates) == 1
    edges = graph.edges()
    assert edge_list(graph)[-1] == (2, 2, 4)
    assert (edges["weight"][-1], edges["time"][-1], edges["type"][-1]) == (0.5, 25, 3)
    assert edges["attr"][-1].tolist() == [7, 8]


def test_add_edges_takes_arrays_lists_and_every_integer_dtype() -> None:
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        graph = Graph(np.eye(3), [0], [1])
        updates = Updates()
        updates.add_edges(np.array([1, 2], dtype), np.array([2, 2], dtype))
        updates.add_edges([0], (0,))
        updates.add_edges([], [])
        graph.apply(updates)
        assert edge_list(graph) == [(0, 1, 0), (1, 2, 1), (2, 2, 2), (0, 0, 3)]


def test_numpy_and_torch_scalars_are_numbers() -> None:
    torch = pytest.importorskip("torch")
    graph, updates = Graph(np.eye(3), [0], [1], weight=[1.0]), Updates()
    updates.add_edge(np.int32(1), np.uint64(2), weight=np.float64(2))
    updates.add_edge(torch.tensor(2), torch.tensor(0), weight=torch.tensor(3.0))
    updates.set_features(np.int64(0), torch.tensor([1.0, 2.0, 3.0]))
    graph.apply(updates)
    assert edge_list(graph) == [(0, 1, 0), (1, 2, 1), (2, 0, 2)]
    assert graph.edges()["weight"].tolist() == [1, 2, 3]
    assert graph.features([0]).tolist() == [[1, 2, 3]]


def test_remove_edge_takes_the_newest_match() -> None:
    for arguments, left in (
        ({}, [0, 1, 2]),
        ({"time": 10}, [1, 2, 3]),
        ({"edge_type": 0}, [1, 2, 3]),
        ({"edge_id": 0}, [1, 2, 3]),
        ({"time": 40, "edge_type": 1, "edge_id": 3}, [0, 1, 2]),
    ):
        graph, updates = make_graph(), Updates()
        updates.remove_edge(0, 1, **arguments)
        graph.apply(updates)
        assert graph.edges()["id"].tolist() == left


def test_missing_edges_are_refused_or_ignored() -> None:
    graph, updates = make_graph(), Updates()
    updates.remove_edge(1, 0, missing="ignore")
    updates.remove_edges([2, 2, 2], [0, 0, 1], missing="ignore")
    graph.apply(updates)
    assert graph.edges()["id"].tolist() == [0, 1, 3]
    updates.clear()
    updates.remove_edge(1, 2, time=21)
    with pytest.raises(EdgeMissing):
        graph.apply(updates)


def test_remove_edges_before_is_strict() -> None:
    graph, updates = make_graph(), Updates()
    updates.remove_edges_before(30)
    graph.apply(updates)
    assert graph.edges()["id"].tolist() == [2, 3]


def test_weights_and_attributes_change_the_newest_edge_or_the_named_one() -> None:
    graph, updates = make_graph(), Updates()
    updates.set_weight(0, 1, 40)
    updates.set_weight(0, 1, 10.5, edge_id=0)
    updates.set_weights([1, 2], [2, 0], [20.0, 30.0])
    updates.set_edge_attr(0, 1, [1, 1], edge_id=0)
    updates.set_edge_attr(0, 1, np.array([2, 2], np.float64))
    graph.apply(updates)
    assert graph.edges()["weight"].tolist() == [10.5, 20, 30, 40]
    assert graph.edges()["attr"].tolist() == [[1, 1], [2, 3], [4, 5], [2, 2]]


def test_features_are_set_for_one_vertex_or_many() -> None:
    graph, updates = make_graph(), Updates()
    updates.set_features(0, [1, 2, 3])
    updates.set_features([2, 1], np.array([[4, 5, 6], [7, 8, 9]], np.float32))
    graph.apply(updates)
    assert graph.features().tolist() == [[1, 2, 3], [7, 8, 9], [4, 5, 6]]


def test_vertices_come_and_go_and_come_again() -> None:
    graph, updates = make_graph(), Updates()
    updates.remove_vertex(1)
    updates.add_vertex(3, [9, 9, 9])
    updates.add_vertices([4, 1], np.ones((2, 3)))
    updates.remove_vertices([0])
    graph.apply(updates)
    assert graph.vertices().tolist() == [1, 2, 3, 4]
    assert graph.edge_count == 0
    assert graph.features([1, 3]).tolist() == [[1, 1, 1], [9, 9, 9]]


def test_length_counts_single_updates() -> None:
    updates = Updates()
    updates.add_edges([0, 1, 2], [1, 2, 0])
    updates.remove_edges_before(5)
    updates.remove_vertices([1, 2])
    assert len(updates) == 6
    assert repr(updates) == "Updates(6)"
    updates.clear()
    assert len(updates) == 0


def test_extend_appends_in_order_for_both_kinds_of_ids() -> None:
    for ids, (a, b, c) in ((None, (0, 1, 2)), (["a", "b", "c"], ("a", "b", "c"))):
        graph = Graph(np.eye(3), [a], [b], ids=ids)
        first, second = Updates(), Updates()
        first.add_edge(b, c)
        second.add_edge(c, a)
        second.remove_vertex(b)
        first.extend(second)
        first.extend(Updates())
        assert (len(first), len(second)) == (3, 2)
        graph.apply(first)
        assert edge_list(graph) == [(c, a, 2)]


def test_extend_by_itself_doubles() -> None:
    graph, updates = Graph(np.eye(2), [], []), Updates()
    updates.add_edge(0, 1)
    updates.extend(updates)
    graph.apply(updates)
    assert graph.edge_count == 2


def test_extend_refuses_the_other_kind_and_other_types() -> None:
    numbers, words = Updates(), Updates()
    numbers.add_edge(0, 1)
    words.add_edge("a", "b")
    for one, other in ((numbers, words), (words, numbers)):
        with pytest.raises(DtypeInvalid, match="one kind of id"):
            one.extend(other)
        assert len(one) == 1
    with pytest.raises(UsageError, match="expected Updates, got list"):
        numbers.extend([])  # type: ignore[arg-type]


def test_the_same_updates_may_be_applied_again_and_elsewhere() -> None:
    updates = Updates()
    updates.add_edge("b", "a")
    updates.add_vertex("z", [1.0])
    graphs = [Graph(np.zeros((2, 1)), [], [], ids=["a", "b"]), Graph(np.zeros((3, 1)), [], [], ids=["c", "b", "a"])]
    for graph in graphs:
        graph.apply(updates)
        assert edge_list(graph) == [("b", "a", 0)]
        assert "z" in graph


def test_a_cleared_object_takes_ids_of_the_other_kind() -> None:
    updates = Updates()
    updates.add_edge("a", "b")
    updates.clear()
    updates.add_edge(0, 1)
    graph = Graph(np.eye(2), [], [])
    graph.apply(updates)
    assert edge_list(graph) == [(0, 1, 0)]
