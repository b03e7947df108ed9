"""Offload and reload between batches, against a graph that never did either.

The twin takes every batch that the graph takes. A batch that the graph refuses because of what is away is taken back
whole, and taken by both after a reload; digest, version, degrees and ids agree throughout, whatever is in memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import livegnn as lg
from livegnn.errors import EdgeMissing, EdgeOffloaded, VertexExists, VertexUnknown
from livegnn.graph import Graph, Updates
from livegnn.temporal import TemporalSampler

pytest.importorskip("pyarrow.parquet")

VERTICES = 6
TIMES = st.integers(0, 30)
ENDS = st.integers(0, VERTICES - 1)
CALLS = st.one_of(
    st.tuples(st.just("add_edge"), ENDS, ENDS, TIMES, st.floats(-4, 4, width=32)),
    st.tuples(st.just("add_edge"), ENDS, ENDS, TIMES, st.floats(-4, 4, width=32)),
    st.tuples(st.just("remove_edge"), ENDS, ENDS, st.none() | TIMES, st.none()),
    st.tuples(st.just("set_weight"), ENDS, ENDS, st.none(), st.floats(-4, 4, width=32)),
    st.tuples(st.just("remove_edges_before"), ENDS, ENDS, st.integers(0, 8), st.none()),
    st.tuples(st.just("remove_vertex"), ENDS, ENDS, st.none(), st.none()),
    st.tuples(st.just("add_vertex"), ENDS, ENDS, st.none(), st.none()),
)


class SmallBlocks(Graph):
    _block_edges_max = 4


class OffloadMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.files = 0
        self.readers: list[lg.PreSampler] = []

    @initialize(undirected=st.booleans(), attributes=st.booleans(), named=st.booleans())
    def start(self, undirected: bool, attributes: bool, named: bool) -> None:
        self.attributes, self.names = attributes, [f"n{i}" for i in range(VERTICES)] if named else range(VERTICES)
        none = np.zeros(0, np.int64)
        columns: dict[str, Any] = {"time": none, "weight": np.zeros(0, np.float32), "undirected": undirected}
        if named:
            columns["ids"] = np.array(self.names, object)
        if attributes:
            columns["edge_attr"] = np.zeros((0, 2), np.float32)
        features = np.zeros((VERTICES, 0), np.float32)
        self.graph, self.twin = SmallBlocks(features, none, none, **columns), Graph(features, none, none, **columns)

    def updates(self, calls: list[Any]) -> Updates:
        made = Updates()
        for name, u, v, time, weight in calls:
            a, b = self.names[u], self.names[v]
            if name == "add_edge":
                attr = np.array([u, weight], np.float32) if self.attributes else None
                made.add_edge(a, b, time=time, weight=weight, edge_attr=attr)
            elif name == "remove_edge":
                made.remove_edge(a, b, time=time, missing="ignore")
            elif name == "set_weight":
                made.set_weight(a, b, weight)
            elif name == "remove_edges_before":
                made.remove_edges_before(time)
            elif name == "remove_vertex":
                made.remove_vertex(a)
            else:
                made.add_vertex(a, np.zeros(0, np.float32))
        return made

    @rule(calls=st.lists(CALLS, min_size=1, max_size=6))
    def apply(self, calls: list[Any]) -> None:
        batch = self.updates(calls)
        try:
            self.graph.apply(batch)
        except EdgeOffloaded:
            assert self.graph.digest() == self.twin.digest()
            assert self.graph.offloaded.count
            return
        except (EdgeMissing, VertexUnknown, VertexExists) as refused:
            with pytest.raises(type(refused)):
                self.twin.apply(batch)
            return
        self.twin.apply(batch)

    @rule(calls=st.lists(CALLS, min_size=1, max_size=3), repeats=st.integers(90, 120))
    def apply_run(self, calls: list[Any], repeats: int) -> None:
        """Long enough to be written as a run."""
        self.apply([call for call in calls if call[0] == "add_edge"] * repeats)

    @rule(before=TIMES)
    def offload(self, before: int) -> None:
        self.files += 1
        moved = int((self.graph.edges(loaded_only=True)["time"] < before).sum())
        count = self.graph.offloaded.count
        assert self.graph.offload(before, Path(self.folder.name) / str(self.files)).count == count + moved

    @precondition(lambda self: self.graph.offloaded.count)
    @rule(data=st.data(), since=st.none() | TIMES, one=st.booleans())
    def reload(self, data: st.DataObject, since: int | None, one: bool) -> None:
        path = data.draw(st.sampled_from(self.graph.offloaded.paths)) if one else None
        count, loaded = self.graph.offloaded.count, self.graph.edge_count
        back = self.graph.reload(path, since)
        assert self.graph.offloaded.count == count - back
        assert self.graph.edge_count == loaded + back

    @rule(
        fanout=st.sampled_from([1, 2, 3, -1]),
        strategy=st.sampled_from(["recent", "uniform"]),
        window=st.none() | st.integers(1, 30),
        inclusive=st.booleans(),
        rng=st.integers(0, 2**32),
    )
    def sample(self, fanout: int, strategy: Any, window: int | None, inclusive: bool, rng: int) -> None:
        """Of every past: refused, or what the twin gives, which has all edges; and refused only for what is away."""
        given: Any = {"window": window, "inclusive": inclusive, "seed": rng}
        here, whole = (TemporalSampler(graph, [fanout], strategy, **given) for graph in (self.graph, self.twin))
        for v in self.graph.vertices():
            for time in (1, 8, 16, 33):
                here.calls = whole.calls
                expected = whole.sample([v], [time])[0]
                try:
                    found = here.sample([v], [time])[0]
                except EdgeOffloaded:
                    into = self.graph.in_degree([v])[0]
                    loaded = self.graph.in_neighbours(v, loaded_only=True)["time"]
                    assert into > len(loaded)
                    continue
                for name in ("src", "times", "edge_ids"):
                    assert getattr(found, name).tolist() == getattr(expected, name).tolist()

    @rule(seed=st.integers(0, 100))
    def attach(self, seed: int) -> None:
        """What reads whole lists comes, or comes anew."""
        self.detach()
        query = lg.query().out().sample(2, by="random").in_().sample(3, by="top_k")
        self.readers = [lg.PreSampler(graph, query, seed=seed, threads=1) for graph in (self.graph, self.twin)]

    @rule()
    def detach(self) -> None:
        for reader in self.readers:
            reader.close()
        self.readers = []
        assert not self.graph.host.store.has_copies

    @rule()
    def save_and_load(self) -> None:
        self.detach()
        self.graph = SmallBlocks.from_arrays(self.graph.to_arrays())

    @invariant()
    def equals_the_twin(self) -> None:
        graph, twin = self.graph, self.twin
        graph.host.store.check_invariants()
        assert (graph.digest(), graph.version) == (twin.digest(), twin.version)
        assert graph.edge_count + graph.offloaded.count == twin.edge_count
        live = graph.vertices()
        assert graph.in_degree(live).tolist() == twin.in_degree(live).tolist()
        assert graph.out_degree(live).tolist() == twin.out_degree(live).tolist()
        if self.readers:
            assert graph.host.store.has_copies or not graph.offloaded.count
            here, there = (reader.sample(live) for reader in self.readers)
            assert all(np.array_equal(here.edge_ids(k), there.edge_ids(k)) for k in (1, 2))
        loaded, whole = graph.edges(loaded_only=True), twin.edges()
        kept = np.isin(whole["id"], loaded["id"])
        assert all(np.array_equal(loaded[name], whole[name][kept]) for name in whole)
        if graph.offloaded.before is not None:
            assert (whole["time"][~kept] < graph.offloaded.before).all()

    def teardown(self) -> None:
        if hasattr(self, "graph"):
            self.graph.reload()
            edges, whole = self.graph.edges(), self.twin.edges()
            assert all(np.array_equal(edges[name], whole[name]) for name in whole)
        self.folder.cleanup()


TestOffloadMachine = OffloadMachine.TestCase
TestOffloadMachine.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
