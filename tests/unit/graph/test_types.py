"""Graphs whose vertices have types: the shop of docs/graph.md, read and changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from livegnn import Engine, Model
from livegnn.errors import (
    ColumnMissing,
    DtypeInvalid,
    EdgeDuplicate,
    EdgeMissing,
    LiveGnnError,
    ModelUnsupported,
    StoredStateInvalid,
    ValueInvalid,
    VertexExists,
    VertexIdGap,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates
from livegnn.layers import GCN

CLICK, FOLLOW = ("User", "Click", "Item"), ("User", "Follow", "User")


def shop(**changed: Any) -> Graph:
    """Users 0, 1, 2 with two features, items 0, 1 with one, tag 0 without."""
    arguments: dict[str, Any] = {
        "features": {"User": [[1.0, 2], [3, 4], [5, 6]], "Item": [[7.0], [8]], "Tag": np.zeros((1, 0), np.float32)},
        "src": {CLICK: [0, 1, 2], FOLLOW: [0]},
        "dst": {CLICK: [0, 1, 1], FOLLOW: [2]},
        "weight": {CLICK: [1.0, 2, 3], FOLLOW: [4.0]},
        **changed,
    }
    graph = Graph(**arguments)
    graph.host.store.check_invariants()
    return graph


def refused(graph: Graph, updates: Updates, error: type[Exception], message: str) -> None:
    before = graph.digest(), graph.version
    with pytest.raises(error, match=message):
        graph.apply(updates)
    assert (graph.digest(), graph.version) == before
    graph.host.store.check_invariants()


# ---- reading


def test_a_typed_graph_says_what_it_has() -> None:
    graph = shop()
    assert graph.vertex_types == ("User", "Item", "Tag")
    assert graph.edge_types == (CLICK, FOLLOW)
    assert graph.feature_widths == {"User": 2, "Item": 1, "Tag": 0}
    assert (graph.feature_width, graph.has_type, graph.has_ids) == (2, True, False)
    assert graph.features([1], vertex_type="Item").tolist() == [[8]]
    assert graph.features(vertex_type="User").tolist() == [[1, 2], [3, 4], [5, 6]]
    assert graph.features([0], vertex_type="Tag").shape == (1, 0)
    assert graph.vertices("Item").tolist() == graph.vertices(1).tolist() == [0, 1]
    assert graph.in_degree([0, 1], vertex_type="Item").tolist() == [1, 2]
    assert graph.out_degree([0], vertex_type="User").tolist() == [2]
    assert graph.is_live([0, 2, 9], vertex_type="Item").tolist() == [True, False, False]
    assert ("Item", 1) in graph
    assert ("Item", 2) not in graph
    assert 1 not in graph


def test_a_graph_without_types_has_none() -> None:
    graph = Graph(np.eye(2), [0], [1], edge_type=[3])
    assert (graph.vertex_types, graph.edge_types, graph.feature_widths) == (None, None, {})
    for read in (graph.features, graph.in_degree, graph.is_live, graph.to_slots, graph.to_external):
        with pytest.raises(ColumnMissing, match="expected no vertex_type"):
            read([0], vertex_type="User")
    with pytest.raises(ColumnMissing, match="vertices have types"):
        graph.slot_types([0])


def test_edges_are_named_by_ids_within_the_types_of_their_ends() -> None:
    graph = shop()
    edges = graph.edges()
    assert edges["src"].tolist() == [0, 1, 2, 0]
    assert edges["dst"].tolist() == [0, 1, 1, 2]
    assert edges["type"].tolist() == [0, 0, 0, 1]
    into = graph.in_neighbours(1, vertex_type="Item")
    assert (into["src"].tolist(), into["src_type"].tolist(), into["type"].tolist()) == ([1, 2], [0, 0], [0, 0])
    out = graph.out_neighbours(0, vertex_type="User")
    assert sorted(zip(out["dst"].tolist(), out["dst_type"].tolist(), strict=True)) == [(0, 1), (2, 0)]


def test_slots_are_dense_over_all_types() -> None:
    graph = shop()
    assert graph.to_slots([0, 1], vertex_type="Item").tolist() == [3, 4]
    assert graph.to_external([4, 0, 5]).tolist() == [1, 0, 0]
    assert graph.slot_types([4, 0, 5]).tolist() == [1, 0, 2]
    assert graph.slot_types([4]).dtype == np.int32
    assert graph.to_external([3, 4], vertex_type="Item").tolist() == [0, 1]
    with pytest.raises(VertexUnknown, match="0 of type 'User' at row 1"):
        graph.to_external([3, 0], vertex_type="Item")
    for read in (graph.to_external, graph.slot_types):
        with pytest.raises(VertexUnknown, match="6"):
            read([6])


@pytest.mark.parametrize("method", ["features", "in_degree", "out_degree", "is_live", "to_slots"])
def test_a_reader_wants_to_know_the_type(method: str) -> None:
    read = getattr(shop(), method)
    with pytest.raises(ColumnMissing, match="'User', 'Item', 'Tag', got none"):
        read([0])
    with pytest.raises(ValueInvalid, match="'User', 'Item', 'Tag', got 'Shop'"):
        read([0], vertex_type="Shop")
    with pytest.raises(ValueInvalid, match="got 3"):
        read([0], vertex_type=3)
    with pytest.raises(DtypeInvalid, match="int64"):
        read(["a"], vertex_type="User")


@pytest.mark.parametrize("method", ["features", "in_degree", "out_degree", "to_slots"])
def test_a_reader_names_what_it_does_not_know(method: str) -> None:
    with pytest.raises(VertexUnknown, match="of type 'Item', got 2 at row 1"):
        getattr(shop(), method)([0, 2], vertex_type="Item")


# ---- ids


def test_types_may_have_ids_of_their_own() -> None:
    graph = shop(
        ids={"User": [70, 2**62, 5]}, src={CLICK: [70, 5, 5], FOLLOW: [2**62]}, dst={CLICK: [0, 1, 1], FOLLOW: [5]}
    )
    assert graph.has_ids
    assert graph.edges()["src"].tolist() == [70, 5, 5, 2**62]
    assert graph.vertices("User").tolist() == [70, 2**62, 5]
    updates = Updates()
    updates.add_vertex(8, [0.0, 0], vertex_type="User")  # any id that is not taken
    updates.add_vertex(2, [0.0], vertex_type="Item")  # the next one
    updates.add_edge(8, 2, edge_type="Click", weight=1.0)
    graph.apply(updates)
    assert graph.in_neighbours(2, vertex_type="Item")["src"].tolist() == [8]


def test_string_ids_may_be_the_same_in_two_types() -> None:
    ids = {"User": ["a", "b", "c"], "Item": ["a", "x"], "Tag": [""]}
    graph = shop(ids=ids, src={CLICK: ["a", "b", "c"], FOLLOW: ["a"]}, dst={CLICK: ["a", "x", "x"], FOLLOW: ["c"]})
    assert graph.features(["a"], vertex_type="Item").tolist() == [[7]]
    assert graph.in_neighbours("x", vertex_type="Item")["src"].tolist() == ["b", "c"]
    updates = Updates()
    updates.remove_vertex("a", vertex_type="User")
    updates.add_vertex("new", [9.0], vertex_type="Item")
    updates.add_edge("b", "new", edge_type="Click", weight=1.0)
    graph.apply(updates)
    assert graph.edges()["dst"].tolist() == ["x", "x", "new"]
    loaded = Graph.from_arrays(graph.to_arrays())
    assert loaded.digest() == graph.digest()
    assert loaded.vertices("Item").tolist() == graph.vertices("Item").tolist()


def test_a_slot_may_be_taken_again_by_another_type() -> None:
    graph = shop()
    updates = Updates()
    updates.remove_vertex(1, vertex_type="User")
    updates.add_vertex(2, [9.0], vertex_type="Item")
    updates.add_edge(0, 2, edge_type="Click", weight=1.0)
    graph.apply(updates)
    graph.host.store.check_invariants()
    assert graph.to_slots([2], vertex_type="Item").tolist() == [1]
    assert graph.features([2], vertex_type="Item").tolist() == [[9]]
    updates = Updates()
    updates.add_vertices([1, 3], [[1.0, 1], [2, 2]], vertex_type="User")  # a removed id, and the next one
    graph.apply(updates)
    assert graph.to_slots([1, 3], vertex_type="User").tolist() == [6, 7]
    assert graph.slot_types([1, 6]).tolist() == [1, 0]


# ---- updates


def test_every_update_of_a_typed_graph() -> None:
    attrs = {CLICK: np.zeros((3, 1), np.float32), FOLLOW: np.ones((1, 1), np.float32)}
    graph = shop(edge_attr=attrs, time={CLICK: [1, 2, 3], FOLLOW: [4]})
    updates = Updates()
    updates.add_edge(0, 1, edge_type=CLICK, weight=9.0, time=5, edge_attr=[2.0])
    updates.add_edges([0, 1], [0, 0], edge_type="Click", weight=[1.0, 1.0], time=[6, 7], edge_attr=[[0.0], [0.0]])
    updates.add_edges([2, 1], [1, 2], edge_type=[0, 1], weight=[1.0, 1.0], time=[8, 8], edge_attr=[[0.0], [0.0]])
    updates.set_weight(0, 1, 5.0, edge_type="Click")
    updates.set_weights([0, 1], [2, 2], [6.0, 7.0], edge_type=1)
    updates.set_edge_attr(0, 1, [3.0], edge_type="Click")
    updates.remove_edge(2, 1, edge_type="Click", time=3)
    updates.remove_edges([0], [0], edge_type=CLICK)
    updates.remove_edges_before(2)
    updates.set_features(1, [0.5], vertex_type="Item")
    updates.set_features([0, 2], [[1.0, 1], [2, 2]], vertex_type=0)
    updates.remove_vertices([0], vertex_type="Tag")
    graph.apply(updates)
    graph.host.store.check_invariants()
    edges = graph.edges()
    assert edges["id"].tolist() == [1, 3, 4, 6, 7, 8]
    assert edges["weight"].tolist() == [2, 6, 5, 1, 1, 7]
    assert edges["attr"].ravel().tolist() == [0, 1, 3, 0, 0, 0]
    assert graph.features(vertex_type="Item").tolist() == [[7], [0.5]]
    assert graph.vertices("Tag").tolist() == []


def test_updates_may_be_joined_and_used_again() -> None:
    first, second = Updates(), Updates()
    first.add_edge(0, 1, edge_type="Follow", weight=1.0)
    second.add_vertex(2, [1.0], vertex_type="Item")
    second.add_edge(0, 2, edge_type="Click", weight=1.0)
    second.add_edge(1, 0, edge_type=1, weight=1.0)
    first.extend(second)
    ours, theirs = shop(), shop()
    ours.apply(first)
    assert ours.edges()["type"].tolist() == [0, 0, 0, 1, 1, 0, 1]
    theirs.apply(first)
    assert ours.digest() == theirs.digest()
    first.clear()
    first.add_edge(0, 1, edge_type="Follow", weight=1.0)
    ours.apply(first)
    assert ours.edge_count == 8


def clicks(**arguments: Any) -> dict[str, Any]:
    return {"u": 0, "v": 1, "edge_type": "Click", **arguments}


def item(u: Any, **arguments: Any) -> dict[str, Any]:
    return {"u": u, "vertex_type": "Item", **arguments}


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        ("add_edge", clicks(edge_type=None), ColumnMissing, "update 1.*expected edge_type= among .*got none"),
        ("remove_edge", clicks(edge_type=None), ColumnMissing, "update 1.*got none"),
        ("set_weight", clicks(edge_type=None, w=1.0), ColumnMissing, "update 1.*got none"),
        ("add_edge", clicks(edge_type="Buy"), ValueInvalid, "update 1.*got 'Buy'"),
        ("add_edge", clicks(edge_type=("Item", "Click", "User")), ValueInvalid, r"got \('Item', 'Click', 'User'\)"),
        ("add_edge", clicks(edge_type=2), ValueInvalid, "update 1.*got 2"),
        ("add_edge", clicks(), ColumnMissing, "a weight, got none"),
        ("add_edge", clicks(v=2, weight=1.0), VertexUnknown, "update 1.*of type 'Item', got 2"),
        ("add_edge", clicks(u=3, weight=1.0), VertexUnknown, "of type 'User', got 3"),
        ("add_edge", clicks(u=2, weight=1.0), VertexUnknown, "of type 'User', got 2"),  # removed by the batch
        ("remove_edge", clicks(), EdgeMissing, "User 0 -> Item 1"),
        ("set_features", item(0, x=[1.0], vertex_type=None), ColumnMissing, "'User', 'Item', 'Tag', got none"),
        ("set_features", item(0, x=[1.0], vertex_type="User"), WidthMismatch, "row of 2 floats, got 1.*User 0"),
        ("set_features", item(0, x=[1.0, 2]), WidthMismatch, "row of 1 floats, got 2"),
        ("set_features", item(9, x=[1.0]), VertexUnknown, "of type 'Item', got 9"),
        ("set_features", item(0, x=[1.0], vertex_type="Shop"), ValueInvalid, "got 'Shop'"),
        ("add_vertex", item(1, x=[1.0]), VertexExists, "of type 'Item' that is new, got 1"),
        ("add_vertex", item(3, x=[1.0]), VertexIdGap, "next id 2 of type 'Item'"),
        ("add_vertex", item(2, x=[1.0, 2]), WidthMismatch, "row of 1 floats"),
        ("remove_vertex", item(2), VertexUnknown, "of type 'Item', got 2"),
    ],
)
def test_a_bad_update_changes_nothing(method: str, arguments: Any, error: type[Exception], message: str) -> None:
    graph, updates = shop(), Updates()
    updates.remove_vertex(2, vertex_type="User")
    getattr(updates, method)(**arguments)
    refused(graph, updates, error, message)
    graph.host.ids.small_max = 0  # as a large batch is translated
    refused(graph, updates, error, message)


def test_ids_of_the_other_kind_are_refused() -> None:
    updates = Updates()
    updates.remove_vertex("a", vertex_type="User")
    refused(shop(), updates, DtypeInvalid, "int64 ids, got string ids")
    named = shop(ids={"User": list("abc"), "Item": list("ab"), "Tag": ["t"]}, src={}, dst={}, weight=None)
    updates = Updates()
    updates.remove_vertex(0, vertex_type="User")
    refused(named, updates, DtypeInvalid, "string ids, got int64 ids")


def test_a_name_that_two_edge_types_share_is_refused() -> None:
    back = ("Item", "Click", "User")
    graph = shop(src={CLICK: [0], back: [0]}, dst={CLICK: [0], back: [0]}, weight=None)
    updates = Updates()
    updates.add_edge(0, 0, edge_type="Click")
    refused(graph, updates, ValueInvalid, "'Click', which names .*'Item'.*give")
    updates = Updates()
    updates.add_edge(1, 2, edge_type=back)
    graph.apply(updates)
    assert graph.in_neighbours(2, vertex_type="User")["src_type"].tolist() == [1]


def test_types_that_are_no_types_are_refused_by_the_call() -> None:
    updates = Updates()
    for wrong in (("User", "Click"), ("User", "Click", 3), (1, "Click", "Item")):
        with pytest.raises(ValueInvalid, match="src type, name, dst type"):
            updates.add_edge(0, 1, edge_type=wrong)  # type: ignore[arg-type]
    for wrong_codes, error in (
        ([0], WidthMismatch),
        ([0.0, 1.0], DtypeInvalid),
        ([0, -1], ValueInvalid),
        (-1, ValueInvalid),
    ):
        with pytest.raises(error):
            updates.add_edges([0, 1], [1, 0], edge_type=wrong_codes)
    with pytest.raises(ValueInvalid, match="vertex_type"):
        updates.add_vertex(0, [1.0], vertex_type=-1)
    with pytest.raises(DtypeInvalid, match="vertex_type"):
        updates.remove_vertex(0, vertex_type=1.5)  # type: ignore[arg-type]
    assert len(updates) == 0


def test_a_graph_without_types_refuses_them() -> None:
    graph = Graph(np.eye(2), [0], [1], edge_type=[0])
    for kind in ("User", 0):
        updates = Updates()
        updates.set_features(0, [1.0, 1.0], vertex_type=kind)
        refused(graph, updates, ColumnMissing, "vertex")
    updates = Updates()
    updates.remove_edge(0, 1, edge_type="Click")
    refused(graph, updates, DtypeInvalid, "update 0.*got 'Click'")
    updates = Updates()
    updates.remove_edges([0], [1], edge_type=0)  # numbers are types of edges there, too
    graph.apply(updates)
    assert graph.edge_count == 0


# ---- making one


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"features": {}}, ValueInvalid, "at least one vertex type"),
        ({"features": np.zeros((3, 2))}, DtypeInvalid, "features as a dict"),
        ({"features": {"User": np.zeros((3, 2)), "Item": np.zeros(2)}}, WidthMismatch, r"features\['Item'\]"),
        ({"features": {"User": np.zeros((3, 2))}}, ValueInvalid, "got 'Item' in the key"),
        ({"features": {0: np.zeros((3, 2))}}, DtypeInvalid, "names of vertex types as strings, got 0"),
        ({"src": {"Click": [0]}}, DtypeInvalid, "got 'Click'"),
        ({"src": [0, 1]}, DtypeInvalid, "src as a dict"),
        ({"dst": {CLICK: [0, 1, 1]}}, ColumnMissing, "dst for every edge type, got none for .*Follow"),
        ({"weight": {CLICK: [1.0, 1, 1]}}, ColumnMissing, "weight for every edge type, got none for .*Follow"),
        ({"time": {CLICK: [1, 1, 1], FOLLOW: [1], ("Item", "x", "Tag"): []}}, ValueInvalid, "keys of src in time"),
        ({"weight": {CLICK: [1.0, 1], FOLLOW: [1.0]}}, WidthMismatch, r"weight\[.*Click.* with 3 rows"),
        ({"dst": {CLICK: [0, 1, 2], FOLLOW: [2]}}, VertexUnknown, "dst.*Click.*of type 'Item', got 2 at row 2"),
        ({"dst": {CLICK: [0, 1], FOLLOW: [2]}}, WidthMismatch, "dst.*Click.*with 3 rows"),
        (
            {"edge_attr": {CLICK: np.zeros((3, 2)), FOLLOW: np.zeros((1, 1))}},
            WidthMismatch,
            "one width, got 2 .* and 1",
        ),
        ({"edge_attr": {CLICK: np.zeros((3, 0)), FOLLOW: np.zeros((1, 0))}}, WidthMismatch, "width >= 1"),
        ({"edge_type": [0, 0, 0, 1]}, ValueInvalid, "no edge_type with dicts"),
        ({"vertex_type": [0, 0, 0]}, ValueInvalid, "features as an array with vertex_type"),
        ({"undirected": True}, ValueInvalid, "join a type to itself .*Click"),
        ({"ids": ["a", "b", "c"]}, DtypeInvalid, "ids as a dict"),
        ({"ids": {"Shop": [1]}}, ValueInvalid, "got 'Shop'"),
        ({"ids": {0: [1]}}, ValueInvalid, "among 'User'"),
        ({"ids": {"User": [1, 2]}}, WidthMismatch, r"ids\['User'\] with 3 rows"),
        ({"ids": {"Item": [1, 1]}}, ValueInvalid, r"ids\['Item'\] that differ, got 1 at row 0"),
        ({"ids": {"User": ["a", "b", "c"]}}, DtypeInvalid, "got none for 'Item'"),
        ({"ids": {"User": ["a", "b", "c"], "Item": [0, 1]}}, DtypeInvalid, r"string ids in ids\['Item'\]"),
        ({"simple": True, "src": {CLICK: [0, 0]}, "dst": {CLICK: [1, 1]}, "weight": None}, EdgeDuplicate, "second"),
    ],
)
def test_bad_dicts_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shop(**changed)


def test_undirected_edges_join_a_type_to_itself() -> None:
    graph = shop(src={FOLLOW: [0]}, dst={FOLLOW: [2]}, weight=None, undirected=True)
    assert graph.in_neighbours(0, vertex_type="User")["src"].tolist() == [2]


def test_a_graph_may_have_no_edge_types() -> None:
    graph = shop(src={}, dst={}, weight={}, time={}, edge_attr={})
    assert (graph.edge_types, graph.edge_count, graph.has_weight) == ((), 0, True)
    updates = Updates()
    updates.add_edge(0, 0, edge_type=0)
    refused(graph, updates, ValueInvalid, "among none, got 0")


def test_flat_arrays_with_numbers() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    graph = Graph(x, [0, 3], [1, 2], edge_type=[1, 0], vertex_type=[0, 1, 0, 1], time=[5, 6])
    assert graph.vertex_types == ("0", "1")
    assert graph.edge_types == (("1", "0", "0"), ("0", "1", "1"))
    assert graph.features(vertex_type="1").tolist() == [[2, 3], [6, 7]]
    edges = graph.edges()
    assert [edges[name].tolist() for name in ("src", "dst", "type", "time")] == [[0, 1], [0, 1], [1, 0], [5, 6]]


def test_flat_arrays_with_names() -> None:
    x, types = np.zeros((4, 1)), ["User", "Item", "User", "Item"]
    graph = Graph(x, [0, 2, 0], [1, 3, 2], edge_type=["see", "see", "see"], vertex_type=types)
    assert graph.edge_types == (("User", "see", "Item"), ("User", "see", "User"))
    assert graph.edges()["type"].tolist() == [0, 0, 1]
    plain = Graph(x, ["a", "c"], ["b", "d"], ids=list("abcd"), vertex_type=types)
    assert plain.edge_types == (("User", "to", "Item"),)
    assert plain.vertices("Item").tolist() == ["b", "d"]
    assert plain.edges()["dst"].tolist() == ["b", "d"]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"vertex_type": [0, 1]}, WidthMismatch, "vertex_type with 3 rows"),
        ({"vertex_type": [0.0, 1.0, 1.0]}, DtypeInvalid, "vertex_type"),
        ({"edge_type": [0, 0]}, ValueInvalid, "type 0 to join '0' -> '1' as at row 0, got '1' -> '1' at row 1"),
        ({"edge_type": [0, 2]}, ValueInvalid, "got none of 1"),
        ({"edge_type": ["a"]}, WidthMismatch, "edge_type with 2 rows"),
        ({"src": [0, 3]}, VertexUnknown, "below 3 in src, got 3 at row 1"),
        ({"weight": [1.0]}, WidthMismatch, "weight with 2 rows"),
        ({"ids": {"0": [1]}}, ValueInvalid, "ids as an array"),
        ({"ids": [1, 1, 2], "src": [1, 2], "dst": [1, 2]}, ValueInvalid, "1 at row 0 and again"),
    ],
)
def test_bad_flat_arrays_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"features": np.zeros((3, 1)), "src": [0, 1], "dst": [1, 2], "vertex_type": [0, 1, 1]}
    with pytest.raises(error, match=message):
        Graph(**{**good, **changed})


# ---- around it


def hetero() -> Any:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    made = data.HeteroData()
    made["User"].x, made["Item"].x, made["Tag"].num_nodes = torch.eye(3), torch.ones(2, 1), 2
    for key, pairs, times in ((CLICK, [[0, 1, 2], [1, 1, 0]], [4, 5, 6]), (("Item", "Has", "Tag"), [[0], [1]], [7])):
        made[key].edge_index = torch.tensor(pairs)
        made[key].edge_attr = torch.arange(len(times), dtype=torch.float32)
        made[key].time = torch.tensor(times)
    return made


def test_hetero_data_comes_back_as_it_was() -> None:
    data = hetero()
    graph = Graph.from_pyg(data)
    assert graph.vertex_types == tuple(data.node_types)
    assert graph.edge_types == tuple(data.edge_types)
    assert graph.feature_widths == {"User": 3, "Item": 1, "Tag": 0}
    for name in ("User", "Item"):
        assert graph.features(vertex_type=name).tolist() == data[name].x.tolist()
    edges = graph.edges()
    for code, key in enumerate(data.edge_types):
        mask = edges["type"] == code
        assert [edges["src"][mask].tolist(), edges["dst"][mask].tolist()] == data[key].edge_index.tolist()
        assert edges["weight"][mask].tolist() == data[key].edge_attr.tolist()
        assert edges["time"][mask].tolist() == data[key].time.tolist()
    named = Graph.from_pyg(data, ids={"User": [9, 8, 7]})
    assert named.edges()["src"].tolist() == [9, 8, 7, 0]


def test_hetero_data_with_a_part_missing_is_refused() -> None:
    data = hetero()
    del data["Item", "Has", "Tag"].time
    with pytest.raises(ColumnMissing, match="time for every edge type"):
        Graph.from_pyg(data)
    data = hetero()
    del data["Tag"].num_nodes
    with pytest.raises(ColumnMissing, match="x or num_nodes for vertex type 'Tag'"):
        Graph.from_pyg(data)
    del data["Item", "Has", "Tag"].edge_index
    data["Tag"].num_nodes = 2
    with pytest.raises(ColumnMissing, match="edge_index"):
        Graph.from_pyg(data)


def test_temporal_data_as_edges_of_one_type() -> None:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    events = data.TemporalData(src=torch.tensor([2, 0]), dst=torch.tensor([1, 0]), t=torch.tensor([3, 4]))
    graph = shop(weight=None, time={CLICK: [0, 0, 0], FOLLOW: [0]})
    graph.apply(Updates.from_temporal_data(events, edge_type="Click"))
    edges = graph.edges()
    assert [edges[name][-2:].tolist() for name in ("src", "dst", "type", "time")] == [[2, 0], [1, 0], [0, 0], [3, 4]]


def test_saving_keeps_types_ids_and_free_slots() -> None:
    graph = shop(ids={"Item": [40, 50]}, dst={CLICK: [40, 50, 50], FOLLOW: [2]})
    updates = Updates()
    updates.remove_vertex(2, vertex_type="User")
    graph.apply(updates)
    loaded = Graph.from_arrays(graph.to_arrays())
    assert (loaded.digest(), loaded.version) == (graph.digest(), graph.version)
    assert (loaded.vertex_types, loaded.edge_types) == (graph.vertex_types, graph.edge_types)
    updates = Updates()
    updates.add_vertex(60, [1.0], vertex_type="Item")  # takes the free slot
    updates.add_vertex(2, [1.0, 1.0], vertex_type="User")  # the removed id
    updates.add_edge(2, 60, edge_type="Click", weight=1.0)
    for each in (graph, loaded):
        each.apply(updates)
    assert loaded.digest() == graph.digest()
    assert loaded.to_slots([60], vertex_type="Item").tolist() == [2]


@pytest.mark.parametrize("damage", ["types.vertex_text", "ids.counts", "ids.numbers", "store.vertex_type"])
def test_a_damaged_file_is_refused(damage: str) -> None:
    arrays = dict(shop().to_arrays())
    arrays[damage] = arrays[damage][:-1]
    with pytest.raises(StoredStateInvalid):
        Graph.from_arrays(arrays)
    arrays.pop(damage)
    with pytest.raises(StoredStateInvalid):
        Graph.from_arrays(arrays)


def test_an_engine_refuses_types() -> None:
    model = Model([GCN(np.ones((2, 2), np.float32), np.zeros(2, np.float32))])
    with pytest.raises(ModelUnsupported, match="'User', 'Item', 'Tag'"):
        Engine(model, shop())


def test_a_batch_that_is_being_tried_can_be_read() -> None:
    """What a what_if view will stand on: slots as the batch leaves them, until it is dropped."""
    graph, updates = shop(), Updates()
    updates.add_vertex(2, [1.0], vertex_type="Item")
    updates.remove_vertex(0, vertex_type="Item")
    _, translation = graph.host.ids.translate(updates)
    assert translation is not None
    assert translation.slots("view", [1, 2], vertex_type="Item").tolist() == [4, 6]
    with pytest.raises(LiveGnnError, match="got 0"):
        translation.slots("view", [0], vertex_type="Item")
    assert graph.is_live([0, 2], vertex_type="Item").tolist() == [True, False]
