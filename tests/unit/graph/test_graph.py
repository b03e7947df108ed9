"""Graph: construction, reading, one writer, consumers, saving."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from livegnn.errors import (
    ColumnMissing,
    DtypeInvalid,
    EdgeDuplicate,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates
from livegnn.graph.consumers import Consumer

from .test_updates import edge_list, make_graph


def test_what_a_graph_says_of_itself() -> None:
    graph = make_graph()
    assert (graph.version, graph.vertex_count, graph.slot_count, graph.edge_count) == (0, 3, 3, 4)
    assert (graph.feature_width, graph.attr_width) == (3, 2)
    assert (graph.has_weight, graph.has_time, graph.has_type, graph.has_ids) == (True, True, True, False)
    assert (graph.undirected, graph.simple) == (False, False)
    assert repr(graph) == "Graph(vertices=3, edges=4, features=3, version=0)"
    plain = Graph(np.zeros((2, 1), np.float32), [], [])
    assert (plain.has_weight, plain.has_time, plain.has_type, plain.attr_width) == (False, False, False, 0)
    assert set(plain.edges()) == {"src", "dst", "id"}


def test_edges_and_neighbours_name_columns() -> None:
    graph = make_graph()
    edges = graph.edges()
    assert set(edges) == {"src", "dst", "id", "weight", "time", "type", "attr"}
    assert [edges[key].dtype for key in ("src", "id", "weight", "time", "type", "attr")] == [
        np.dtype(t) for t in ("int64", "int64", "float32", "int64", "int32", "float32")
    ]
    into = graph.in_neighbours(1)
    assert (into["src"].tolist(), into["id"].tolist(), into["time"].tolist()) == ([0, 0], [0, 3], [10, 40])
    out = graph.out_neighbours(0)
    assert (out["dst"].tolist(), out["weight"].tolist(), out["type"].tolist()) == ([1, 1], [1, 4], [0, 1])
    assert graph.in_degree([0, 1, 2]).tolist() == [1, 2, 1]
    assert graph.out_degree(np.array([0, 0])).tolist() == [2, 2]
    assert graph.in_degree([0]).dtype == np.int64


def test_neighbours_are_in_order_of_time() -> None:
    graph = Graph(np.zeros((3, 1)), [0, 1, 2], [0, 0, 0], time=[30, 10, 20])
    assert graph.in_neighbours(0)["src"].tolist() == [1, 2, 0]


def test_undirected_edges_are_seen_from_both_ends_and_counted_once() -> None:
    graph = Graph(np.zeros((3, 1)), [0, 1], [1, 1], undirected=True)
    assert graph.edge_count == 2
    assert graph.in_neighbours(0)["src"].tolist() == [1]
    assert sorted(graph.out_neighbours(1)["dst"].tolist()) == [0, 1]
    updates = Updates()
    updates.remove_edge(1, 0)
    graph.apply(updates)
    assert graph.out_neighbours(0)["dst"].tolist() == []
    assert graph.edge_count == 1


def test_liveness() -> None:
    graph, updates = make_graph(), Updates()
    updates.remove_vertex(1)
    graph.apply(updates)
    assert graph.is_live([0, 1, 2, 3]).tolist() == [True, False, True, False]
    assert (0 in graph, 1 in graph, 99 in graph, -1 in graph, "a" in graph) == (True, False, False, False, False)
    assert graph.vertex_count == 2
    assert graph.vertices().tolist() == [0, 2]
    assert graph.slot_count == 3
    for read in (graph.features, graph.in_degree, graph.out_degree):
        with pytest.raises(VertexUnknown):
            read([0, 1])
    for look in (graph.in_neighbours, graph.out_neighbours):
        with pytest.raises(VertexUnknown):
            look(1)
    with pytest.raises(VertexUnknown):
        graph.features([3])


def test_compact_keeps_the_content() -> None:
    graph, updates = make_graph(), Updates()
    updates.remove_edges([0, 1], [1, 2])
    graph.apply(updates)
    before = graph.digest(), edge_list(graph), graph.version
    graph.compact()
    assert (graph.digest(), edge_list(graph), graph.version) == before
    assert set(graph.memory()) == {"edges_live", "edges_reserved", "index", "vertices", "features", "attributes"}


def test_digest_is_of_the_content_alone() -> None:
    one = Graph(np.eye(3), [0, 1], [1, 2])
    other = Graph(np.eye(3), [1, 0], [2, 1])
    assert one.digest() == other.digest()
    updates = Updates()
    updates.add_edge(0, 2)
    one.apply(updates)
    assert one.digest() != other.digest()
    updates.clear()
    updates.remove_edge(0, 2)
    one.apply(updates)
    assert one.digest() == other.digest()


# ---- bad construction


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"features": np.zeros(3, np.float32)}, WidthMismatch, r"features of shape \(k, width\), got \(3,\)"),
        ({"features": np.zeros((3, 2), np.int64)}, DtypeInvalid, "features as float32, got dtype int64"),
        ({"features": [[0.0, np.nan], [1, 1], [1, 1]]}, ValueInvalid, "nan at row 0"),
        ({"features": [[0.0, 1], [1, 1], [1, 1e39]]}, ValueInvalid, r"1e\+39 at row 2"),
        ({"features": [[0.0, 1], [1]]}, WidthMismatch, "rows of one width"),
        ({"src": [0, 3]}, VertexUnknown, "below 3 in src, got 3 at row 1"),
        ({"dst": [0, -1]}, ValueInvalid, "at least 0 in dst, got -1 at row 1"),
        ({"src": [0.0, 1.0]}, DtypeInvalid, "src as int64, got dtype float64"),
        ({"src": [0]}, WidthMismatch, "dst with 1 rows like src, got 2"),
        ({"src": [[0, 1]]}, WidthMismatch, r"src of shape \(k,\), got \(1, 2\)"),
        ({"weight": [1.0]}, WidthMismatch, "weight with 2 rows like src, got 1"),
        ({"weight": [1.0, np.inf]}, ValueInvalid, "inf at row 1"),
        ({"weight": np.array([1, 2])}, DtypeInvalid, "weight as float32"),
        ({"time": [1.0, 2.0]}, DtypeInvalid, "time as int64"),
        ({"time": [-(2**63), 2]}, ValueInvalid, "at row 0"),
        ({"edge_type": [0, -1]}, ValueInvalid, "-1 at row 1"),
        ({"edge_type": [0, 2**31]}, ValueInvalid, "at row 1"),
        ({"edge_attr": np.zeros(2, np.float32)}, WidthMismatch, "edge_attr of shape"),
        ({"edge_attr": np.zeros((2, 0), np.float32)}, WidthMismatch, "width >= 1"),
        ({"ids": ["a", "b"]}, WidthMismatch, "ids with 3 rows like features, got 2"),
        ({"ids": [7, 8, 7], "src": [7, 8], "dst": [8, 7]}, ValueInvalid, "7 at row 0 and again"),
        ({"ids": ["a", "b", 3]}, DtypeInvalid, "3 of int at row 2"),
        ({"ids": [1.0, 2.0, 3.0]}, DtypeInvalid, "ids as int64"),
        ({"ids": [5, 6, 7]}, VertexUnknown, "in src, got 0 at row 0"),
        ({"ids": [0, 1, 7]}, VertexUnknown, "in dst, got 2 at row 1"),
        ({"src": [0, 0], "dst": [1, 1], "simple": True}, EdgeDuplicate, "0 -> 1"),
        ({"src": [0, 1], "dst": [1, 0], "simple": True, "undirected": True}, EdgeDuplicate, "0 -> 1"),
        ({"src": [2, 2], "dst": [2, 2], "simple": True, "undirected": True}, EdgeDuplicate, "2 -> 2"),
        ({"undirected": "no"}, DtypeInvalid, "undirected as True or False, got 'no'"),
        ({"simple": 1}, DtypeInvalid, "simple as True or False, got 1"),
        ({"src": np.ma.array([0, 1], mask=[False, True])}, ValueInvalid, "src without masked values, got one at row 1"),
        ({"features": np.ma.masked_less(np.eye(3), 0.5)}, ValueInvalid, "features without masked values, .* row 0"),
    ],
)
def test_bad_construction_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"features": np.zeros((3, 2), np.float32), "src": [0, 1], "dst": [1, 2]}
    with pytest.raises(error, match=message):
        Graph(**{**good, **arguments})


# ---- PyG


def test_from_pyg_reads_what_pyg_calls_by_other_names() -> None:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    x, edge_index = torch.eye(3), torch.tensor([[0, 1], [1, 2]])
    plain = Graph.from_pyg(data.Data(x=x, edge_index=edge_index, y=torch.zeros(3)))
    assert set(plain.edges()) == {"src", "dst", "id"}
    assert plain.features().tolist() == x.tolist()
    weighted = Graph.from_pyg(data.Data(x=x, edge_index=edge_index, edge_attr=torch.tensor([1.0, 2.0])))
    assert weighted.edges()["weight"].tolist() == [1, 2]
    assert (weighted.weight_column, plain.weight_column) == ("edge_attr", None)
    both = data.Data(
        x=x, edge_index=edge_index, edge_weight=torch.tensor([3.0, 4.0]), edge_attr=torch.tensor([1.0, 2.0])
    )
    graph = Graph.from_pyg(both)
    assert (graph.weight_column, graph.attr_width) == ("edge_weight", 1)
    assert graph.edges()["weight"].tolist() == [3, 4]
    assert graph.edges()["attr"].tolist() == [[1], [2]]
    assert Graph([[1.0]], [0], [0], weight=[1.0]).weight_column == "weight"
    full = Graph.from_pyg(
        data.Data(
            x=x,
            edge_index=edge_index,
            edge_weight=torch.tensor([3.0, 4.0]),
            edge_attr=torch.ones(2, 5),
            edge_time=torch.tensor([7, 8]),
            edge_type=torch.tensor([0, 1]),
        ),
        ids=["a", "b", "c"],
    )
    assert full.attr_width == 5
    assert full.edges()["weight"].tolist() == [3, 4]
    assert full.edges()["time"].tolist() == [7, 8]
    assert full.edges()["type"].tolist() == [0, 1]
    assert full.edges()["src"].tolist() == ["a", "b"]
    timed = Graph.from_pyg(data.Data(x=x, edge_index=edge_index, time=torch.tensor([7, 8])))
    assert timed.edges()["time"].tolist() == [7, 8]


def test_from_pyg_refuses_what_it_cannot_read() -> None:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ColumnMissing, match=r"without it; set data\.x"):
        Graph.from_pyg(data.Data(edge_index=edge_index))
    with pytest.raises(ColumnMissing, match="edge_index"):
        Graph.from_pyg(data.Data(x=torch.eye(3)))
    with pytest.raises(ValueInvalid, match="at least one vertex type"):
        Graph.from_pyg(data.HeteroData())
    with pytest.raises(DtypeInvalid, match="edge_attr"):
        Graph.from_pyg(data.Data(x=torch.eye(3), edge_index=edge_index, edge_attr=torch.ones(2, 2, dtype=torch.int64)))


# ---- one writer, many consumers


class Listener(Consumer):
    """A consumer without a native half that notes what is published."""

    def __init__(self, log: list[Any], name: str, act: Any = None) -> None:
        self.log, self.name, self.act = log, name, act

    def published(self, change: Any, version: int) -> str:
        self.log.append((self.name, change, version))
        if self.act is not None:
            self.act()
        return f"{self.name}@{version}"


def add_one_edge() -> Updates:
    updates = Updates()
    updates.add_edge(0, 1)
    return updates


def test_consumers_hear_in_order_of_attachment_and_answer_for_themselves() -> None:
    graph, log = Graph(np.eye(2), [], []), []
    first, second = Listener(log, "first"), Listener(log, "second")
    graph.host.attach(first)
    graph.host.attach(second)
    assert graph.host.apply(add_one_edge(), second)[1] == "second@1"
    assert graph.apply(add_one_edge()) == 2
    graph.host.detach(first)
    graph.apply(add_one_edge())
    assert [(name, version) for name, _, version in log] == [
        ("first", 1),
        ("second", 1),
        ("first", 2),
        ("second", 2),
        ("second", 3),
    ]


def test_a_callback_may_read_but_not_write() -> None:
    graph, log, seen = Graph(np.eye(2), [], []), [], []
    graph.host.attach(Listener(log, "reader", lambda: seen.append(graph.edge_count)))
    graph.apply(add_one_edge())
    assert seen == [1]
    for write in (lambda: graph.apply(add_one_edge()), graph.compact):
        writer = Listener(log, "writer", write)
        graph.host.attach(writer)
        with pytest.raises(UsageError, match="no batch under way"):
            graph.apply(add_one_edge())
        graph.host.detach(writer)
    assert graph.edge_count == 3  # the outer batches stand
    graph.apply(add_one_edge())
    assert graph.edge_count == 4


def test_a_failing_consumer_does_not_keep_the_news_from_the_others() -> None:
    graph, log = Graph(np.eye(2), [], []), []

    def fail() -> None:
        raise RuntimeError("consumer is ill")

    graph.host.attach(Listener(log, "ill", fail))
    graph.host.attach(Listener(log, "well"))
    with pytest.raises(RuntimeError, match="consumer is ill"):
        graph.apply(add_one_edge())
    assert [name for name, _, _ in log] == ["ill", "well"]
    assert graph.version == 1


def test_consumers_may_attach_within_writing_and_change_their_native_half() -> None:
    graph, log = Graph(np.eye(2), [], []), []
    consumer = Listener(log, "one")
    with graph.host.writing("Engine"):
        graph.host.attach(consumer)
    graph.apply(add_one_edge())
    assert log == [("one", None, 1)]
    with graph.host.writing("swap"):
        graph.host.renew_natives()
    assert graph.host._natives == []


def test_a_refused_batch_is_not_announced() -> None:
    graph, log, updates = Graph(np.eye(2), [], []), [], Updates()
    graph.host.attach(Listener(log, "one"))
    updates.add_edge(0, 1)
    updates.add_edge(0, 7)
    with pytest.raises(VertexUnknown, match="7"):
        graph.apply(updates)
    assert (log, graph.version, graph.edge_count) == ([], 0, 0)


def test_concurrent_applies_are_serialised() -> None:
    graph, log = Graph(np.eye(2), [], []), []
    graph.host.attach(Listener(log, "one"))

    def work() -> None:
        for _ in range(50):
            graph.apply(add_one_edge())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version for _, _, version in log] == list(range(1, 201))
    assert graph.edge_count == graph.version == 200


def test_apply_takes_updates_only() -> None:
    with pytest.raises(UsageError, match="expected Updates, got list"):
        make_graph().apply([])  # type: ignore[arg-type]


# ---- saving


@pytest.mark.parametrize("ids", [None, [5, 7, 9], ["a", "ü", ""]])
def test_saved_arrays_give_the_same_graph(ids: Any) -> None:
    a, b, c = ids or [0, 1, 2]
    graph = Graph(np.eye(3), [a, b], [b, c], weight=[1.0, 2.0], ids=ids, undirected=True)
    updates = Updates()
    updates.remove_vertex(b)
    updates.add_edge(a, c, weight=9.0)
    graph.apply(updates)
    arrays = graph.to_arrays()
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays.values())
    again = Graph.from_arrays(arrays)
    assert (again.digest(), again.version, edge_list(again)) == (graph.digest(), 1, edge_list(graph))
    assert again.vertices().tolist() == graph.vertices().tolist()
    for each in (graph, again):  # ids, slots and edge ids go on from where they were
        more = Updates()
        more.add_vertex(b, [1.0, 2.0, 3.0])
        more.add_edge(b, a, weight=1.0)
        each.apply(more)
    assert (again.digest(), edge_list(again)) == (graph.digest(), edge_list(graph))
    assert again.to_slots([b]).tolist() == [1]


def test_damaged_arrays_are_refused() -> None:
    arrays = Graph(np.eye(2), [], [], ids=["a", "b"]).to_arrays()
    for key in ("option.simple", "ids.taken", "ids.offsets"):
        with pytest.raises(StoredStateInvalid):
            Graph.from_arrays({k: v for k, v in arrays.items() if k != key})
    with pytest.raises(StoredStateInvalid):
        Graph.from_arrays({**arrays, "ids.taken": arrays["ids.taken"][:1]})


def test_an_edge_index_in_one_piece_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"Graph\(x, \*edge_index\), or Graph.from_pyg"):
        Graph(np.zeros((2, 1), np.float32), np.array([[0, 1], [1, 0]]))


def test_block_stats_count_the_blocks_of_lists() -> None:
    ends = np.zeros(300, np.int64), np.r_[np.ones(299, np.int64), 2]
    graph = Graph(np.zeros((3, 0), np.float32), *ends)
    into, out = graph.block_stats(), graph.block_stats(outgoing=True)
    assert (into["lists"], into["blocks"], into["blocks_max"], into["edges"]) == (2, 4, 3, 300)
    assert (out["lists"], out["blocks"], out["blocks_max"]) == (1, 3, 3)
    assert 300 <= into["places"] <= 330
    memory = graph.memory()
    places = into["places"] + out["places"]
    assert memory["edges_live"] + memory["edges_reserved"] == places * 12  # neighbour and id
