"""Old edges in files: what stays, what is refused, what comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import (
    ColumnMissing,
    DataMissing,
    EdgeDuplicate,
    EdgeOffloaded,
    StoredStateInvalid,
    UsageError,
)

parquet = pytest.importorskip("pyarrow.parquet")


def small(**options: Any) -> lg.Graph:
    """0 -> 1 at 10, 1 -> 2 at 20, 0 -> 1 at 30, 2 -> 0 at 40."""
    return lg.Graph(np.eye(4, dtype=np.float32), [0, 1, 0, 2], [1, 2, 1, 0], time=np.array([10, 20, 30, 40]), **options)


def updates(*calls: tuple[str, tuple[Any, ...], dict[str, Any]]) -> lg.Updates:
    made = lg.Updates()
    for name, arguments, options in calls:
        getattr(made, name)(*arguments, **options)
    return made


def same_edges(a: lg.Graph, b: lg.Graph) -> bool:
    left, right = a.edges(), b.edges()
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_old_edges_move_to_a_file_and_stay_edges_of_the_graph(tmp_path: Path) -> None:
    graph, whole = small(), small()
    away = graph.offload(before=30, path=tmp_path / "old.parquet")
    assert (away.before, away.count, away.paths) == (30, 2, (str(tmp_path / "old.parquet"),))
    assert graph.offloaded == away
    assert (graph.edge_count, graph.version, graph.digest()) == (2, 0, whole.digest())
    assert graph.in_degree([0, 1, 2]).tolist() == [1, 2, 1]
    assert graph.out_degree([0, 1, 2]).tolist() == [2, 1, 1]
    table = parquet.read_table(tmp_path / "old.parquet")
    assert table.to_pydict() == {"src": [0, 1], "dst": [1, 2], "id": [0, 1], "time": [10, 20]}
    about = json.loads(table.schema.metadata[b"livegnn.offload"])
    assert (about["version"], about["before"], about["count"]) == (0, 30, 2)
    assert graph.reload() == 2
    assert same_edges(graph, whole)
    assert graph.offloaded == lg.graph.offload.NOTHING


def test_since_brings_the_newer_part_back(tmp_path: Path) -> None:
    graph, whole = small(), small()
    graph.offload(20, tmp_path / "a")
    graph.offload(40, tmp_path / "b")
    assert [(file.before, file.count) for file in graph.offloaded.files] == [(20, 1), (40, 2)]
    assert graph.reload(since=25) == 1
    assert (graph.offloaded.before, graph.offloaded.count) == (25, 2)
    assert graph.edges(loaded_only=True)["id"].tolist() == [2, 3]
    assert graph.reload(since=25) == 0
    assert graph.reload(tmp_path / "b") == 1
    assert graph.offloaded.paths == (str(tmp_path / "a"),)
    (tmp_path / "a").rename(tmp_path / "moved")
    with pytest.raises(DataMissing, match=r"expected the file .*a, got none; pass path= where it has moved"):
        graph.reload()
    assert graph.reload(tmp_path / "moved") == 1
    assert same_edges(graph, whole)
    assert graph.digest() == whole.digest()


@pytest.mark.parametrize("undirected", [False, True])
def test_every_column_and_own_ids_come_back(tmp_path: Path, undirected: bool) -> None:
    rng = np.random.default_rng(1)
    names = np.array([f"v{i}" for i in range(20)], object)
    columns: dict[str, Any] = {
        "weight": rng.random(500, np.float32),
        "time": rng.integers(0, 100, 500),
        "edge_type": rng.integers(0, 3, 500).astype(np.int32),
        "edge_attr": rng.random((500, 3), np.float32),
        "ids": names,
        "undirected": undirected,
    }
    ends = rng.choice(names, 500), rng.choice(names, 500)
    graph, whole = (lg.Graph(np.zeros((20, 1), np.float32), *ends, **columns) for _ in range(2))
    graph.offload(60, tmp_path / "a")
    assert graph.digest() == whole.digest()
    assert graph.in_degree(names).tolist() == whole.in_degree(names).tolist()
    graph.host.store.check_invariants()
    stored = parquet.read_table(tmp_path / "a")
    assert stored.column_names == ["src", "dst", "id", "weight", "time", "type", "attr"]
    assert set(stored["src"].to_pylist()) <= set(names)
    graph.reload()
    graph.host.store.check_invariants()
    assert same_edges(graph, whole)
    for name in names:
        assert graph.in_neighbours(name)["id"].tolist() == whole.in_neighbours(name)["id"].tolist()


def test_types_of_vertices_name_the_ends(tmp_path: Path) -> None:
    click, follow = ("User", "Click", "Item"), ("User", "Follow", "User")

    def shop() -> lg.Graph:
        return lg.Graph(
            {"User": np.eye(3, dtype=np.float32), "Item": np.ones((2, 1), np.float32)},
            {click: ["ann", "ben", "cy"], follow: ["ann"]},
            {click: ["book", "pen", "pen"], follow: ["cy"]},
            time={click: [10, 11, 12], follow: [5]},
            ids={"Item": ["book", "pen"], "User": ["ann", "ben", "cy"]},
        )

    graph, whole = shop(), shop()
    graph.offload(12, tmp_path / "a")
    assert sorted(parquet.read_table(tmp_path / "a")["dst"].to_pylist()) == ["book", "cy", "pen"]
    assert graph.digest() == whole.digest()
    graph.reload()
    assert same_edges(graph, whole)
    assert graph.digest() == whole.digest()


@pytest.mark.parametrize(
    "call",
    [
        ("remove_edge", (1, 2), {}),
        ("remove_edge", (1, 2), {"missing": "ignore"}),
        ("remove_edge", (0, 1), {"time": 10}),
        ("remove_edge", (0, 1), {"edge_id": 0}),
        ("remove_edges_before", (5,), {}),
        ("remove_vertex", (2,), {}),
    ],
)
def test_updates_that_would_need_what_is_away_are_refused(tmp_path: Path, call: Any) -> None:
    graph = small()
    graph.offload(30, tmp_path / "a")
    before = graph.digest()
    with pytest.raises(EdgeOffloaded, match=r"\[apply\] update 0 .*time before 30 in a file; reload the graph first"):
        graph.apply(updates(call))
    assert (graph.digest(), graph.version) == (before, 0)
    graph.reload()
    assert graph.apply(updates(call)) == 1


def test_updates_that_need_nothing_of_it_go_on(tmp_path: Path) -> None:
    graph, whole = small(), small()
    graph.offload(30, tmp_path / "a")
    batch = updates(
        ("remove_edge", (0, 1), {}),  # the newest, which is in memory
        ("remove_edge", (2, 0), {"time": 40}),
        ("remove_edge", (3, 1), {"missing": "ignore"}),
        ("add_edge", (1, 3), {"time": 5}),  # late, and stays in memory
        ("add_edge", (1, 3), {"time": 50}),
        ("remove_vertex", (3,), {}),
        ("add_vertex", (3, [0, 0, 0, 1]), {}),
    )
    for each in (graph, whole):
        each.apply(batch)
        each.host.store.check_invariants()
    assert graph.digest() == whole.digest()
    graph.reload()
    assert same_edges(graph, whole)


def test_an_old_edge_with_a_newer_id_is_not_passed_over(tmp_path: Path) -> None:
    graph = small()
    graph.apply(updates(("add_edge", (0, 1), {"time": 3})))  # id 4, and the oldest
    graph.offload(30, tmp_path / "a")
    with pytest.raises(EdgeOffloaded):
        graph.apply(updates(("remove_edge", (0, 1), {})))  # means id 4
    graph.apply(updates(("remove_edge", (0, 1), {"time": 30})))


def test_a_simple_graph_looks_for_the_pair_first(tmp_path: Path) -> None:
    graph = lg.Graph(np.zeros((3, 0), np.float32), [0, 1], [1, 2], time=np.array([1, 9]), simple=True)
    graph.offload(5, tmp_path / "a")
    with pytest.raises(EdgeOffloaded):
        graph.apply(updates(("add_edge", (0, 1), {"time": 20})))
    graph.apply(updates(("add_edge", (2, 0), {"time": 20})))
    graph.reload()
    with pytest.raises(EdgeDuplicate):
        graph.apply(updates(("add_edge", (0, 1), {"time": 20})))


def test_readers_are_refused_by_name(tmp_path: Path) -> None:
    graph = small()
    graph.offload(30, tmp_path / "a")
    with pytest.raises(EdgeOffloaded, match=r"\[edges\] expected edges in memory, got 2 with a time before 30"):
        graph.edges()
    with pytest.raises(EdgeOffloaded, match=r"\[in_neighbours\]"):
        graph.in_neighbours(1)
    with pytest.raises(EdgeOffloaded, match=r"\[out_neighbours\]"):
        graph.out_neighbours(0)
    assert graph.in_neighbours(0)["src"].tolist() == [2]  # has none away
    assert graph.in_neighbours(1, loaded_only=True)["time"].tolist() == [30]
    assert graph.out_neighbours(0, loaded_only=True)["id"].tolist() == [2]
    ad_hoc = lg.sampling.AdHocSampler(graph, lg.query().out().sample(2, by="top_k"))
    with pytest.raises(UsageError, match=r"\[sample\] expected a graph with all edges in memory, got 2 of them"):
        ad_hoc.sample([0])
    graph.reload()
    assert ad_hoc.sample([0]).edge_ids(1).tolist() == [[2, 0]]


def test_answers_in_memory_stay_the_same_while_there_are_copies(tmp_path: Path) -> None:
    graph = small()
    graph.offload(30, tmp_path / "a")
    sampler = lg.PreSampler(graph, lg.query().out().sample(2, by="top_k"))
    assert sampler.sample([0]).edge_ids(1).tolist() == [[2, 0]]
    assert graph.edge_count == 2
    assert graph.in_degree([0, 1, 2]).tolist() == [1, 2, 1]
    assert graph.edges(loaded_only=True)["id"].tolist() == [2, 3]
    assert graph.in_neighbours(1, loaded_only=True)["time"].tolist() == [30]
    with pytest.raises(EdgeOffloaded):
        graph.in_neighbours(1)
    with pytest.raises(EdgeOffloaded):
        graph.apply(updates(("remove_edge", (1, 2), {})))
    assert graph.reload() == 2
    assert sampler.sample([0]).edge_ids(1).tolist() == [[2, 0]]
    graph.apply(updates(("remove_edge", (0, 1), {"time": 30})))
    assert sampler.sample([0]).edge_ids(1).tolist() == [[0, -1]]


def test_offload_is_refused_and_leaves_everything(tmp_path: Path) -> None:
    graph = small()
    with (
        lg.TemporalSampler(graph, [1]).pin(),
        pytest.raises(UsageError, match=r"\[offload\] expected nothing attached .*, got a PinnedSampler; close it"),
    ):
        graph.offload(30, tmp_path / "a")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(UsageError, match="not taken"):
        graph.offload(30, tmp_path / "taken")
    with pytest.raises(UsageError, match="expected a folder"):
        graph.offload(30, tmp_path / "no" / "folder")
    with pytest.raises(TypeError):
        graph.offload("soon", tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(ColumnMissing, match="expected a graph with times"):
        lg.Graph(np.zeros((1, 0), np.float32), [0], [0]).offload(3, tmp_path / "a")
    assert graph.offload(10, tmp_path / "a").count == 0  # nothing so old, no file
    assert graph.edge_count == 4
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10] ^= 255
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b""),
        _flip,
        lambda path: parquet.write_table(parquet.read_table(path).slice(1), path),
        lambda path: parquet.write_table(parquet.read_table(path).replace_schema_metadata({}), path),
        lambda path: parquet.write_table(parquet.read_table(path).drop_columns(["id"]), path),
    ],
)
def test_a_damaged_file_is_refused_and_nothing_changes(tmp_path: Path, damage: Any) -> None:
    graph = small()
    away = graph.offload(30, tmp_path / "a")
    damage(tmp_path / "a")
    with pytest.raises(StoredStateInvalid, match=r"\[reload\]"):
        graph.reload()
    assert (graph.offloaded, graph.edge_count) == (away, 2)
    graph.host.store.check_invariants()


def test_a_changed_edge_and_a_file_of_another_graph_are_refused(tmp_path: Path) -> None:
    import pyarrow

    graph, other = small(), small()
    graph.offload(30, tmp_path / "a")
    other.offload(30, tmp_path / "b")
    with pytest.raises(UsageError, match="expected a file that this graph's edges are in"):
        graph.reload(tmp_path / "b")
    table = parquet.read_table(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    parquet.write_table(table.set_column(3, "time", pyarrow.array([11, 20])), tmp_path / "a")
    with pytest.raises(StoredStateInvalid, match="its bytes are not those that were written"):
        graph.reload()
    graph.host.offloaded = replace(graph.offloaded, files=(replace(graph.offloaded.files[0], digest=""),))
    with pytest.raises(StoredStateInvalid, match="expected the edges that left this graph"):
        graph.reload()  # as a file of livegnn 0.1, whose bytes have no digest
    (tmp_path / "a").write_bytes(whole)
    assert graph.reload() == 2


def test_batches_before_are_final_and_batches_after_roll_back(tmp_path: Path) -> None:
    graph = small()
    graph.offload(30, tmp_path / "a")
    before = graph.digest()
    with pytest.raises(EdgeOffloaded):
        graph.apply(updates(("add_edge", (0, 3), {"time": 60}), ("remove_edge", (1, 2), {})))
    assert graph.digest() == before
    graph.host.store.check_invariants()


def test_a_saved_graph_knows_what_is_away(tmp_path: Path) -> None:
    graph, whole = small(), small()
    graph.offload(20, tmp_path / "a")
    graph.offload(30, tmp_path / "b")
    arrays = graph.to_arrays()
    again = lg.Graph.from_arrays(arrays)
    assert again.offloaded == graph.offloaded
    assert again.digest() == whole.digest()
    assert again.reload() == 2
    assert same_edges(again, whole)
    for name, bad in (("offload.out", np.zeros(9, np.int32)), ("offload.files", arrays["offload.files"] + 1)):
        with pytest.raises(StoredStateInvalid):
            lg.Graph.from_arrays({**arrays, name: bad})


def test_memory_is_given_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, 1000, (2, 400_000))
    graph = lg.Graph(np.zeros((1000, 0), np.float32), src, dst, time=np.arange(400_000))

    def held() -> int:
        memory = graph.memory()
        return memory["edges_live"] + memory["edges_reserved"] + memory["index"]

    before = held()
    graph.offload(300_000, tmp_path / "a")
    assert held() < 0.32 * before
    assert graph.block_stats()["edges"] == 100_000
    assert graph.reload(since=200_000) == 100_000
    graph.host.store.check_invariants()
