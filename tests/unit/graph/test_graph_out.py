"""Graph.to_pyg and Graph.to_arrow: what they give makes the same graph again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

import livegnn as lg
from livegnn.errors import EdgeOffloaded
from tests.unit.pyg import graphs

KINDS = graphs.kinds()
EVERY = ("weight", "time", "edge_type", "edge_attr")


def all_ids(graph: lg.Graph) -> object:
    if not graph.has_ids:
        return None
    return (
        graph.vertices() if graph.vertex_types is None else {name: graph.vertices(name) for name in graph.vertex_types}
    )


@given(
    seed=st.integers(0, 10**6),
    columns=st.sets(st.sampled_from(EVERY)),
    ids=st.sampled_from([None, "numbers", "names"]),
    typed=st.booleans(),
    batches=st.integers(0, 3),
)
def test_a_graph_comes_back_from_pyg(seed: int, columns: set[str], ids: str | None, typed: bool, batches: int) -> None:
    given = tuple(sorted(columns - {"edge_type"} if typed else columns))
    graph = (graphs.typed if typed else graphs.plain)(seed, ids=ids, columns=given)
    for batch in range(batches):
        graphs.change(graph, seed + batch)
    data = graph.to_pyg()
    again = lg.Graph.from_pyg(data, ids=all_ids(graph))
    if graph.vertex_count == graph.slot_count:  # else the digest is of slots with gaps
        assert again.digest() == graph.digest()
    assert (again.vertex_count, again.edge_count) == (graph.vertex_count, graph.edge_count)
    same(again.to_pyg(), data)


def same(got: Data | HeteroData, expected: Data | HeteroData) -> None:
    """All but the numbers of edges and vertices, which count anew."""
    for mine, other in zip(got.stores, expected.stores, strict=True):
        assert set(mine.keys()) == set(other.keys())
        for name in set(mine.keys()) - {"n_id", "e_id"}:
            assert torch.equal(torch.as_tensor(mine[name]), torch.as_tensor(other[name])), name


@pytest.mark.parametrize(("name", "graph"), KINDS, ids=[name for name, _ in KINDS])
def test_rows_are_live_vertices_and_edges_join_them(name: str, graph: lg.Graph) -> None:
    data, edges = graph.to_pyg(), graph.edges()
    types = graph.vertex_types or (None,)
    for kind in types:
        part = data if kind is None else data[kind]
        vertices = graph.vertices(kind)
        assert part.num_nodes == len(vertices)
        np.testing.assert_array_equal(part.x, graph.features(vertex_type=kind))
        ids = graph.to_external(part.n_id.numpy(), vertex_type=kind) if "names" in name else part.n_id.numpy()
        np.testing.assert_array_equal(ids, vertices)
    for code, triple in enumerate(graph.edge_types or (None,)):
        part, (src, dst) = (data, (None, None)) if triple is None else (data[triple], (triple[0], triple[2]))
        kept = slice(None) if triple is None else edges["type"] == code
        ends = [graph.vertices(kind)[row.numpy()] for kind, row in zip((src, dst), part.edge_index, strict=True)]
        pairs = sorted(zip(*(end.tolist() for end in ends), part.e_id.tolist(), strict=True))
        expected = list(zip(*(edges[name][kept].tolist() for name in ("src", "dst", "id")), strict=True))
        if graph.undirected:
            expected += [(v, u, e) for u, v, e in expected if u != v]
        assert pairs == sorted(expected)


def test_names_are_those_that_from_pyg_reads() -> None:
    graph = graphs.plain(3, columns=EVERY)
    data = graph.to_pyg()
    edges = graph.edges()
    for name, mine in (("edge_weight", "weight"), ("edge_time", "time"), ("edge_type", "type"), ("edge_attr", "attr")):
        np.testing.assert_array_equal(data[name], edges[mine])
    data = Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.tensor([3.0]))
    graph = lg.Graph.from_pyg(data)
    assert graph.to_pyg().edge_attr.tolist() == [3.0]
    assert "edge_weight" not in graph.to_pyg()


def test_a_type_without_features_has_num_nodes() -> None:
    graph = lg.Graph(
        {"a": np.zeros((2, 0), np.float32), "b": np.ones((1, 1), np.float32)}, {("a", "to", "b"): [1]},
        {("a", "to", "b"): [0]},
    )  # fmt: skip
    data = graph.to_pyg()
    assert "x" not in data["a"]
    assert data["a"].num_nodes == 2
    assert lg.Graph.from_pyg(data).digest() == graph.digest()


@pytest.mark.parametrize(("name", "graph"), KINDS, ids=[name for name, _ in KINDS])
def test_arrow_tables_make_the_same_graph(name: str, graph: lg.Graph) -> None:
    vertices, edges = graph.to_arrow()
    typed = graph.vertex_types is not None
    tables = vertices if typed else {None: vertices}
    for kind, table in tables.items():
        assert table["id"].to_pylist() == graph.vertices(kind).tolist()
        rows = np.stack(table["features"].to_numpy())
        np.testing.assert_array_equal(rows, graph.features(vertex_type=kind))
    again = lg.Graph.from_arrays(graph.to_arrays())
    updates = lg.Updates()
    mine = graph.edges()
    for row, edge in enumerate(mine["id"].tolist()):
        kind = {"edge_type": int(mine["type"][row])} if "type" in mine else {}
        updates.remove_edge(mine["src"][row], mine["dst"][row], edge_id=edge, **kind)
    again.apply(updates)
    assert again.edge_count == 0
    again.apply(lg.Updates.from_arrow(pa.concat_tables(edges.values()) if typed else edges))
    assert again.digest() == graph.digest()


def test_times_of_a_unit_are_timestamps() -> None:
    times = np.array(["2026-01-01T00:00:05"], "datetime64[s]")
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0], [1], time=times)
    assert graph.to_arrow().edges["time"].type == pa.timestamp("s")
    assert graph.to_arrow().edges["time"].to_numpy().tolist() == times.tolist()


def test_edges_in_files_are_refused(tmp_path: object) -> None:
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0, 1], [1, 0], time=[1, 9])
    graph.offload(5, f"{tmp_path}/old.parquet")
    for call in (graph.to_pyg, graph.to_arrow):
        with pytest.raises(EdgeOffloaded, match=r"call graph.reload\(\) first$"):
            call()
