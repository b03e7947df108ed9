"""Engines and samplers over a graph whose old edges lie in files: bit for bit those of a twin that keeps all in memory.

The twin takes every batch that the graph takes. A batch that needs an edge in a file is refused and changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("pyarrow.parquet")

import torch
import torch_geometric.nn as pyg

import livegnn as lg
from livegnn.errors import EdgeOffloaded

V, F, A = 12, 4, 2
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "threads": {"threads": 2},
    "on demand": {"mode": "on_demand"},
    "hybrid": {"mode": "hybrid", "hot": 4},
    "compact": {"state": "compact"},
    "memory limit": {"memory_limit": "8MiB"},
    "full": {"strategy": "full"},
    "sampled": {"strategy": "sampled", "fanout": 3},
}


class Net(torch.nn.Module):
    """Two layers of one kind, so that every kind of aggregate reads whole lists."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "attributes":
            self.a, self.b = pyg.GINEConv(torch.nn.Linear(F, 5), edge_dim=A), pyg.GraphConv(5, 3)
        elif kind == "degrees":
            self.a, self.b = pyg.GCNConv(F, 5), pyg.GCNConv(5, 3)
        elif kind == "extremes":
            self.a, self.b = pyg.SAGEConv(F, 5, aggr="max"), pyg.SAGEConv(5, 3, aggr="median")
        else:
            self.a, self.b = pyg.GATConv(F, 5, edge_dim=A), pyg.GATv2Conv(5, 3)


class Attributes(Net):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return self.b(self.a(x, edge_index, edge_attr).relu(), edge_index, edge_weight)


class Degrees(Net):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Extremes(Net):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.b(self.a(x, edge_index).relu(), edge_index)


class Attention(Net):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.b(self.a(x, edge_index, edge_attr).relu(), edge_index)


NETS: dict[str, Any] = {
    "attributes": Attributes,
    "degrees": Degrees,
    "extremes": Extremes,
    "attention": Attention,
}


def model(kind: str, seed: int) -> Any:
    torch.manual_seed(seed)
    return lg.from_pyg(NETS[kind](kind).eval())


class Stream:
    """Two graphs of the same edges, and batches for both."""

    def __init__(self, seed: int, folder: Path, **options: Any) -> None:
        self.rng, self.folder, self.files, self.now, self.vertices = np.random.default_rng(seed), folder, 0, 60, V
        n = 120
        arrays: dict[str, Any] = {
            "time": self.rng.integers(0, 60, n),
            "weight": self.rng.random(n, np.float32),
            "edge_attr": self.rng.random((n, A), np.float32),
        }
        ends = self.rng.integers(0, V, (2, n))
        features = self.rng.random((V, F), np.float32)
        self.graph, self.twin = (lg.Graph(features, *ends, **arrays, **options) for _ in range(2))

    def batch(self) -> lg.Updates:
        """Additions, late ones and loops among them, and updates of any edge, in memory or not."""
        rng, updates = self.rng, lg.Updates()
        for _ in range(10):
            u, v = rng.integers(0, self.vertices, 2).tolist()
            row = rng.random(A, np.float32)
            kind = rng.choice(["add", "late", "loop", "edge", "features", "vertex"], p=[0.35, 0.1, 0.1, 0.2, 0.2, 0.05])
            if kind in ("add", "late", "loop"):
                self.now += 1
                time = self.now if kind == "add" else int(rng.integers(0, self.now))
                updates.add_edge(u, u if kind == "loop" else v, time=time, weight=float(rng.random()), edge_attr=row)
            elif kind == "features":
                updates.set_features(u, rng.random(F, np.float32))
            elif kind == "vertex":
                updates.add_vertex(self.vertices, rng.random(F, np.float32))
                self.vertices += 1
            else:
                self.change(updates, row)
        return updates

    def change(self, updates: lg.Updates, row: np.ndarray) -> None:
        """Of one edge, most often in memory."""
        edges = (self.twin.edges if self.rng.random() < 0.03 else lambda: self.graph.edges(loaded_only=True))()
        if not len(edges["id"]):
            return
        at = int(self.rng.integers(len(edges["id"])))
        ends, edge = (int(edges["src"][at]), int(edges["dst"][at])), {"edge_id": int(edges["id"][at])}
        kind = self.rng.integers(3)
        if kind == 0:
            updates.remove_edge(*ends, **edge, missing="ignore")
        elif kind == 1:
            updates.set_weight(*ends, float(self.rng.random()), **edge)
        else:
            updates.set_edge_attr(*ends, row, **edge)

    def apply(self) -> bool:
        before, batch = self.vertices, self.batch()
        try:
            self.graph.apply(batch)
        except (EdgeOffloaded, lg.errors.EdgeMissing) as refused:  # an edge is changed after it was removed
            if isinstance(refused, lg.errors.EdgeMissing):
                with pytest.raises(lg.errors.EdgeMissing):
                    self.twin.apply(batch)
            self.vertices = before
            return False
        self.twin.apply(batch)
        return True

    def move(self) -> None:
        """Edges into a file or back."""
        kind = self.rng.integers(6)
        if kind < 3:
            self.files += 1
            self.graph.offload(int(self.rng.integers(self.now // 3, self.now)), self.folder / f"{self.files}")
        elif kind == 3 and self.graph.offloaded.count:
            self.graph.reload(since=int(self.rng.integers(self.now // 2, self.now)))
        elif kind == 4 and self.graph.offloaded.count:
            self.graph.reload(str(self.rng.choice(self.graph.offloaded.paths)))
        self.graph.host.store.check_invariants()


def same(here: lg.Engine, there: lg.Engine) -> None:
    ids = here.graph.vertices()
    np.testing.assert_array_equal(here.embeddings(ids), there.embeddings(ids))
    if here.strategy != "sampled":
        assert here.state_digest() == there.state_digest()
        here.verify()
    assert here.graph.digest() == there.graph.digest()


def engines(stream: Stream, kind: str, seed: int, options: dict[str, Any]) -> tuple[lg.Engine, lg.Engine]:
    given = {"threads": 1, **options}
    return tuple(lg.Engine(model(kind, seed), graph, **given) for graph in (stream.graph, stream.twin))  # type: ignore[return-value]


CASES = [(kind, mode) for kind in NETS for mode in MODES if mode == "eager" or kind in ("attributes", "extremes")]


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_an_engine_equals_one_with_all_edges_in_memory(kind: str, mode: str, undirected: bool, tmp_path: Path) -> None:
    stream = Stream(len(kind) + 10 * undirected, tmp_path, undirected=undirected)
    stream.graph.offload(30, tmp_path / "first")  # attached to a graph with edges away
    here, there = engines(stream, kind, 0, MODES[mode])
    same(here, there)
    for step in range(12):
        stream.move()
        stream.apply()
        same(here, there)
        if step == 6 and MODES[mode].get("strategy", "incremental") == "incremental":
            for engine in (here, there):
                engine.swap(model(kind, 1))
                engine.rescale()
            same(here, there)
    assert stream.graph.host.store.has_copies == bool(stream.graph.offloaded.count)
    here.close()
    assert not stream.graph.host.store.has_copies
    stream.graph.reload()
    assert stream.graph.digest() == stream.twin.digest()


@pytest.mark.parametrize("mode", ["eager", "hybrid"])
def test_views_snapshots_and_saved_engines(mode: str, tmp_path: Path) -> None:
    stream = Stream(5, tmp_path)
    here, there = engines(stream, "attributes", 0, MODES[mode])
    stream.graph.offload(40, tmp_path / "first")
    before = here.state_digest()
    supposed = lg.Updates()
    supposed.add_vertex(V, np.ones(F, np.float32))
    supposed.add_edge(V, 0, time=7, weight=1.0, edge_attr=np.ones(A, np.float32))
    with here.what_if(supposed) as view, there.what_if(supposed) as expected:
        np.testing.assert_array_equal(view.embeddings([0, V]), expected.embeddings([0, V]))
    assert here.state_digest() == before
    with here.snapshot() as view:
        rows = view.embeddings(list(range(V)))
        stream.apply()
        stream.graph.offload(55, tmp_path / "second")
        np.testing.assert_array_equal(view.embeddings(list(range(V))), rows)
    same(here, there)
    here.save(tmp_path / "engine")
    again = lg.Engine.load(tmp_path / "engine", threads=1)
    assert again.graph.host.store.has_copies
    assert again.state_digest() == here.state_digest()
    again.verify()
    assert lg.Graph.from_arrays(again.graph.to_arrays()).digest() == stream.twin.digest()


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("by", ["random", "top_k", "weighted"])
def test_a_pre_sampler_equals_one_with_all_edges_in_memory(by: Any, undirected: bool, tmp_path: Path) -> None:
    stream = Stream(3, tmp_path, undirected=undirected)
    stream.graph.offload(30, tmp_path / "first")
    query = lg.query().out().sample(3, by=by).in_().sample(4, by="random")
    here, there = (lg.PreSampler(graph, query, seed=1, edge_data=True) for graph in (stream.graph, stream.twin))
    for _ in range(15):
        stream.move()
        stream.apply()
        here.verify()
        one, other = (sampler.sample(stream.graph.vertices()) for sampler in (here, there))
        for k in (1, 2):
            for name in ("hop", "edge_ids", "edge_time", "edge_weight", "edge_attr", "features"):
                np.testing.assert_array_equal(getattr(one, name)(k), getattr(other, name)(k))
    other_query = lg.query().in_().sample(5, by="top_k")
    numbers = here.add(other_query), there.add(other_query)
    found = [s.sample([0, 1, 2], query=n).hop(1) for s, n in zip((here, there), numbers, strict=True)]
    np.testing.assert_array_equal(*found)


def test_copies_last_as_long_as_something_reads_whole_lists(tmp_path: Path) -> None:
    stream = Stream(4, tmp_path)
    store = stream.graph.host.store
    stream.graph.offload(30, tmp_path / "first")
    assert not store.has_copies
    here, there = engines(stream, "extremes", 0, {})
    sampler = lg.PreSampler(stream.graph, lg.query().out().sample(2, by="top_k"))
    sampler.close()
    assert store.has_copies
    with pytest.raises(lg.errors.ModelMismatch):
        lg.Engine(lg.Model([lg.layers.SAGE(np.ones((9, 9), np.float32))]), stream.graph)
    assert store.has_copies
    (tmp_path / "first").unlink()  # the copies do without
    assert stream.apply()
    same(here, there)
    here.close()
    assert not store.has_copies
