"""Graph(ttl=): what it takes, what it refuses, and when edges leave. See docs/updates.md, "Edges that expire"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ColumnMissing, DtypeInvalid, EdgeDuplicate, EdgeMissing, ValueInvalid
from livegnn.graph.checks import INT64_MAX, INT64_MIN

CLICK, FOLLOW = ("User", "Click", "Item"), ("User", "Follow", "User")


def graph(ttl: Any, times: Any = (10, 50), **options: Any) -> lg.Graph:
    src = list(range(len(times)))
    return lg.Graph(np.eye(4, dtype=np.float32), src, [3] * len(src), time=times, ttl=ttl, **options)


def typed(ttl: Any) -> lg.Graph:
    ends, times = {CLICK: [0, 1], FOLLOW: [0, 1]}, {CLICK: [10, 90], FOLLOW: [10, 90]}
    return lg.Graph({"User": np.eye(2), "Item": np.eye(2)}, ends, ends, time=times, ttl=ttl)


def added(*edges: tuple[int, int, int]) -> lg.Updates:
    updates = lg.Updates()
    for u, v, time in edges:
        updates.add_edge(u, v, time=time)
    return updates


def times(of: lg.Graph) -> list[int]:
    return of.edges()["time"].tolist()


def test_an_edge_is_alive_while_its_time_is_after_now_less_the_ttl() -> None:
    window = graph(ttl=60)
    window.apply(added((0, 1, 69)))
    assert times(window) == [10, 50, 69]
    window.apply(added((0, 1, 70)))
    assert (times(window), window.now, window.ttl) == ([50, 69, 70], 70, 60)


def test_the_clock_does_not_go_back() -> None:
    window = graph(ttl=60)
    updates = added((0, 1, 109))
    updates.remove_edge(0, 1)
    window.apply(updates)
    window.apply(added((0, 2, 49), (0, 2, 50)))  # one is late, one too late
    assert (times(window), window.now) == ([50, 50], 109)
    assert window.host.store.next_edge_id == 5


def test_updates_do_not_see_what_has_expired() -> None:
    together, removal = added((0, 1, 100)), lg.Updates()
    for updates in (together, removal):
        updates.remove_edge(0, 3)
    with pytest.raises(EdgeMissing, match=r"update 1 \(remove_edge 0 -> 3\)"):
        graph(ttl=60).apply(together)
    window = graph(ttl=60)
    window.apply(added((0, 1, 100)))
    with pytest.raises(EdgeMissing, match=r"update 0 \(remove_edge 0 -> 3\)"):
        window.apply(removal)
    ignored = added((0, 1, 100))
    ignored.remove_edge(0, 3, missing="ignore")
    other = graph(ttl=60)
    other.apply(ignored)
    assert times(other) == times(window) == [50, 100]


def test_a_simple_graph_takes_a_pair_again_once_it_has_expired() -> None:
    window = graph(ttl=60, simple=True)
    with pytest.raises(EdgeDuplicate):
        window.apply(added((0, 3, 69)))
    window.apply(added((0, 3, 70)))
    assert times(window) == [50, 70]


def test_a_new_graph_stores_what_is_alive_and_counts_all_ids() -> None:
    window = graph(ttl=60, times=[100, 1, 40, 41])
    assert window.edges()["id"].tolist() == [0, 3]
    assert (window.host.store.next_edge_id, window.version, window.edge_count) == (4, 0, 2)
    assert graph(ttl=1, times=[5, 5, 4]).edge_count == 2


def test_types_have_durations_of_their_own() -> None:
    shop = typed({"Click": 60})
    assert shop.ttl == {CLICK: 60}
    assert shop.edges()["type"].tolist() == [0, 1, 1]
    both = typed({CLICK: 60, 1: 80})
    assert (both.ttl, both.edge_count) == ({CLICK: 60, FOLLOW: 80}, 2)
    assert typed(60).edge_count == 2  # one number is of all types
    numbered = lg.Graph(np.eye(3), [0, 1], [1, 2], time=[1, 100], edge_type=[4, 7], ttl={4: 9})
    assert (numbered.ttl, numbered.edge_count) == ({4: 9}, 1)
    none = lg.Graph(np.eye(3), [0, 1], [1, 2], time=[1, 100], edge_type=[4, 7], ttl={})
    assert none.edge_count == 2


def test_remove_edges_before_takes_a_type() -> None:
    shop = typed(None)
    for name, left in (("Click", [0, 1, 1]), (FOLLOW, [0, 1])):
        updates = lg.Updates()
        updates.remove_edges_before(50, edge_type=name)
        shop.apply(updates)
        assert shop.edges()["type"].tolist() == left
    for name, error in (("Buy", ValueInvalid), (7, ValueInvalid)):
        updates = lg.Updates()
        updates.remove_edges_before(50, edge_type=name)
        with pytest.raises(error, match=r"update 0\] expected an edge type among"):
            shop.apply(updates)
    updates = lg.Updates()
    updates.remove_edges_before(50, edge_type=0)
    with pytest.raises(ColumnMissing, match="expected no edge type"):
        graph(ttl=None).apply(updates)


def test_times_with_a_unit_take_durations_with_one() -> None:
    days = np.array(["2024-01-01", "2024-01-09"], "datetime64[s]")
    assert graph(np.timedelta64(7, "D"), days).ttl == 7 * 86400
    assert graph(np.timedelta64(7, "D"), days).edge_count == 1
    assert graph(86400, days).ttl == 86400
    empty = graph(np.timedelta64(2, "h"), days[:0])
    assert (empty.ttl, empty.now) == (7200, None)
    with pytest.raises(ValueInvalid, match="expected times in s"):
        empty.apply(added((0, 1, np.datetime64("2024-01-01", "D"))))


@pytest.mark.parametrize(
    ("ttl", "error", "text"),
    [
        (0, ValueInvalid, r"\[Graph\] expected ttl from 1 to 2\^62, in the unit of the times, got 0"),
        (-1, ValueInvalid, "got -1"),
        (2**62 + 1, ValueInvalid, "got 4611686018427387905"),
        (2**80, ValueInvalid, "from 1 to"),
        (True, DtypeInvalid, "expected ttl as an integer, got True"),
        (float("nan"), DtypeInvalid, "expected ttl as an integer, got nan"),
        (5.0, DtypeInvalid, "as an integer"),
        ("7d", DtypeInvalid, "as an integer"),
        (np.timedelta64(7, "D"), DtypeInvalid, "as times without a unit are"),
        ({0: 5}, ColumnMissing, r"one duration \(edges have no types\)"),
    ],
)
def test_what_is_no_duration_is_refused(ttl: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        graph(ttl)


@pytest.mark.parametrize(
    ("ttl", "error", "text"),
    [
        ({"Buy": 5}, ValueInvalid, "expected an edge type among .*, got 'Buy'"),
        ({2: 5}, ValueInvalid, "got 2"),
        ({None: 5}, ColumnMissing, "expected edge_type="),
        ({"Click": 5, CLICK: 6}, ValueInvalid, "expected each edge type once in ttl"),
        ({"Click": 0}, ValueInvalid, "expected ttl of 'Click' from 1"),
        ({"Click": None}, DtypeInvalid, "expected ttl of 'Click' as an integer"),
    ],
)
def test_what_is_no_dict_of_durations_is_refused(ttl: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        typed(ttl)


def test_a_ttl_needs_times() -> None:
    with pytest.raises(ColumnMissing, match="expected time= with ttl="):
        lg.Graph(np.eye(2), [0], [1], ttl=5)
    days = np.array(["2024-01-01"], "datetime64[D]")
    for span in (np.timedelta64(36, "h"), np.timedelta64(1, "M"), np.timedelta64("NaT")):
        with pytest.raises(ValueInvalid, match="expected ttl as a whole number of D"):
            graph(span, days)


def test_the_clock_does_not_wrap() -> None:
    edges = [INT64_MIN + 1, INT64_MIN + 5]
    assert times(graph(2**62, edges)) == edges
    late = graph(2**62, edges)
    late.apply(added((0, 1, INT64_MAX)))
    assert times(late) == [INT64_MAX]


def test_a_saved_graph_keeps_ttl_and_clock() -> None:
    shop = typed({"Click": 60})
    again = lg.Graph.from_arrays(shop.to_arrays())
    assert (again.ttl, again.now, again.digest()) == ({CLICK: 60}, 90, shop.digest())
    arrays = shop.to_arrays()
    arrays["ttl.durations"] = np.array([0])
    with pytest.raises(lg.errors.StoredStateInvalid, match="a ttl of"):
        lg.Graph.from_arrays(arrays)
    assert lg.Graph.from_arrays({k: v for k, v in shop.to_arrays().items() if not k.startswith("ttl.")}).ttl is None


def test_from_pyg_takes_a_ttl() -> None:
    data = pytest.importorskip("torch_geometric.data").Data
    torch = pytest.importorskip("torch")
    given = data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_time=torch.tensor([1, 99]))
    assert lg.Graph.from_pyg(given, ttl=50).edge_count == 1
    with pytest.raises(ValueInvalid, match=r"\[Graph.from_pyg\] expected ttl"):
        lg.Graph.from_pyg(given, ttl=0)


def test_what_if_lets_edges_expire_and_takes_it_back() -> None:
    window = graph(ttl=60)
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.eye(4, dtype=np.float32), aggregate="sum")]), window)
    before = engine.embeddings([3])
    with engine.what_if(added((0, 1, 100))) as view:
        assert view.embeddings([3]).tolist() == [[0, 1, 0, 0]]
    np.testing.assert_array_equal(engine.embeddings([3]), before)
    assert (times(window), window.now) == ([10, 50], 50)
    window.host.store.check_invariants()
