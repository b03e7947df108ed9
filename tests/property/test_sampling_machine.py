"""A pre-sampler over any history equals a sort of all candidates, after every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import livegnn as lg
from livegnn.reference.sampling import EdgeTable, HopRule, sample_tree

_SEEDS = st.integers(0, 2**64 - 1)
_HOPS = st.lists(
    st.builds(
        HopRule,
        direction=st.sampled_from(["out", "in_", "both"]),
        fanout=st.sampled_from([1, 2, 3, 7]),
        by=st.sampled_from(["random", "top_k", "weighted"]),
        edge_type=st.sampled_from([None, 0, 1]),
    ),
    min_size=1,
    max_size=2,
)


def query_of(hops: list[HopRule]) -> lg.sampling.Query:
    query = lg.query()
    for hop in hops:
        opened = getattr(query, hop.direction)(hop.edge_type)
        query = opened.sample(hop.fanout, by=hop.by)
    return query


class SamplingMachine(RuleBasedStateMachine):
    """Edges by id, as the history made them; batches of a few updates; a second sampler takes them one by one."""

    in_order = False  # whether new edges are the latest

    @initialize(
        seed=_SEEDS, hops=_HOPS, undirected=st.booleans(), ttl=st.sampled_from([None, 5, 40]), rng=st.integers(0, 2**32)
    )
    def start(self, seed: int, hops: list[HopRule], undirected: bool, ttl: int | None, rng: int) -> None:
        self.rng = np.random.default_rng(rng)
        self.seed, self.ttl, self.undirected = seed, ttl, undirected
        self.hops = [hop._replace(ttl=ttl or 0) for hop in hops]
        count = int(self.rng.integers(2, 8))
        self.live = set(range(count))
        self.slots, self.next_id, self.now = count, 0, -(2**63)
        self.edges: dict[int, tuple[int, int, float, int, int]] = {}
        edges = [self._new_edge(50) for _ in range(int(self.rng.integers(0, 40)))]
        columns = list(zip(*edges, strict=True)) if edges else [[]] * 5
        for edge in edges:
            self._add(edge)
        self.graphs = []
        for _ in range(2):
            u, v, w, t, kind = (np.array(column) for column in columns)
            self.graphs.append(
                lg.Graph(
                    np.arange(count * 2, dtype=np.float32).reshape(count, 2),
                    u.astype(np.int64),
                    v.astype(np.int64),
                    weight=w.astype(np.float32),
                    time=t.astype(np.int64),
                    edge_type=kind.astype(np.int32),
                    undirected=undirected,
                )
            )
        self.samplers = [
            lg.PreSampler(graph, query_of(hops), seed=seed, ttl=ttl, threads=threads)
            for graph, threads in zip(self.graphs, (2, 1), strict=True)
        ]

    def _new_edge(self, latest: int) -> tuple[int, int, float, int, int]:
        u, v = (int(x) for x in self.rng.choice(sorted(self.live), 2))
        weight = float(self.rng.choice([0.0, 0.25, 1.0, 8.0]))
        time = (
            max(self.now, 0) + int(self.rng.integers(0, 2))
            if self.in_order
            else int(self.rng.integers(latest - 50, latest + 1))
        )
        return u, v, weight, time, int(self.rng.integers(0, 2))

    def _add(self, edge: tuple[int, int, float, int, int]) -> None:
        self.edges[self.next_id] = edge
        self.next_id += 1
        self.now = max(self.now, edge[3])

    def _apply(self, updates: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        together = lg.Updates()
        for name, args, kwargs in updates:
            getattr(together, name)(*args, **kwargs)
            alone = lg.Updates()
            getattr(alone, name)(*args, **kwargs)
            self.samplers[1].apply(alone)
        self.samplers[0].apply(together)

    @rule(adds=st.integers(0, 25), leaves=st.integers(0, 12), weights=st.integers(0, 4))
    def batch(self, adds: int, leaves: int, weights: int) -> None:
        updates: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for kind in self.rng.permutation(["add"] * adds + ["leave"] * leaves + ["weight"] * weights):
            if kind == "add":
                edge = self._new_edge(max(self.now, 0) + 3)
                self._add(edge)
                columns = {"weight": edge[2], "time": edge[3], "edge_type": edge[4]}
                updates.append(("add_edge", edge[:2], columns))
            elif self.edges:
                edge_id = int(self.rng.choice(sorted(self.edges)))
                u, v, _, time, of_type = self.edges.pop(edge_id)
                if kind == "leave":
                    updates.append(("remove_edge", (u, v), {"edge_id": edge_id}))
                else:
                    weight = float(self.rng.choice([0.0, 0.5, 3.0]))
                    self.edges[edge_id] = (u, v, weight, time, of_type)
                    updates.append(("set_weight", (u, v, weight), {"edge_id": edge_id}))
        self._apply(updates)

    @rule(adds=st.integers(1, 60), leaves=st.integers(0, 6))
    def batch_in_order_of_time(self, adds: int, leaves: int) -> None:
        """Every edge is the latest there is, or of the latest's time: rows of the latest grow at their front."""
        self.in_order = True
        self.batch(adds, leaves, 0)
        self.in_order = False

    @rule(adds=st.integers(260, 700))
    def long_run_of_additions(self, adds: int) -> None:
        """Written by the store as one run in the first graph, one by one in the other."""
        self.batch(adds, 0, 0)

    @rule()
    def vertex_leaves_and_returns(self) -> None:
        if len(self.live) < 2:
            return
        v = int(self.rng.choice(sorted(self.live)))
        self.edges = {e: edge for e, edge in self.edges.items() if v not in edge[:2]}
        updates: list[Any] = [("remove_vertex", (v,), {})]
        self.live.discard(v)
        if self.rng.random() < 0.6:
            self.live.add(v)
            updates.append(("add_vertex", (v, self.rng.random(2, np.float32)), {}))
        else:
            self.live.add(self.slots)
            updates.append(("add_vertex", (self.slots, self.rng.random(2, np.float32)), {}))
            self.slots += 1
        self._apply(updates)

    @rule()
    def features_change(self) -> None:
        v = int(self.rng.choice(sorted(self.live)))
        self._apply([("set_features", (v, self.rng.random(2, np.float32)), {})])

    @rule()
    def old_edges_go(self) -> None:
        before = int(self.now - 30) if self.edges else 0
        self.edges = {e: edge for e, edge in self.edges.items() if edge[3] >= before}
        self._apply([("remove_edges_before", (before,), {})])

    @rule()
    def a_refused_batch_changes_nothing(self) -> None:
        before = self.samplers[0].digest()
        bad = lg.Updates()
        edge = self._new_edge(500)
        bad.add_edge(*edge[:2], weight=-1.0, time=10**6, edge_type=edge[4])
        bad.remove_edge(10**6, 0)
        with pytest.raises(lg.errors.VertexUnknown):
            self.samplers[0].apply(bad)
        assert self.samplers[0].digest() == before

    @rule(threads=st.sampled_from([1, 2]))
    def begin_again(self, threads: int) -> None:
        """A sampler made now, on the graph as it is, holds the same samples: unless only the log knows the time."""
        fresh = lg.PreSampler(self.graphs[0], query_of(self.hops), seed=self.seed, ttl=self.ttl, threads=threads)
        known = max((edge[3] for edge in self.edges.values()), default=None)
        if self.ttl is None or known == self.now:
            assert fresh.digest() == self.samplers[0].digest()
        fresh.close()

    @invariant()
    def samples_are_the_first_candidates(self) -> None:
        if not hasattr(self, "samplers"):
            return
        ids = np.array(sorted(self.edges), np.int64)
        rows = np.array([self.edges[e] for e in ids.tolist()], np.float64).reshape(len(ids), 5)
        whole = [rows[:, i].astype(np.int64) for i in (0, 1, 3, 4)]
        table = EdgeTable(whole[0], whole[1], ids, rows[:, 2], whole[2], whole[3])
        seeds = np.array(sorted(self.live), np.int64)
        vertices, edge_ids = sample_tree(self.hops, self.seed, table, seeds, self.now, self.undirected)
        for sampler, graph in zip(self.samplers, self.graphs, strict=True):
            sampler.verify()
            got = sampler.sample(seeds)
            for k in range(1, len(self.hops) + 1):
                np.testing.assert_array_equal(got.hop(k), vertices[k - 1])
                np.testing.assert_array_equal(got.edge_ids(k), edge_ids[k - 1])
                there = got.hop(k) >= 0
                np.testing.assert_array_equal(got.features(k)[there], graph.features(got.hop(k)[there]))
                assert not got.features(k)[~there].any()
        assert self.samplers[0].digest() == self.samplers[1].digest()


TestSamplingMachine = SamplingMachine.TestCase
TestSamplingMachine.settings = settings(max_examples=80, stateful_step_count=12, deadline=None)
