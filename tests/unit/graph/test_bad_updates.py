"""Every kind of bad update: refused with the value, the place and what to do, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegnn.errors import (
    ColumnMissing,
    DtypeInvalid,
    EdgeDuplicate,
    EdgeMissing,
    UpdateError,
    ValueInvalid,
    VertexExists,
    VertexIdGap,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates

from .test_updates import make_graph

ATTR = np.zeros(2, np.float32)
ROW = np.zeros(3, np.float32)
NAN_ROW = np.array([0, np.nan, 0], np.float32)
FULL: dict[str, Any] = {"weight": 1.0, "time": 1, "edge_type": 0, "edge_attr": ATTR}

Case = tuple[Callable[[Updates], object], type[UpdateError], str]

AT_THE_CALL: list[Case] = [
    # ids
    (
        lambda u: u.add_edge(-1, 0),
        ValueInvalid,
        r"\[add_edge, update 1\] expected a vertex id of at least 0 as u, got -1",
    ),
    (lambda u: u.add_edge(0, -1), ValueInvalid, "at least 0 as v, got -1"),
    (lambda u: u.add_edge(2**63, 0), ValueInvalid, "fits int64 as u, got 9223372036854775808"),
    (lambda u: u.add_edge(0, np.uint64(2**63)), ValueInvalid, "fits int64 as v"),
    (lambda u: u.add_edge(True, 0), DtypeInvalid, "as an integer, got True of bool"),
    (lambda u: u.add_edge(np.True_, 0), DtypeInvalid, "dtype bool"),
    (lambda u: u.add_edge(0, 1.0), DtypeInvalid, "v as an integer, got 1.0 of float"),
    (lambda u: u.add_edge(0, np.float32(1)), DtypeInvalid, "dtype float32"),
    (lambda u: u.add_edge(0, None), DtypeInvalid, "None of NoneType"),
    (lambda u: u.add_edge(0, "b"), DtypeInvalid, "expected u and v of one kind, got 0 and 'b'"),
    (lambda u: u.add_edge("a", "b"), DtypeInvalid, "expected int64 ids as in the updates before, got 'a'"),
    (lambda u: u.add_edge(0, b"b"), DtypeInvalid, "of bytes"),
    (lambda u: u.remove_edge(-5, 0), ValueInvalid, r"\[remove_edge, update 1\].*got -5"),
    (lambda u: u.set_weight(0, 1.5, 1.0), DtypeInvalid, r"\[set_weight, update 1\].*got 1.5"),
    (lambda u: u.set_edge_attr(-2, 0, ATTR), ValueInvalid, "got -2"),
    (lambda u: u.set_features(-3, ROW), ValueInvalid, "got -3"),
    (lambda u: u.add_vertex(-4, ROW), ValueInvalid, "got -4"),
    (lambda u: u.add_vertex(False, ROW), DtypeInvalid, "got False"),
    (lambda u: u.remove_vertex(1.0), DtypeInvalid, "got 1.0"),
    (lambda u: u.remove_edge(0, 1, edge_id=-1), ValueInvalid, "an edge id from 0"),
    (lambda u: u.remove_edge(0, 1, edge_id=True), DtypeInvalid, "edge_id as an integer"),
    # numbers
    (
        lambda u: u.add_edge(0, 1, weight=float("nan")),
        ValueInvalid,
        r"\[add_edge, update 1\] expected weight finite.*nan",
    ),
    (lambda u: u.add_edge(0, 1, weight=float("-inf")), ValueInvalid, "-inf"),
    (lambda u: u.add_edge(0, 1, weight=1e39), ValueInvalid, r"1e\+39"),
    (lambda u: u.add_edge(0, 1, weight=10**400), ValueInvalid, "within float32"),
    (lambda u: u.add_edge(0, 1, weight=True), DtypeInvalid, "weight as a number, got True"),
    (lambda u: u.add_edge(0, 1, weight="1"), DtypeInvalid, "weight as a number, got '1'"),
    (lambda u: u.add_edge(0, 1, weight=[1.0]), DtypeInvalid, "weight as a number"),
    (lambda u: u.set_weight(0, 1, float("inf")), ValueInvalid, "inf"),
    (lambda u: u.add_edge(0, 1, time=1.5), DtypeInvalid, "time as an integer, got 1.5"),
    (lambda u: u.add_edge(0, 1, time=2**63), ValueInvalid, "time that fits int64"),
    (lambda u: u.add_edge(0, 1, time=-(2**63)), ValueInvalid, "smallest value is taken"),
    (lambda u: u.remove_edges_before(0.5), DtypeInvalid, "time as an integer"),
    (lambda u: u.add_edge(0, 1, edge_type=-1), ValueInvalid, "edge_type from 0 to 2147483647, got -1"),
    (lambda u: u.add_edge(0, 1, edge_type=2**31), ValueInvalid, "edge_type from 0"),
    (lambda u: u.add_edge(0, 1, edge_type=True), DtypeInvalid, "edge_type as an integer"),
    (lambda u: u.remove_edge(0, 1, missing="maybe"), ValueInvalid, "got 'maybe'"),  # type: ignore[arg-type]
    # rows
    (lambda u: u.set_features(0, NAN_ROW), ValueInvalid, "nan at column 1; "),
    (lambda u: u.add_vertex(3, NAN_ROW), ValueInvalid, "nan at column 1; "),
    (lambda u: u.set_features(0, [0.0, 1e40, 0.0]), ValueInvalid, r"1e\+40 at column 1"),
    (lambda u: u.add_edge(0, 1, edge_attr=NAN_ROW), ValueInvalid, "nan at column 1; "),
    (lambda u: u.set_edge_attr(0, 1, NAN_ROW), ValueInvalid, "nan at column 1; "),
    (lambda u: u.set_features(0, np.zeros(3, np.int64)), DtypeInvalid, "x as float32, got dtype int64"),
    (lambda u: u.set_edge_attr(0, 1, np.zeros(3, np.float16)), DtypeInvalid, "dtype float16"),
    (lambda u: u.set_features(0, [True, False, True]), DtypeInvalid, "dtype bool"),
    (lambda u: u.set_features(0, ["a", "b", "c"]), DtypeInvalid, "x as float32"),
    (lambda u: u.set_features(0, np.zeros((1, 3))), WidthMismatch, r"x of shape \(width,\), got \(1, 3\)"),
    (lambda u: u.add_vertex(3, 1.0), WidthMismatch, r"got 1\.0; pass a list"),
    # arrays
    (lambda u: u.add_edges([0, -1], [1, 1]), ValueInvalid, r"\[add_edges, update 1\].*in src, got -1 at row 1"),
    (lambda u: u.add_edges([0.0], [1]), DtypeInvalid, "src as int64, got dtype float64"),
    (lambda u: u.add_edges([True], [1]), DtypeInvalid, "src as int64, got dtype bool"),
    (lambda u: u.add_edges(np.array([2**63], np.uint64), [1]), ValueInvalid, "9223372036854775808 at row 0"),
    (lambda u: u.add_edges([0, 1], [1]), WidthMismatch, "dst with 2 rows like src, got 1"),
    (lambda u: u.add_edges([[0]], [[1]]), WidthMismatch, r"src of shape \(k,\), got \(1, 1\)"),
    (lambda u: u.add_edges(0, 1), WidthMismatch, r"src of shape \(k,\), got 0; pass a list"),
    (lambda u: u.add_edges([0, 1], [1, 0], weight=[1.0]), WidthMismatch, "weight with 2 rows"),
    (lambda u: u.add_edges([0], [1], weight=[np.nan]), ValueInvalid, "nan at row 0"),
    (lambda u: u.add_edges([0], [1], weight=np.array([1])), DtypeInvalid, "weight as float32, got dtype int64"),
    (lambda u: u.add_edges([0], [1], time=[1.0]), DtypeInvalid, "time as int64"),
    (lambda u: u.add_edges([0], [1], time=np.array(["NaT"], "M8[s]")), ValueInvalid, "NaT"),
    (lambda u: u.add_edges([0], [1], edge_type=[-1]), ValueInvalid, "edge_type from 0"),
    (lambda u: u.add_edges([0], [1], edge_attr=[1.0]), WidthMismatch, "edge_attr of shape"),
    (lambda u: u.add_edges([0], [1], edge_attr=[[1.0], [2.0]]), WidthMismatch, "edge_attr with 1 rows"),
    (lambda u: u.remove_edges([0], ["a"]), DtypeInvalid, "one kind of id"),
    (lambda u: u.remove_edges([0], [1], missing="no"), ValueInvalid, "got 'no'"),  # type: ignore[arg-type]
    (lambda u: u.set_weights([0], [1], [np.inf]), ValueInvalid, "inf at row 0"),
    (lambda u: u.set_weights([0], [1], [1.0, 2.0]), WidthMismatch, "weight with 1 rows"),
    (lambda u: u.set_features([0, 1], np.zeros((1, 3))), WidthMismatch, "x with 2 rows like ids, got 1"),
    (lambda u: u.add_edges([0], [1], time=["noon"]), DtypeInvalid, "time as int64, got dtype <U4; read it as numbers"),
    (lambda u: u.add_edges([0], [1], weight=["2"]), DtypeInvalid, "weight as float32, got dtype <U1; read it as"),
    (lambda u: u.set_features([0], [[0.0, np.nan, 0.0]]), ValueInvalid, "nan at row 0, column 1; drop"),
    (lambda u: u.set_features([0, 1], [[0.0], [0.0, 1.0]]), WidthMismatch, "rows of one width"),
    (lambda u: u.add_vertices([3, -1], np.zeros((2, 3))), ValueInvalid, "-1 at row 1"),
    (lambda u: u.remove_vertices([0.5]), DtypeInvalid, "ids as int64"),
]

BY_APPLY: list[Case] = [
    (lambda u: u.add_edge(0, 9, **FULL), VertexUnknown, "update 1.*9"),
    (lambda u: u.add_edge(2**40, 0, **FULL), VertexUnknown, "update 1.*1099511627776"),
    (lambda u: u.remove_edge(9, 0, missing="ignore"), VertexUnknown, "update 1.*9"),
    (lambda u: u.remove_edge(1, 0), EdgeMissing, "update 1.*1 -> 0"),
    (lambda u: u.remove_edge(0, 1, edge_id=1), EdgeMissing, "update 1"),
    (lambda u: u.remove_edge(0, 1, edge_id=10**12), EdgeMissing, "update 1"),
    (lambda u: u.set_weight(1, 0, 1.0), EdgeMissing, "update 1.*1 -> 0"),
    (lambda u: u.set_weight(0, 1, 1.0, edge_id=1), EdgeMissing, "update 1"),
    (lambda u: u.set_weight(0, 9, 1.0), VertexUnknown, "update 1.*9"),
    (lambda u: u.set_edge_attr(1, 0, ATTR), EdgeMissing, "update 1"),
    (lambda u: u.set_edge_attr(0, 1, ROW), WidthMismatch, "update 1"),
    (lambda u: u.set_features(9, ROW), VertexUnknown, "update 1.*9"),
    (lambda u: u.set_features(0, ATTR), WidthMismatch, "update 1"),
    (lambda u: u.set_features([0], np.zeros((1, 0))), WidthMismatch, "update 1"),
    (lambda u: u.add_vertex(2, ROW), VertexExists, "update 1.*2"),
    (lambda u: u.add_vertex(5, ROW), VertexIdGap, "update 1.*5"),
    (lambda u: u.add_vertex(3, ATTR), WidthMismatch, "update 1"),
    (lambda u: u.add_vertices([3, 3], np.zeros((2, 3))), VertexExists, "update 2.*3"),
    (lambda u: u.remove_vertex(3), VertexUnknown, "update 1.*3"),
    (lambda u: u.remove_vertices([0, 0]), VertexUnknown, "update 2.*0"),
    (lambda u: u.add_edge(0, 1, **{**FULL, "weight": None}), ColumnMissing, "update 1.*weight"),
    (lambda u: u.add_edge(0, 1, **{**FULL, "time": None}), ColumnMissing, "update 1.*time"),
    (lambda u: u.add_edge(0, 1, **{**FULL, "edge_type": None}), ColumnMissing, "update 1.*type"),
    (lambda u: u.add_edge(0, 1, **{**FULL, "edge_attr": None}), ColumnMissing, "update 1.*attr"),
    (lambda u: u.add_edge(0, 1, **{**FULL, "edge_attr": ROW}), WidthMismatch, "update 1"),
]

NO_SUCH_COLUMN: list[Case] = [
    (lambda u: u.add_edge(0, 1, weight=1.0), ColumnMissing, "weight"),
    (lambda u: u.add_edge(0, 1, time=1), ColumnMissing, "time"),
    (lambda u: u.add_edge(0, 1, edge_type=1), ColumnMissing, "type"),
    (lambda u: u.add_edge(0, 1, edge_attr=ATTR), ColumnMissing, "attr"),
    (lambda u: u.set_weight(0, 1, 1.0), ColumnMissing, "weight"),
    (lambda u: u.set_edge_attr(0, 1, ATTR), ColumnMissing, "attr"),
    (lambda u: u.remove_edges_before(1), ColumnMissing, "time"),
    (lambda u: u.remove_edge(0, 1, time=1), ColumnMissing, "time"),
    (lambda u: u.remove_edge(0, 1, edge_type=1), ColumnMissing, "type"),
]


def state(graph: Graph) -> tuple[Any, ...]:
    edges = {key: column.tolist() for key, column in graph.edges().items()}
    return graph.digest(), edges, graph.features().tolist(), graph.version, graph.vertices().tolist()


@pytest.mark.parametrize(("act", "error", "message"), AT_THE_CALL)
def test_bad_values_are_refused_at_the_call_and_add_nothing(
    act: Callable[[Updates], object], error: type[Exception], message: str
) -> None:
    updates = Updates()
    updates.set_features(0, ROW)
    with pytest.raises(error, match=message) as caught:
        act(updates)
    assert "; " in str(caught.value)  # says what to do
    assert len(updates) == 1
    graph = make_graph()
    graph.apply(updates)  # what was there before is still good


@pytest.mark.parametrize(("act", "error", "message"), BY_APPLY)
def test_what_does_not_suit_the_graph_is_refused_whole(
    act: Callable[[Updates], object], error: type[Exception], message: str
) -> None:
    graph, updates = make_graph(), Updates()
    before = state(graph)
    updates.set_features(0, np.full(3, 9, np.float32))
    act(updates)
    updates.add_edge(0, 0, **FULL)
    with pytest.raises(error, match=message):
        graph.apply(updates)
    assert state(graph) == before
    after = Updates()
    after.add_edge(0, 0, **FULL)
    graph.apply(after)
    assert graph.edges()["id"].tolist() == [0, 1, 2, 3, 4]  # no edge id was used up


@pytest.mark.parametrize(("act", "error", "message"), NO_SUCH_COLUMN)
def test_columns_that_the_graph_has_not_are_refused(
    act: Callable[[Updates], object], error: type[Exception], message: str
) -> None:
    graph, updates = Graph(np.eye(3), [0], [1]), Updates()
    before = state(graph)
    act(updates)
    with pytest.raises(error, match=message):
        graph.apply(updates)
    assert state(graph) == before


@pytest.mark.parametrize("undirected", [False, True])
def test_a_simple_graph_refuses_a_second_edge(undirected: bool) -> None:
    graph = Graph(np.eye(3), [0], [1], simple=True, undirected=undirected)
    before = state(graph)
    for ends in [(0, 1), (1, 0)] if undirected else [(0, 1)]:
        updates = Updates()
        updates.add_edge(2, 2)
        updates.add_edge(*ends)
        with pytest.raises(EdgeDuplicate, match="update 1"):
            graph.apply(updates)
        assert state(graph) == before
    updates = Updates()
    updates.remove_edge(0, 1)
    updates.add_edge(0, 1)
    updates.add_edge(1, 2)
    graph.apply(updates)
    assert graph.edges()["id"].tolist() == [1, 2]
