"""External ids: strings and int64, how they take slots, and that a refused batch leaves them alone."""

from __future__ import annotations

import numpy as np
import pytest

from livegnn.errors import (
    DtypeInvalid,
    EdgeMissing,
    UsageError,
    ValueInvalid,
    VertexExists,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates

from .test_updates import edge_list


def named_graph() -> Graph:
    return Graph(np.eye(3), ["a", "b"], ["b", "c"], ids=["a", "b", "c"])


def test_reading_by_name() -> None:
    graph = named_graph()
    assert edge_list(graph) == [("a", "b", 0), ("b", "c", 1)]
    assert graph.features(["c", "a"]).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert graph.features(np.array(["b"])).tolist() == [[0, 1, 0]]
    assert graph.in_neighbours("b")["src"].tolist() == ["a"]
    assert graph.out_neighbours("b")["dst"].tolist() == ["c"]
    assert graph.in_degree(["a", "b"]).tolist() == [0, 1]
    assert graph.is_live(["a", "z"]).tolist() == [True, False]
    assert ("a" in graph, "z" in graph, 0 in graph) == (True, False, False)
    assert graph.to_slots(["c", "b"]).tolist() == [2, 1]
    assert graph.to_external([2, 0]).tolist() == ["c", "a"]
    assert graph.vertices().tolist() == ["a", "b", "c"]


def test_integer_ids_of_ones_own() -> None:
    big = 2**62
    graph = Graph(np.eye(3), [big, 7], [7, 9], ids=[7, big, 9])
    assert edge_list(graph) == [(big, 7, 0), (7, 9, 1)]
    assert graph.vertices().dtype == np.int64
    updates = Updates()
    updates.add_vertex(10**12, [1, 2, 3])
    updates.add_edges(np.full(40, 10**12), np.tile([7, big], 20))
    graph.apply(updates)
    assert graph.in_degree([7, big]).tolist() == [21, 20]
    assert graph.to_slots([10**12]).tolist() == [3]


def test_a_new_id_takes_the_smallest_free_slot_then_the_next() -> None:
    graph, updates = named_graph(), Updates()
    updates.remove_vertices(["c", "a"])
    graph.apply(updates)
    updates.clear()
    for name in ("x", "y", "z"):
        updates.add_vertex(name, [1, 1, 1])
    graph.apply(updates)
    assert graph.to_slots(["x", "y", "z", "b"]).tolist() == [0, 2, 3, 1]


def test_slots_do_not_depend_on_how_the_log_is_cut() -> None:
    steps = [("remove", "b"), ("add", "p"), ("remove", "a"), ("remove", "c"), ("add", "b"), ("add", "q"), ("add", "r")]
    whole, cut, together = named_graph(), named_graph(), Updates()
    for kind, name in steps:
        one = Updates()
        for updates in (one, together):
            if kind == "add":
                updates.add_vertex(name, [1, 2, 3])
            else:
                updates.remove_vertex(name)
        cut.apply(one)
    whole.apply(together)
    names = ["b", "p", "q", "r"]
    assert whole.to_slots(names).tolist() == cut.to_slots(names).tolist()
    assert whole.digest() == cut.digest()


def test_within_a_batch_a_name_means_what_the_updates_before_made_of_it() -> None:
    graph, updates = named_graph(), Updates()
    updates.remove_vertex("b")
    updates.add_vertex("new", [5, 5, 5])  # takes b's slot
    updates.add_edge("new", "a")
    updates.add_vertex("b", [6, 6, 6])
    updates.add_edge("b", "new")
    graph.apply(updates)
    assert edge_list(graph) == [("new", "a", 2), ("b", "new", 3)]
    assert graph.features(["new", "b"]).tolist() == [[5, 5, 5], [6, 6, 6]]


@pytest.mark.parametrize("many", [False, True])
def test_unknown_and_known_names_are_refused_by_place_and_name(many: bool) -> None:
    graph = Graph(np.eye(3), [10], [20], ids=[10, 20, 30])
    before = graph.digest(), edge_list(graph)
    filler = 100 if many else 1

    def refused(updates: Updates, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            graph.apply(updates)
        assert (graph.digest(), edge_list(graph), graph.version) == (*before, 0)

    for place, add in ((0, (10, 99)), (1, (99, 10))):
        updates = Updates()
        updates.add_edges([10] * filler, [20] * filler)
        updates.add_edge(*add)
        refused(updates, VertexUnknown, f"update {filler}.*got 99")
        assert place in (0, 1)
    updates = Updates()
    updates.remove_vertex(10)
    updates.add_edges([20] * filler, [10] * filler)
    refused(updates, VertexUnknown, "update 1.*got 10")
    updates = Updates()
    updates.add_vertex(20, [1, 1, 1])
    refused(updates, VertexExists, "update 0.*got 20")
    updates = Updates()
    updates.remove_vertices([30, 30])
    refused(updates, VertexUnknown, "update 1.*got 30")


def test_a_batch_that_fails_later_leaves_the_names_alone() -> None:
    graph, updates = named_graph(), Updates()
    updates.remove_vertex("a")
    updates.add_vertex("z", [1, 1, 1])
    updates.add_vertex("y", [1, 1])  # too narrow: only the store can know
    before = graph.digest(), graph.vertices().tolist()
    with pytest.raises(WidthMismatch):
        graph.apply(updates)
    assert (graph.digest(), graph.vertices().tolist(), "z" in graph) == (*before, False)
    updates.clear()
    updates.add_vertex("z", [1, 1, 1])
    graph.apply(updates)
    assert graph.to_slots(["z"]).tolist() == [3]


def test_the_stores_own_errors_name_the_users_ids() -> None:
    graph, updates = named_graph(), Updates()
    updates.add_edge("a", "c")
    updates.remove_edge("c", "b")
    with pytest.raises(EdgeMissing, match=r"'c'.*'b'"):
        graph.apply(updates)


def test_kinds_of_ids_do_not_mix() -> None:
    updates = Updates()
    updates.add_edge("a", "b")
    with pytest.raises(DtypeInvalid, match="expected u and v of one kind, got 'a' and 3"):
        updates.add_edge("a", 3)
    with pytest.raises(DtypeInvalid, match="expected string ids as in the updates before, got 3"):
        updates.remove_vertex(3)
    with pytest.raises(DtypeInvalid, match="one kind of id"):
        updates.add_edges([0], [1])
    assert len(updates) == 1
    numbers = Updates()
    numbers.add_edge(0, 1)
    with pytest.raises(DtypeInvalid, match="expected int64 ids as in the updates before, got 'a'"):
        numbers.remove_vertex("a")
    with pytest.raises(DtypeInvalid, match="expected updates with string ids, got int64"):
        named_graph().apply(numbers)
    with pytest.raises(DtypeInvalid, match="expected updates with int64 ids, got string"):
        Graph(np.eye(2), [], [], ids=[0, 1]).apply(updates)
    with pytest.raises(UsageError, match="make the graph with ids="):
        Graph(np.eye(2), [], []).apply(updates)
    with pytest.raises(DtypeInvalid, match="expected a string as vertex id, got 0"):
        named_graph().in_neighbours(0)
    with pytest.raises(DtypeInvalid, match="string ids in ids, got 0 of int at row 0"):
        named_graph().features([0])
    with pytest.raises(DtypeInvalid, match="expected int64 ids in ids"):
        Graph(np.eye(2), [], [], ids=[0, 1]).features(["a"])


def test_updates_without_vertices_suit_every_graph() -> None:
    for ids in (None, ["a", "b"], [7, 8]):
        graph, updates = Graph(np.eye(2), [], [], ids=ids, time=[]), Updates()
        updates.remove_edges_before(3)
        graph.apply(updates)
        graph.apply(Updates())
        assert graph.version == 2


def test_reading_what_is_not_there_names_it() -> None:
    graph = named_graph()
    with pytest.raises(VertexUnknown, match=r"\[features\].*'z' at row 1"):
        graph.features(["a", "z"])
    with pytest.raises(VertexUnknown, match=r"\[out_neighbours\].*'z'"):
        graph.out_neighbours("z")
    with pytest.raises(VertexUnknown, match="7 at row 0"):
        graph.to_external([7])
    with pytest.raises(ValueInvalid, match="-1 at row 0"):
        graph.to_external([-1])


def test_numpy_strings_are_strings() -> None:
    graph = Graph(np.eye(2), np.array(["a"]), np.array(["b"]), ids=np.array(["a", "b"]))
    updates = Updates()
    updates.add_edge(np.str_("b"), "a")
    updates.add_edges(np.array(["a", "b"], object), np.array(["a", "b"], np.dtypes.StringDType()))
    graph.apply(updates)
    assert edge_list(graph) == [("a", "b", 0), ("b", "a", 1), ("a", "a", 2), ("b", "b", 3)]


def test_strings_of_refused_calls_leave_no_trace() -> None:
    updates = Updates()
    with pytest.raises(ValueInvalid):
        updates.add_edge("a", "b", weight=float("nan"))
    updates.add_edge(0, 1)
    graph = Graph(np.eye(2), [], [])
    graph.apply(updates)
    assert edge_list(graph) == [(0, 1, 0)]
