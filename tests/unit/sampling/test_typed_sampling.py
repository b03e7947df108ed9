"""Samples on a graph with vertex types: users click items, items are bought together."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch_geometric.nn import HeteroConv, SAGEConv

import livegnn as lg
from livegnn.errors import QueryInvalid, UsageError, VertexUnknown

CLICK, TOGETHER = ("User", "Click", "Item"), ("Item", "CoPurchase", "Item")
SHOP = lg.query("User").out("Click").sample(3, by="top_k").out("CoPurchase").sample(2, by="top_k")


def shop() -> lg.Graph:
    """User u clicked items 0 ... 3 in turn; item i was bought with i + 1. Users have 2 features, items 3."""
    users = np.arange(6, dtype=np.float32).reshape(3, 2)
    items = 100 + np.arange(12, dtype=np.float32).reshape(4, 3)
    return lg.Graph(
        {"User": users, "Item": items},
        {CLICK: [0, 0, 0, 0, 1], TOGETHER: [0, 1, 2]},
        {CLICK: [0, 1, 2, 3, 2], TOGETHER: [1, 2, 3]},
        time={CLICK: [1, 2, 3, 4, 5], TOGETHER: [1, 2, 3]},
    )


def test_levels_have_the_ids_and_features_of_their_type() -> None:
    sample = lg.PreSampler(shop(), SHOP).sample([0, 1, 2])
    assert sample.vertex_types == ("User", "Item", "Item")
    assert sample.hop(1).tolist() == [[3, 2, 1], [2, -1, -1], [-1, -1, -1]]
    assert sample.hop(2)[0].tolist() == [[-1, -1], [3, -1], [2, -1]]
    assert sample.features(0).shape == (3, 2)
    assert sample.features(1).shape == (3, 3, 3)
    assert sample.features(1)[0, 1].tolist() == [106, 107, 108]


def test_updates_by_type() -> None:
    sampler = lg.PreSampler(shop(), SHOP)
    updates = lg.Updates()
    updates.add_vertex(4, [1, 2, 3], vertex_type="Item")
    updates.add_vertex(3, [5, 6], vertex_type="User")
    updates.add_edge(3, 4, edge_type="Click", time=9)
    updates.add_edge(4, 0, edge_type="CoPurchase", time=9)
    updates.remove_edge(0, 3, edge_type="Click")
    sampler.apply(updates)
    sample = sampler.sample([3, 0])
    assert sample.hop(1).tolist() == [[4, -1, -1], [2, 1, 0]]
    assert sample.hop(2)[0, 0].tolist() == [0, -1]
    assert sample.features(0)[0].tolist() == [5, 6]
    sampler.verify()


def test_a_slot_that_changes_its_type_changes_its_samples() -> None:
    sampler = lg.PreSampler(shop(), SHOP)
    updates = lg.Updates()
    updates.remove_vertex(2, vertex_type="Item")
    updates.add_vertex(3, [7, 7], vertex_type="User")  # takes the slot
    sampler.apply(updates)
    assert sampler.sample([0]).hop(1).tolist() == [[3, 1, 0]]
    assert sampler.sample([3]).hop(1).tolist() == [[-1, -1, -1]]
    assert sampler.sample([3]).features(0).tolist() == [[7, 7]]
    sampler.verify()


def test_seeds_are_of_the_query_s_type() -> None:
    sampler = lg.PreSampler(shop(), SHOP)
    with pytest.raises(VertexUnknown, match="got 3 at row 1"):
        sampler.sample([0, 3])  # there is an item 3, but no user 3
    with pytest.raises(QueryInvalid, match="vertex type"):
        lg.PreSampler(shop(), lg.query().out().sample(1))


def test_ids_of_their_own_by_type() -> None:
    graph = lg.Graph(
        {"User": np.zeros((2, 1), np.float32), "Item": np.zeros((2, 1), np.float32)},
        {CLICK: ["ann", "ann"]},
        {CLICK: ["pen", "ink"]},
        time={CLICK: [1, 2]},
        ids={"User": ["ann", "bob"], "Item": ["pen", "ink"]},
    )
    sample = lg.PreSampler(graph, lg.query("User").out("Click").sample(2, by="top_k")).sample(["bob", "ann"])
    assert sample.hop(1).tolist() == [[None, None], ["ink", "pen"]]


def test_the_other_way_round() -> None:
    query = lg.query("Item").in_("Click").sample(2, by="top_k")
    sample = lg.PreSampler(shop(), query).sample([2])
    assert sample.vertex_types == ("Item", "User")
    assert sample.hop(1).tolist() == [[1, 0]]
    data = sample.to_pyg()
    assert data["User", "Click", "Item"].edge_index.tolist() == [[0, 1], [0, 0]]


def test_hetero_data_goes_into_a_hetero_model() -> None:
    sample = lg.PreSampler(shop(), SHOP).sample([0, 1])
    data = sample.to_pyg()
    assert data["User"].batch_size == 2
    assert data["Item"].x.shape == (7, 3)
    assert data["Item"].n_id.tolist() == [3, 2, 1, 2, 3, 2, 3]
    assert set(data.edge_types) == {("Item", "rev_Click", "User"), ("Item", "rev_CoPurchase", "Item")}
    conv = HeteroConv(
        {("Item", "rev_Click", "User"): SAGEConv((3, 2), 4), ("Item", "rev_CoPurchase", "Item"): SAGEConv(3, 4)}
    )
    with torch.inference_mode():
        out = conv(data.x_dict, data.edge_index_dict)
    assert out["User"].shape == (2, 4)


def test_hops_over_several_types_have_no_hetero_data() -> None:
    sample = lg.PreSampler(shop(), lg.query("Item").in_().sample(3, by="top_k")).sample([1])
    assert sample.hop(1).tolist() == [[0, 0, -1]]  # user 0 at time 2, item 0 at time 1: ids are of their types
    with pytest.raises(UsageError, match="one vertex type each"):
        sample.to_pyg()


def test_durations_by_edge_type_name() -> None:
    sampler = lg.PreSampler(shop(), SHOP, ttl={"Click": 2})
    assert sampler.sample([0]).hop(1).tolist() == [[3, -1, -1]]
    with pytest.raises(QueryInvalid, match="Click"):
        lg.PreSampler(shop(), SHOP, ttl={"Buy": 2})


def test_reads_of_typed_graphs_are_of_one_version_while_ids_move() -> None:
    """Vertices leave and come back under other types and ids; what a reader is told belongs together."""
    graph = lg.Graph(
        {"A": np.zeros((1, 1), np.float32), "B": np.zeros((0, 1), np.float32)},
        {("A", "to", "B"): np.zeros(0, np.int64)},
        {("A", "to", "B"): np.zeros(0, np.int64)},
        time={("A", "to", "B"): np.zeros(0, np.int64)},
    )
    sampler = lg.PreSampler(graph, lg.query("A").out("to").sample(4, by="top_k"))
    done, wrong = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            sample = sampler.sample([0])
            there = sample.hop(1)[0][sample.mask(1)[0]]
            if not (sample.features(1)[0][sample.mask(1)[0], 0] == there).all():
                wrong.append(sample)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(200):  # the feature of a B is its id
        updates = lg.Updates()
        updates.add_vertex(step, [step], vertex_type="B")
        updates.add_edge(0, step, edge_type="to", time=step)
        if step > 2:
            updates.remove_vertex(step - 3, vertex_type="B")
        graph.apply(updates)
    done.set()
    reader.join()
    assert not wrong
