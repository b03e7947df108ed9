"""Temporal samples over vertex and edge types: every field equals the scan over all edges; PyG's form holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ColumnMissing, ValueInvalid, VertexUnknown
from livegnn.temporal import TemporalSampler
from tests.unit.temporal.past import check, check_columns, edges_of

WIDTHS = {"User": 3, "Item": 2}
TYPES = [("User", "buys", "Item"), ("User", "sees", "Item"), ("Item", "of", "User"), ("User", "knows", "User")]
CHOICES: list[Any] = [None, ["buys"], ["buys", "of"], [("User", "sees", "Item"), "knows"], [0, 1, 2, 3]]


class Typed:
    """A small typed graph with string ids, which goes on changing."""

    def __init__(self, seed: int, block_edges_max: int = 4) -> None:
        self.rng = np.random.default_rng(seed)
        self.ids = {name: [f"{name[0]}{number}" for number in range(8)] for name in WIDTHS}
        self.made = 8
        ends: dict[str, Any] = {"src": {}, "dst": {}, "time": {}, "weight": {}, "edge_attr": {}}
        for triple in TYPES:
            ends["src"][triple] = self.rng.choice(self.ids[triple[0]], 40)
            ends["dst"][triple] = self.rng.choice(self.ids[triple[2]][:5], 40)
            ends["time"][triple] = self.rng.integers(-20, 20, 40)
            ends["weight"][triple] = self.rng.uniform(0.1, 2, 40).astype(np.float32)
            ends["edge_attr"][triple] = self.rng.standard_normal((40, 2)).astype(np.float32)
        kind = type("TinyBlocks", (lg.Graph,), {"_block_edges_max": block_edges_max})
        features = {name: self.rng.standard_normal((8, width)).astype(np.float32) for name, width in WIDTHS.items()}
        self.graph = kind(features, **ends, ids=self.ids)

    def change(self) -> None:
        """A batch of every kind of update; vertices of both types come and go, and take each other's slots."""
        updates = lg.Updates()
        for _ in range(12):
            src, name, dst = TYPES[self.rng.integers(len(TYPES))]
            u, v = self.rng.choice(self.ids[src]), self.rng.choice(self.ids[dst][:5])
            options: dict[str, Any] = {"time": int(self.rng.integers(-20, 20)), "edge_type": name}
            updates.add_edge(
                u, v, weight=float(self.rng.uniform(1, 2)), edge_attr=self.rng.standard_normal(2), **options
            )
        found = self.graph.edges()
        for place in self.rng.choice(len(found["id"]), 6, replace=False):
            named = {"edge_type": int(found["type"][place])}
            if place % 2:
                updates.set_weight(found["src"][place], found["dst"][place], float(self.rng.uniform(3, 4)), **named)
            else:
                edge = {"edge_id": int(found["id"][place])}
                updates.remove_edge(found["src"][place], found["dst"][place], **named, **edge, missing="ignore")
        for name, other in (("User", "Item"), ("Item", "User")):
            gone = self.ids[name].pop(int(self.rng.integers(len(self.ids[name]))))
            updates.remove_vertex(gone, vertex_type=name)
            self.ids[other].append(f"{other[0]}{self.made}")
            self.made += 1
            row = self.rng.standard_normal(WIDTHS[other]).astype(np.float32)
            updates.add_vertex(self.ids[other][-1], row, vertex_type=other)
        self.graph.apply(updates)

    def targets(self, count: int = 20) -> tuple[Any, Any, str]:
        """Ids of one type, times, and the type."""
        name = list(WIDTHS)[int(self.rng.integers(2))]
        return self.rng.choice(self.ids[name], count), self.rng.integers(-25, 25, count), name


OPTIONS: list[dict[str, Any]] = [
    {},
    {"strategy": "uniform"},
    {"strategy": "uniform", "replace": True},
    {"window": 8},
    {"window": 5, "snapshots": 3, "inclusive": True},
    {"unique": True, "prop_time": True},
]


@pytest.mark.parametrize("edge_types", CHOICES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("block_edges_max", [4, 128])
def test_hops_over_edge_types_are_the_scan(edge_types: Any, options: dict[str, Any], block_edges_max: int) -> None:
    world = Typed(3, block_edges_max)
    sampler = TemporalSampler(world.graph, [3, -1, 2], seed=5, threads=2, edge_types=edge_types, **options)
    for _ in range(3):
        ids, times, name = world.targets()
        calls, slots = sampler.calls, world.graph.to_slots(ids, vertex_type=name)
        found = sampler.sample_snapshots(ids, times, vertex_type=name)
        sampler.calls = calls
        check(sampler, slots, times)
        sampler.calls = calls
        again = sampler.sample_snapshot_slots(slots, times)
        for hops, same in zip(found, again, strict=True):
            for hop, twin in zip(hops, same, strict=True):
                assert hop.edge_ids.tolist() == twin.edge_ids.tolist()
                check_columns(world.graph, hop)
        world.change()


def test_walks_go_over_the_edge_types() -> None:
    world = Typed(1)
    sampler = TemporalSampler(world.graph, [1], edge_types=["of", "buys"])
    walks = sampler.walks(world.ids["Item"], [20] * 8, 5, vertex_type="Item")
    taken = walks.edge_ids[walks.edge_ids >= 0]
    edges = edges_of(world.graph)
    assert edges.types is not None
    assert set(edges.types[taken].tolist()) == {0, 2}
    wide = TemporalSampler(world.graph, [1], edge_types=None).walks(world.ids["Item"], [20] * 8, 5, vertex_type="Item")
    assert len(np.unique(edges.types[wide.edge_ids[wide.edge_ids >= 0]])) > 2


@pytest.mark.parametrize("edge_types", [None, ["buys", "of"]])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_pin_keeps_types_weights_and_rows(edge_types: Any, seed: int) -> None:
    world, copy = Typed(seed), Typed(seed)
    with TemporalSampler(world.graph, [3, 4], edge_types=edge_types).pin() as pinned:
        targets = [copy.targets() for _ in range(3)]
        for ids, times, name in targets:
            world.change()
            sampler = TemporalSampler(copy.graph, [3, 4], edge_types=edge_types)
            sampler.calls = pinned._draws.calls
            expected = sampler.sample(ids, times, vertex_type=name)
            got = pinned.sample(ids, times, vertex_type=name)
            for one, other in zip(got, expected, strict=True):
                for column in ("src", "edge_ids", "edge_types", "weights", "next_targets", "next_types"):
                    assert getattr(one, column).tolist() == getattr(other, column).tolist(), column
            same_data(pinned.to_pyg(got), sampler.to_pyg(expected))
            slots = got[-1].next_targets
            assert pinned.slot_types(slots).tolist() == copy.graph.slot_types(slots).tolist()
            np.testing.assert_array_equal(
                pinned.features(ids, vertex_type=name), copy.graph.features(ids, vertex_type=name)
            )


def same_data(got: Any, expected: Any) -> None:
    """The same stores with the same tensors."""
    assert got.metadata() == expected.metadata()
    for one, other in zip(got.stores, expected.stores, strict=True):
        assert set(one.keys()) == set(other.keys())
        for key, value in other.items():
            same = one[key].tolist() == value.tolist() if hasattr(value, "tolist") else one[key] == value
            assert same or key == "version", key


@pytest.mark.parametrize("options", [{}, {"strategy": "uniform", "unique": True}, {"unique": True}], ids=str)
def test_to_pyg_is_the_tree_that_was_sampled(options: dict[str, Any]) -> None:
    """Every edge of the data is one of the graph, at the time, weight and attributes that it has there."""
    pytest.importorskip("torch_geometric")
    world = Typed(7)
    sampler = TemporalSampler(world.graph, [3, 3], **options)
    ids, times, name = world.targets(6)
    data = sampler.to_pyg(sampler.sample(ids, times, vertex_type=name))
    edges = world.graph.host.store.edges()
    slots = {kind: np.full(data[kind].num_nodes, -1) for kind in WIDTHS}
    slots[name][: len(ids)] = world.graph.to_slots(ids, vertex_type=name)
    assert data[name].batch_size == len(ids)
    assert data[name].seed_time.tolist() == times.tolist()
    for code, triple in enumerate(TYPES):
        store = data[triple]
        at = np.searchsorted(edges["id"], store.e_id.numpy())
        assert (edges["type"][at] == code).all()
        for column, key in (("edge_time", "time"), ("edge_weight", "weight"), ("edge_attr", "attr")):
            np.testing.assert_array_equal(store[column].numpy(), edges[key][at])
        rows = store.edge_index.numpy()
        slots[triple[0]][rows[0]] = edges["src"][at]
    for triple in TYPES:
        store = data[triple]
        at = np.searchsorted(edges["id"], store.e_id.numpy())
        assert (slots[triple[2]][store.edge_index[1].numpy()] == edges["dst"][at]).all()
        assert (store.edge_time < data[triple[2]].n_time[store.edge_index[1]]).all()
    for kind, of_kind in slots.items():
        assert (of_kind >= 0).all()  # every vertex is a root, or the source of an edge
        known = world.graph.to_external(of_kind)
        np.testing.assert_array_equal(data[kind].x.numpy(), world.graph.features(known, vertex_type=kind))


def test_to_pyg_without_types_gives_each_row_the_edges_of_its_first_hop() -> None:
    pytest.importorskip("torch_geometric")
    ends = [10, 11, 12, 10], [11, 13, 13, 13]
    graph = lg.Graph(np.eye(4, dtype=np.float32), *ends, time=[5, 6, 8, 9], ids=[10, 11, 12, 13])
    sampler = TemporalSampler(graph, [2, 2])
    data = sampler.to_pyg(sampler.sample([13, 11], [9, 9]))
    assert data.n_id.tolist() == [13, 11, 11, 12, 10, 10]
    assert data.edge_index.tolist() == [[2, 3, 4, 5], [0, 0, 1, 2]]
    assert data.n_time.tolist() == [9, 9, 6, 8, 5, 5]
    assert (data.hop.tolist(), data.batch.tolist()) == ([0, 0, 1, 1, 1, 2], [0, 1, 0, 0, 1, 0])
    assert (data.num_sampled_nodes, data.num_sampled_edges) == ([2, 3, 1], [3, 1])
    assert data.x.argmax(1).tolist() == [3, 1, 1, 2, 0, 0]


def test_types_that_are_refused() -> None:
    world = Typed(0)
    with pytest.raises(ColumnMissing, match="vertex_type="):
        TemporalSampler(world.graph, [1]).sample(["U1"], [1])
    with pytest.raises(VertexUnknown, match="of type 'Item'"):
        TemporalSampler(world.graph, [1]).sample(["U1"], [1], vertex_type="Item")
    with pytest.raises(ValueInvalid, match="edge type among"):
        TemporalSampler(world.graph, [1], edge_types=["eats"])
    for wrong in ("buys", ("User", "buys", "Item"), []):
        with pytest.raises(ValueInvalid, match=r"edge_types as a list|at least one"):
            TemporalSampler(world.graph, [1], edge_types=wrong)
