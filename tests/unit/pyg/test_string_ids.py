"""Loaders and stores over string ids, whose slots change hands while vertices go and come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import ColumnMissing, DtypeInvalid, UsageError, ValueInvalid, VertexUnknown
from tests.unit.pyg import graphs

NAMES = [f"u{i}" for i in range(6)]


def named() -> lg.Graph:
    """Vertex u_i has i in both of its columns."""
    rows = np.arange(6, dtype=np.float32)[:, None].repeat(2, 1)
    return lg.Graph(rows, ["u0", "u3"], ["u1", "u2"], ids=NAMES)


def swap(graph: lg.Graph, first: str, second: str) -> None:
    """Both go and come again, each in the other's slot."""
    before = graph.to_slots([first, second]).tolist()
    for action in ("remove", "add"):
        for name in (first, second) if action == "remove" else (second, first):
            updates = lg.Updates()
            if action == "remove":
                updates.remove_vertex(name)
            else:
                updates.add_vertex(name, [100.0, 100.0])
            graph.apply(updates)
    assert graph.to_slots([second, first]).tolist() == before


def test_a_pin_reads_the_vertices_that_had_the_names() -> None:
    graph = named()
    with lg.pyg.pin(graph) as pinned:
        swap(graph, "u1", "u2")
        batch = next(iter(lg.pyg.neighbor_loader(pinned, [2], ["u1"])))
        assert batch.x[0].tolist() == [1, 1]
        assert pinned.to_external(batch.n_id).tolist() == ["u1", "u0"]
        whole = next(iter(lg.pyg.neighbor_loader(pinned, [0], batch_size=6)))
        assert pinned.to_external(whole.n_id).tolist() == NAMES
        links = next(iter(lg.pyg.link_neighbor_loader(pinned, [0], [["u3"], ["u2"]])))
        assert links.x[links.edge_label_index[:, 0], 0].tolist() == [3, 2]


def test_a_pin_reads_a_vertex_that_was_removed() -> None:
    graph = named()
    with lg.pyg.pin(graph) as pinned:
        updates = lg.Updates()
        updates.remove_vertex("u1")
        graph.apply(updates)
        assert next(iter(lg.pyg.neighbor_loader(pinned, [2], ["u1"]))).x[0].tolist() == [1, 1]
        assert lg.pyg.feature_store(pinned)[None, "x", ["u1"]].tolist() == [[1, 1]]
        with pytest.raises(VertexUnknown):
            lg.pyg.neighbor_loader(pinned, [2], ["u9"])
    with pytest.raises(UsageError, match="inside its with block"):
        pinned.to_external([0])


def test_a_pin_takes_slots_of_the_type_alone() -> None:
    graph = graphs.typed(0, ids="names")
    slot = int(graph.to_slots(["item0"], vertex_type="item")[0])
    with lg.pyg.pin(graph) as pinned, pytest.raises(VertexUnknown, match="slots of user in version 0"):
        lg.pyg.feature_store(pinned)["user", "x", torch.tensor([slot])]


@pytest.mark.parametrize("links", [False, True])
def test_a_loader_without_a_pin_reads_the_vertices_that_have_the_names_now(links: bool) -> None:
    graph = named()
    if links:
        loader: Any = lg.pyg.link_neighbor_loader(graph, [0], [["u1", "u1"], ["u0", "u0"]], batch_size=1)
    else:
        loader = lg.pyg.neighbor_loader(graph, [0], ["u1", "u1"], batch_size=1)
    batches = iter(loader)

    def first_row(batch: Any) -> int:
        return int(batch.edge_label_index[0, 0]) if links else 0

    batch = next(batches)
    assert batch.x[first_row(batch)].tolist() == [1, 1]
    swap(graph, "u1", "u2")
    updates = lg.Updates()
    updates.set_features("u1", [7.0, 7.0])
    graph.apply(updates)
    batch = next(batches)
    assert batch.x[first_row(batch)].tolist() == [7, 7]
    assert graph.to_external(batch.n_id)[first_row(batch)] == "u1"


@pytest.mark.parametrize("ids", [None, "numbers", "names"])
def test_a_removed_seed_says_that_a_pin_keeps_it(ids: str | None) -> None:
    graph = graphs.plain(3, ids=ids)
    seeds = graph.vertices()[:6]
    loader = lg.pyg.neighbor_loader(graph, [2], list(seeds), batch_size=3)
    batches = iter(loader)
    next(batches)
    updates = lg.Updates()
    updates.remove_vertex(seeds[4])
    graph.apply(updates)
    with pytest.raises(VertexUnknown, match=r"a pin \(lg\.pyg\.pin\) where vertices go while it runs"):
        next(batches)


def test_indexes_are_whole_numbers_or_masks() -> None:
    graph = lg.Graph(np.arange(8, dtype=np.float32).reshape(4, 2), [0, 1], [1, 2])
    store = lg.pyg.feature_store(graph)
    mask = torch.tensor([True, False, True, False])
    assert store[None, "x", mask].tolist() == [[0, 1], [4, 5]]
    assert store[None, "x", torch.tensor([2])].tolist() == [[4, 5]]
    assert store[None, "x", 2].tolist() == [[4, 5]]
    for read in (
        lambda: store[None, "x", torch.tensor([2.9])],
        lambda: lg.pyg.neighbor_loader(graph, [1], [1.9]),
        lambda: lg.pyg.link_neighbor_loader(graph, [1], [[1.5], [0.5]]),
    ):
        with pytest.raises(DtypeInvalid, match="expected vertices as int64, got dtype float"):
            read()
    with pytest.raises(UsageError, match="mask of the 4 live vertices"):
        _ = store[None, "x", mask[:3]]
    assert len(list(lg.pyg.neighbor_loader(graph, [1], []))) == 0


def test_wrong_arguments_are_named() -> None:
    graph = named()
    with pytest.raises(
        ValueInvalid, match="expected num_neighbors as a list, or a dict by edge type with a list for each, got 3"
    ):
        lg.pyg.neighbor_loader(graph, 3, ["u1"])
    with pytest.raises(ColumnMissing, match="got 'User' for a graph without vertex types; pass a list of ids"):
        lg.pyg.neighbor_loader(graph, [1], "User")
    with pytest.raises(UsageError, match="expected no filter_per_worker="):
        lg.pyg.neighbor_loader(graph, [1], ["u1"], filter_per_worker=False)
    with pytest.raises(TypeError, match="nothing"):
        lg.pyg.neighbor_loader(graph, [1], ["u1"], nothing=1)
